/* Allocations: of devices, managed, of the host; and memory of the host that is registered. */
#include <sys/mman.h>

#include "soft.h"

static size_t rounded(size_t bytes)
{
    size_t unit = bytes >= GRANULARITY ? GRANULARITY : PAGE;

    return (bytes + unit - 1) / unit * unit;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CALL_CURRENT(cuMemGetInfo_v2, current)
    *total = settings.memory;
    *free  = settings.memory - memory_used(current->device);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    CALL_CURRENT(cuMemAlloc_v2, current)
    size_t room = rounded(bytes);
    struct memory *memory;
    struct range range = {.kind = RANGE_DEVICE, .bytes = bytes, .room = room, .device = current->device,
                          .context = current};
    CUresult result;

    if (pointer == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    memory = memory_make(current->device, room, 0, &result);
    if (memory == NULL)
        return result;
    pthread_mutex_lock(&lock);
    range.memory = memory;
    range.start  = range_space_locked(room, room >= GRANULARITY ? GRANULARITY : PAGE);
    if (range.start != 0)
        range_add_locked(range);
    else
        memory_drop_locked(memory);
    pthread_mutex_unlock(&lock);
    *pointer = range.start;
    return range.start != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_accessible(enum range_kind kind, CUcontext current, size_t bytes, void **pointer)
{
    struct range range = {.kind = kind, .bytes = bytes, .room = rounded(bytes), .device = current->device,
                          .context = current};

    if (pointer == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_counts_down(FAULT_ALLOC_NTH))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = mmap(NULL, range.room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*pointer == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.start = (uintptr_t)*pointer;
    pthread_mutex_lock(&lock);
    range_add_locked(range);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    CALL_CURRENT(cuMemAllocManaged, current)
    void *made;
    CUresult result;

    if (pointer == NULL || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    result = add_accessible(RANGE_MANAGED, current, bytes, &made);
    if (result == CUDA_SUCCESS)
        *pointer = (uintptr_t)made;
    return result;
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    CALL_CURRENT(cuMemAllocHost_v2, current)
    return add_accessible(RANGE_HOST, current, bytes, pointer);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    CALL_CURRENT(cuMemHostAlloc, current)
    (void)flags;
    return add_accessible(RANGE_HOST, current, bytes, pointer);
}

static bool ends(enum range_kind kind, bool host)
{
    return host ? kind == RANGE_HOST : kind == RANGE_DEVICE || kind == RANGE_MANAGED || kind == RANGE_POOL;
}

/* Ends an allocation after all that its device was asked to do. */
static CUresult end(uintptr_t pointer, bool host)
{
    struct range *range;
    CUdevice device = CU_DEVICE_INVALID;

    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range != NULL && range->start == pointer && ends(range->kind, host))
        device = range->device;
    pthread_mutex_unlock(&lock);
    if (device == CU_DEVICE_INVALID)
        return CUDA_ERROR_INVALID_VALUE;
    streams_synchronize(device);
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range == NULL || range->start != pointer) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (range->memory != NULL)
        memory_drop_locked(range->memory);
    else
        munmap((void *)pointer, range->room);
    range_remove_locked(range);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    CALL_CURRENT(cuMemFree_v2, current)
    return pointer == 0 ? CUDA_SUCCESS : end(pointer, false);
}

CUresult cuMemFreeHost(void *pointer)
{
    CALL_CURRENT(cuMemFreeHost, current)
    return end((uintptr_t)pointer, true);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    CALL_CURRENT(cuMemHostRegister_v2, current)
    struct range range = {.kind = RANGE_REGISTERED, .start = (uintptr_t)pointer, .bytes = bytes, .room = bytes,
                          .device = current->device, .context = current};
    CUresult result = CUDA_SUCCESS;

    (void)flags;
    if (pointer == NULL || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_counts_down(FAULT_ALLOC_NTH))
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    if (range_overlaps_locked(range.start, bytes))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else
        range_add_locked(range);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    CALL_CURRENT(cuMemHostUnregister, current)
    struct range *range;
    CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

    streams_synchronize(current->device);
    pthread_mutex_lock(&lock);
    range = range_find_locked((uintptr_t)pointer);
    if (range != NULL && range->kind == RANGE_REGISTERED && range->start == (uintptr_t)pointer) {
        range_remove_locked(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer, void *host, unsigned flags)
{
    CALL_CURRENT(cuMemHostGetDevicePointer_v2, current)
    struct range *range;

    pthread_mutex_lock(&lock);
    range = range_find_locked((uintptr_t)host);
    pthread_mutex_unlock(&lock);
    if (flags != 0 || range == NULL || range_is_device(range))
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = (uintptr_t)host;
    return CUDA_SUCCESS;
}
