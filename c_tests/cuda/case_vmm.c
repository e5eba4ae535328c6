/* Cases of virtual memory. */
#include <unistd.h>

#include "cases.h"

enum { BYTES = 2 << 20 };

static const CUmemAccessDesc access_0 = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUmemAllocationProp shareable(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
}

/* Two pieces of memory, one behind the other. */
static CUdeviceptr mapped(CUmemGenericAllocationHandle handles[2])
{
    CUmemAllocationProp prop = shareable();
    CUdeviceptr pointer;

    GOOD(cuMemAddressReserve(&pointer, 2 * BYTES, 0, 0, 0));
    for (int i = 0; i < 2; i++) {
        GOOD(cuMemCreate(&handles[i], BYTES, &prop, 0));
        GOOD(cuMemMap(pointer + (CUdeviceptr)i * BYTES, BYTES, 0, handles[i], 0));
    }
    return pointer;
}

void vmm_active(int socket)
{
    CUmemGenericAllocationHandle handles[2], retained, imported;
    CUdeviceptr pointer, second;
    CUmemAllocationProp prop;
    CUcontext found;
    bool flag;
    unsigned long long ids[2];
    int fd, fresh, access;

    begin(0);
    pointer = mapped(handles);
    EQUAL(cuMemMap(pointer, BYTES, 0, handles[0], 0), CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemSetAccess(pointer, 2 * BYTES, &access_0, 1));
    fill(pointer, 2 * BYTES, 1); /* over the boundary */
    CHECK(holds(pointer, 2 * BYTES, 1));
    GOOD(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
    CHECK(found == NULL);
    GOOD(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer));
    CHECK(!flag);
    GOOD(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, pointer));
    EQUAL(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    GOOD(cuPointerGetAttribute(&ids[0], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, pointer));
    GOOD(cuPointerGetAttribute(&ids[1], CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, pointer + BYTES));
    CHECK(ids[0] != ids[1]);
    soft_cuda_fault("export_refused=1");
    EQUAL(cuMemExportToShareableHandle(&fd, handles[1], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          CUDA_ERROR_NOT_SUPPORTED);
    soft_cuda_fault("export_refused=0");
    GOOD(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(pointer + BYTES + 5)));
    CHECK(retained == handles[1]);
    GOOD(cuMemGetAllocationPropertiesFromHandle(&prop, retained));
    EQUAL(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    GOOD(cuMemExportToShareableHandle(&fd, retained, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EQUAL(cuMemExportToShareableHandle(&fresh, retained, CU_MEM_HANDLE_TYPE_FABRIC, 0), CUDA_ERROR_INVALID_VALUE);
    send_fd(socket, fd);
    close(fd);
    fd = receive_fd(socket);
    GOOD(cuMemImportFromShareableHandle(&imported, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    GOOD(cuMemAddressReserve(&second, BYTES, 0, 0, 0));
    GOOD(cuMemMap(second, BYTES, 0, imported, 0));
    GOOD(cuMemSetAccess(second, BYTES, &access_0, 1));
    CHECK(holds(second, BYTES, 9));
    CHECK(holds(pointer + BYTES, BYTES, 9)); /* the other process has written to it */
    for (int i = 0; i < 2; i++)
        GOOD(cuMemRelease(handles[i]));
    GOOD(cuMemRelease(retained));
    EQUAL(cuMemAddressFree(pointer, 2 * BYTES), CUDA_ERROR_INVALID_VALUE); /* mapped still */
    GOOD(cuMemUnmap(pointer, 2 * BYTES));
    EQUAL(cuMemUnmap(pointer, 2 * BYTES), CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemAddressFree(pointer, 2 * BYTES));
    EQUAL(cuMemRelease(retained), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuMemcpyDtoH_v2(&fresh, pointer, 4), CUDA_ERROR_INVALID_VALUE);
}

void vmm_passive(int socket)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr pointer;
    int fd = receive_fd(socket);

    begin(0);
    GOOD(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    GOOD(cuMemAddressReserve(&pointer, BYTES, 0, 0, 0));
    GOOD(cuMemMap(pointer, BYTES, 0, handle, 0));
    GOOD(cuMemSetAccess(pointer, BYTES, &access_0, 1));
    fill(pointer, BYTES, 9);
    send_fd(socket, fd);
    /* What is no memory of a device cannot be imported. */
    EQUAL(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)socket, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          CUDA_ERROR_INVALID_VALUE);
}

/* A device without access to mapped memory: its copy fails, and so does all after it. */
void vmm_access_active(int socket)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr pointer;
    void *pinned;
    int access;

    (void)socket;
    begin(0);
    GOOD(cuMemAllocHost_v2(&pinned, BYTES));
    pointer = mapped(handles);
    GOOD(cuPointerGetAttribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, pointer));
    EQUAL(access, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EQUAL(synchronized((uintptr_t)pinned, pointer, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(cuMemFreeHost(pinned), CUDA_ERROR_ILLEGAL_ADDRESS);
}
