/* Cases of one process's memory. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

enum { BYTES = 300000 };

void nothing(int socket)
{
    (void)socket;
}

static void read_byte(void *at)
{
    volatile char *byte = at;

    (void)*byte;
}

static void write_byte(void *at)
{
    *(volatile char *)at = 1;
}

static void *address(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

/* The processor has no access to a device's memory, and has to managed memory and the host's. */
void processor_active(int socket)
{
    CUdeviceptr device, managed;
    void *host;

    (void)socket;
    begin(0);
    device = device_bytes(BYTES);
    GOOD(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    GOOD(cuMemAllocHost_v2(&host, BYTES));
    EQUAL(child_signal(read_byte, address(device)), SIGSEGV);
    EQUAL(child_signal(write_byte, address(device + BYTES - 1)), SIGSEGV);
    EQUAL(child_signal(write_byte, address(managed)), 0);
    EQUAL(child_signal(write_byte, host), 0);
    GOOD(cuMemFree_v2(device));
    EQUAL(child_signal(read_byte, address(device)), SIGSEGV);
    GOOD(cuMemFree_v2(managed));
    EQUAL(child_signal(read_byte, address(managed)), SIGSEGV);
    GOOD(cuMemFreeHost(host));
}

enum { KINDS = 6 };

static void make_all(CUdeviceptr made[KINDS])
{
    void *host, *registered = malloc(BYTES);
    CUcontext second;

    made[0] = device_bytes(BYTES);
    GOOD(cuMemAllocManaged(&made[1], BYTES, CU_MEM_ATTACH_GLOBAL));
    GOOD(cuMemAllocHost_v2(&host, BYTES));
    made[2] = (uintptr_t)host;
    GOOD(cuMemHostRegister_v2(registered, BYTES, CU_MEMHOSTREGISTER_PORTABLE));
    made[3] = (uintptr_t)registered;
    made[4] = (uintptr_t)malloc(BYTES); /* pageable */
    GOOD(cuDevicePrimaryCtxRetain(&second, 1));
    GOOD(cuCtxPushCurrent_v2(second));
    made[5] = device_bytes(BYTES);
    GOOD(cuCtxPopCurrent_v2(NULL));
}

void copies_active(int socket)
{
    CUdeviceptr made[KINDS];

    (void)socket;
    begin(0);
    make_all(made);
    for (unsigned from = 0; from < KINDS; from++)
        for (unsigned to = 0; to < KINDS; to++) {
            unsigned seed = from * KINDS + to;

            if (from == to)
                continue;
            fill(made[from], BYTES, seed);
            GOOD(cuMemcpy(made[to], made[from], BYTES));
            CHECK(holds(made[to], BYTES, seed), "from %u to %u", from, to);
            fill(made[from], BYTES, seed + 100);
            GOOD(synchronized(made[to] + 7, made[from], BYTES - 7));
            CHECK(holds(made[to] + 7, BYTES - 7, seed + 100), "from %u to %u", from, to);
        }
    GOOD(cuMemsetD8_v2(made[0], 0, BYTES));
    CHECK(!holds(made[0], BYTES, 1));
    EQUAL(cuMemcpy(made[0], made[1], BYTES + 1), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuMemcpyDtoD_v2(made[0] + (1 << 20), made[1], 8), CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemHostUnregister((void *)(uintptr_t)made[3]));
    EQUAL(cuMemHostUnregister((void *)(uintptr_t)made[3]), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void batch_active(int socket)
{
    CUdeviceptr from[3], to[3];
    size_t sizes[3] = {10, 100000, 1}, index = 0, failed = 9;
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream stream;

    (void)socket;
    begin(0);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 3; i++) {
        from[i] = device_bytes(sizes[i]);
        to[i]   = device_bytes(sizes[i]);
        fill(from[i], sizes[i], i);
    }
    GOOD(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &index, 1, &failed, stream));
    GOOD(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 3; i++)
        CHECK(holds(to[i], sizes[i], i));
    sizes[1] = 1 << 30;
    EQUAL(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &index, 1, &failed, stream), CUDA_ERROR_INVALID_VALUE);
    EQUAL(failed, 1);
    EQUAL(cuMemcpyBatchAsync(to, from, sizes, 3, &attributes, &index, 1, &failed, NULL), CUDA_ERROR_INVALID_VALUE);
}

