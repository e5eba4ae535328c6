/* Cases of pools. */
#include "cases.h"

enum { BYTES = 70000 };

void pools_active(int socket)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemoryPool pool, found;
    CUmemPoolPtrExportData data;
    CUipcMemHandle handle;
    CUdeviceptr first, second, plain;
    CUstream stream;
    struct gate gate;
    int fd;
    char byte;

    begin(0);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GOOD(cuMemPoolCreate(&pool, &props));
    GOOD(cuMemAllocFromPoolAsync(&first, BYTES, pool, stream));
    GOOD(cuMemAllocFromPoolAsync(&second, BYTES, pool, stream));
    GOOD(cuMemAllocAsync(&plain, BYTES, stream));
    GOOD(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, second));
    CHECK(found == pool);
    EQUAL(cuIpcGetMemHandle(&handle, second), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuMemPoolExportPointer(&data, plain), CUDA_ERROR_INVALID_VALUE); /* the default pool is not shared */
    fill(first, BYTES, 1);
    fill(second, BYTES, 2);
    GOOD(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(socket, fd);
    GOOD(cuMemPoolExportPointer(&data, second));
    send_all(socket, &data, sizeof(data));
    receive_all(socket, &byte, 1);
    CHECK(holds(first, BYTES, 1));
    CHECK(holds(second, BYTES, 3));
    /* It is freed in the stream's order. */
    gate_post(&gate, stream);
    GOOD(cuMemFreeAsync(first, stream));
    CHECK(holds(first, BYTES, 1));
    gate_open(&gate);
    GOOD(cuStreamSynchronize(stream));
    EQUAL(cuMemcpyDtoH_v2(&byte, first, 1), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuMemFreeAsync(first, stream), CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemFree_v2(second));
    GOOD(cuMemPoolDestroy(pool));
    EQUAL(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

void pools_passive(int socket)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemoryPool pool;
    CUmemPoolPtrExportData data;
    CUdeviceptr pointer;
    int fd = receive_fd(socket);

    begin(0);
    GOOD(cuMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    receive_all(socket, &data, sizeof(data));
    GOOD(cuMemPoolImportPointer(&pointer, pool, &data));
    GOOD(cuMemPoolSetAccess(pool, &access, 1)); /* to what is open already, too */
    CHECK(holds(pointer, BYTES, 2));
    fill(pointer, BYTES, 3);
    EQUAL(cuMemAllocFromPoolAsync(&pointer, 8, pool, NULL), CUDA_ERROR_INVALID_VALUE); /* an imported one */
    send_all(socket, "", 1);
}
