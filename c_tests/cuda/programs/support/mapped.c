/* Memory of cuMemMap and of pools: see mapped.h. */
#include "mapped.h"

static CUmemoryPool pools[2];

static CUmemAllocationProp properties(int device, int shareable)
{
    return (CUmemAllocationProp){
        .type                 = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location             = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

static void map(CUdeviceptr address, size_t bytes, int device, int shareable)
{
    CUmemAllocationProp          prop   = properties(device, shareable);
    CUmemAccessDesc              access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;

    GOOD(cuMemCreate(&handle, bytes, &prop, 0));
    GOOD(cuMemMap(address, bytes, 0, handle, 0));
    GOOD(cuMemRelease(handle)); /* the mapping keeps it */
    GOOD(cuMemSetAccess(address, bytes, &access, 1));
}

/* More addresses are reserved than are mapped, as PyTorch's expandable segments do. */
static size_t reserved_for(size_t length)
{
    return 2 * length;
}

CUdeviceptr mapped_make(int device, size_t length, int shareable)
{
    CUmemAllocationProp prop = properties(device, shareable);
    CUdeviceptr         address;
    size_t              granularity;

    GOOD(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    length = (length + granularity - 1) / granularity * granularity;
    GOOD(cuMemAddressReserve(&address, reserved_for(length), 0, 0, 0));
    map(address, length, device, shareable);
    return address;
}

static size_t length_of(CUdeviceptr address)
{
    CUdeviceptr base;
    size_t      length;

    GOOD(cuMemGetAddressRange_v2(&base, &length, address));
    return length;
}

void mapped_free(CUdeviceptr address)
{
    size_t length = length_of(address);

    GOOD(cuMemUnmap(address, length));
    GOOD(cuMemAddressFree(address, reserved_for(length)));
}

void mapped_exchange(CUdeviceptr address, int device, int shareable)
{
    size_t length = length_of(address);

    GOOD(cuMemUnmap(address, length));
    map(address, length, device, shareable);
}

CUdeviceptr pooled_make(int device, size_t length, int shareable)
{
    CUmemPoolProps props = {
        .allocType   = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location    = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
    CUdeviceptr address;
    CUstream    stream;

    if (shareable && pools[device] == NULL) {
        GOOD(cuMemPoolCreate(&pools[device], &props));
    }
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (shareable) {
        GOOD(cuMemAllocFromPoolAsync(&address, length, pools[device], stream));
    } else {
        GOOD(cuMemAllocAsync(&address, length, stream));
    }
    GOOD(cuStreamSynchronize(stream));
    GOOD(cuStreamDestroy_v2(stream));
    return address;
}

void pools_end(void)
{
    for (int device = 0; device < 2; device++) {
        if (pools[device] != NULL) {
            GOOD(cuMemPoolDestroy(pools[device]));
            pools[device] = NULL;
        }
    }
}
