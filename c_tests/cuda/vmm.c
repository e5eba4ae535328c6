/* Virtual memory: reservations of addresses, memory without an address, and the mapping of one into the other. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc.h"

static bool is_whole(size_t bytes)
{
    return bytes != 0 && bytes % GRANULARITY == 0;
}

/* The memory of a handle, with one reference more; NULL: no handle. */
static struct memory *take(CUmemGenericAllocationHandle handle)
{
    struct memory *memory = (struct memory *)(uintptr_t)handle;

    pthread_mutex_lock(&lock);
    if (memory != NULL && memory_alive_locked(memory))
        memory_hold_locked(memory);
    else
        memory = NULL;
    pthread_mutex_unlock(&lock);
    return memory;
}

static int types_possible(void)
{
    return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (settings.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0);
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_valid(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if ((prop->requestedHandleTypes & ~types_possible()) != 0 || prop->allocFlags.gpuDirectRDMACapable != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    CALL(cuMemGetAllocationGranularity)
    (void)option;
    if (bytes == NULL || prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
    CALL(cuMemCreate)
    CUresult result = check_prop(prop);

    if (handle == NULL || flags != 0 || !is_whole(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *handle = (uintptr_t)memory_make(prop->location.id, bytes, (int)prop->requestedHandleTypes, &result);
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CALL(cuMemRelease)
    struct memory *memory = take(handle);

    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    memory_drop(memory);
    memory_drop(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags)
{
    CALL(cuMemAddressReserve)
    struct range range = {.kind = RANGE_RESERVED, .bytes = bytes, .room = bytes};

    (void)hint; /* only that */
    if (pointer == NULL || flags != 0 || !is_whole(bytes) || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    range.start = range_space_locked(bytes, alignment > GRANULARITY ? alignment : GRANULARITY);
    if (range.start != 0)
        range_add_locked(range);
    pthread_mutex_unlock(&lock);
    *pointer = range.start;
    return range.start != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    CALL(cuMemAddressFree)
    struct range *range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    range = range_reserved_locked(pointer);
    if (range != NULL && range->start == pointer && range->bytes == bytes && !range_overlaps_locked(pointer, bytes)) {
        range_remove_locked(range);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    CALL(cuMemMap)
    struct memory *memory = take(handle);
    struct range range = {.kind = RANGE_VMM, .start = pointer, .bytes = bytes, .room = bytes, .memory = memory};
    struct range *reserved;
    bool good;

    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    range.device = memory->device;
    pthread_mutex_lock(&lock);
    reserved = range_reserved_locked(pointer);
    /* The documentation allows no offset but 0. */
    good = flags == 0 && offset == 0 && is_whole(bytes) && bytes <= memory->bytes && pointer % GRANULARITY == 0 &&
           reserved != NULL && bytes <= reserved->start + reserved->bytes - pointer &&
           !range_overlaps_locked(pointer, bytes);
    if (good)
        range_add_locked(range);
    else
        memory_drop_locked(memory);
    pthread_mutex_unlock(&lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether whole mappings fill these bytes. */
static bool filled_locked(uintptr_t pointer, size_t bytes)
{
    while (bytes > 0) {
        struct range *range = range_find_locked(pointer);

        if (range == NULL || range->kind != RANGE_VMM || range->start != pointer || range->bytes > bytes)
            return false;
        pointer += range->bytes;
        bytes -= range->bytes;
    }
    return true;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CALL(cuMemUnmap)
    uintptr_t at = pointer, end = pointer + bytes;
    bool good;

    for (CUdevice d = 0; d < settings.devices; d++)
        streams_synchronize(d);
    pthread_mutex_lock(&lock);
    good = bytes != 0 && filled_locked(pointer, bytes);
    while (good && at < end) {
        struct range *range = range_find_locked(at);

        at += range->bytes;
        memory_drop_locked(range->memory);
        range_remove_locked(range);
    }
    pthread_mutex_unlock(&lock);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool access_valid(const CUmemAccessDesc *access, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(access[i].location.id))
            return false;
    return access != NULL && count > 0;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    CALL(cuMemSetAccess)
    uintptr_t at = pointer, end = pointer + bytes;
    CUresult result = CUDA_SUCCESS;

    if (!access_valid(access, count))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    if (!filled_locked(pointer, bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && at < end) {
        struct range *range = range_find_locked(at);

        for (size_t i = 0; i < count; i++)
            if (access[i].location.id == range->device || settings.peers)
                range->access[access[i].location.id] = access[i].flags;
            else
                result = CUDA_ERROR_INVALID_DEVICE;
        at += range->bytes;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *pointer)
{
    CALL(cuMemRetainAllocationHandle)
    struct range *range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&lock);
    range = range_find_locked((uintptr_t)pointer);
    if (range != NULL && range->kind == RANGE_VMM) {
        memory_hold_locked(range->memory);
        *handle = (uintptr_t)range->memory;
        result  = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    CALL(cuMemGetAllocationPropertiesFromHandle)
    struct memory *memory = take(handle);

    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .requestedHandleTypes = (CUmemAllocationHandleType)memory->handle_types,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, memory->device}};
    memory_drop(memory);
    return CUDA_SUCCESS;
}

static CUresult export(void *shareable, const struct memory *memory, CUmemAllocationHandleType type)
{
    if (shareable == NULL || (type & memory->handle_types) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return ipc_export(memory->fd, memory->bytes, type, shareable);
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    CALL(cuMemExportToShareableHandle)
    struct memory *memory = take(handle);
    CUresult result;

    if (memory == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = flags == 0 ? export(shareable, memory, type) : CUDA_ERROR_INVALID_VALUE;
    memory_drop(memory);
    return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    CALL(cuMemImportFromShareableHandle)
    struct memory *memory = NULL;
    struct ipc_name name;
    struct stat stat;
    int fd = -1;

    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_value(FAULT_IPC_REFUSED) != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        /* The value of the descriptor is passed in the place of the address. It stays the caller's. */
        fd = fcntl((int)(uintptr_t)shareable, F_DUPFD_CLOEXEC, 0);
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC && settings.fabric) {
        memcpy(&name, shareable, sizeof(name));
        fd = ipc_open(&name);
    }
    if (fd >= 0 && fstat(fd, &stat) == 0 && is_whole((size_t)stat.st_size))
        memory = memory_import(fd, 0, (size_t)stat.st_size, true);
    if (memory == NULL && fd >= 0)
        close(fd);
    *handle = (uintptr_t)memory;
    return memory != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