static int number_of(CUdeviceptr pointer, CUpointer_attribute attribute)
{
    int value = -99;

    GOOD(cuPointerGetAttribute(&value, attribute, pointer));
    return value;
}

void attributes_active(int socket)
{
    CUcontext context = begin(0), found;
    CUdeviceptr device = device_bytes(BYTES), again, managed, base = 0;
    CUpointer_attribute wanted[3] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    CUmem_range_attribute prefetched = CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
    int type, ordinal, location, stack_variable, set = 1;
    bool is_managed, flag;
    void *data[3] = {&type, &is_managed, &ordinal};
    unsigned long long id = buffer_id(device);
    size_t bytes = 0;

    (void)socket;
    GOOD(cuMemAllocManaged(&managed, BYTES, CU_MEM_ATTACH_GLOBAL));
    EQUAL(number_of(device, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
    GOOD(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_CONTEXT, device));
    CHECK(found == context);
    GOOD(cuPointerGetAttributes(3, wanted, data, managed + 5));
    CHECK(type == CU_MEMORYTYPE_DEVICE && is_managed && ordinal == 0);
    GOOD(cuPointerGetAttributes(3, wanted, data, (uintptr_t)&stack_variable));
    CHECK(type == 0 && !is_managed && ordinal == CU_DEVICE_INVALID);
    EQUAL(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&stack_variable),
          CUDA_ERROR_INVALID_VALUE);
    GOOD(cuMemGetAddressRange_v2(&base, &bytes, device + 100));
    CHECK(base == device && bytes == BYTES);
    EQUAL(cuMemGetAddressRange_v2(&base, &bytes, (uintptr_t)&stack_variable), CUDA_ERROR_NOT_FOUND);
    GOOD(cuPointerSetAttribute(&set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    GOOD(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    CHECK(flag);
    GOOD(cuPointerGetAttribute(&flag, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, device));
    CHECK(flag);
    GOOD(cuMemRangeGetAttribute(&location, sizeof(location), prefetched, managed, 8));
    EQUAL(location, CU_DEVICE_INVALID);
    EQUAL(cuMemRangeGetAttribute(&location, sizeof(location), prefetched, device, 8), CUDA_ERROR_INVALID_VALUE);
    /* The address is the same again, the allocation is not. */
    GOOD(cuMemFree_v2(device));
    EQUAL(cuMemFree_v2(device), CUDA_ERROR_INVALID_VALUE);
    again = device_bytes(BYTES);
    CHECK(again == device && buffer_id(again) != id);
}

void limits_active(int socket)
{
    CUdeviceptr pointer, other_pointer;

    (void)socket;
    begin(0);
    GOOD(cuMemAlloc_v2(&pointer, 6 << 20));
    EQUAL(cuMemAlloc_v2(&other_pointer, 6 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    GOOD(cuMemFree_v2(pointer));
    GOOD(cuMemAlloc_v2(&pointer, 6 << 20));
    soft_cuda_fault("alloc_nth=2");
    GOOD(cuMemAlloc_v2(&other_pointer, 100));
    EQUAL(cuMemAlloc_v2(&other_pointer, 100), CUDA_ERROR_OUT_OF_MEMORY);
    GOOD(cuMemAlloc_v2(&other_pointer, 100));
    EQUAL(soft_cuda_count("cuMemAlloc_v2"), 6);
    EQUAL(soft_cuda_fault("no_such_fault=1") != 0, 1);
}
