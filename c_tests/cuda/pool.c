/* Pools: one file of memory each, of which allocations are parts. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc.h"

static const size_t POOL_BYTES = 1UL << 36; /* of addresses in the file; it has no pages yet */

struct CUmemPoolHandle_st {
    int fd;
    CUdevice device;
    int handle_types;
    bool imported, fixed; /* fixed: the default pool of a device */
    off_t next;           /* the first byte of the file that no allocation has had */
    CUmemAccess_flags access[MAX_DEVICES];
    struct CUmemPoolHandle_st *following;
};

struct exported {
    uint32_t mark;
    uint64_t offset, bytes, room, inode;
};

static CUmemoryPool pools, ended, defaults[MAX_DEVICES];

static bool alive(CUmemoryPool pool)
{
    CUmemoryPool one;

    pthread_mutex_lock(&lock);
    for (one = pools; one != NULL && one != pool; one = one->following) {
    }
    pthread_mutex_unlock(&lock);
    return pool != NULL && one != NULL;
}

/* A pool that has ended and none of whose allocations is left: a new one gets its handle. NULL: there is none. */
static CUmemoryPool take_ended_locked(void)
{
    CUmemoryPool pool = NULL;

    for (CUmemoryPool *at = &ended; *at != NULL && pool == NULL; at = &(*at)->following)
        if (!range_is_of_pool_locked(*at)) {
            pool = *at;
            *at  = pool->following;
            memset(pool, 0, sizeof(*pool));
            break;
        }
    return pool;
}

static CUmemoryPool add(int fd, CUdevice device, int handle_types, bool imported)
{
    CUmemoryPool pool;

    pthread_mutex_lock(&lock);
    pool = take_ended_locked();
    pthread_mutex_unlock(&lock);
    if (pool == NULL)
        pool = calloc(1, sizeof(*pool));
    pool->fd           = fd;
    pool->device       = device;
    pool->handle_types = handle_types;
    pool->imported     = imported;
    if (!imported)
        pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    pthread_mutex_lock(&lock);
    pool->following = pools;
    pools           = pool;
    pthread_mutex_unlock(&lock);
    return pool;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    CALL(cuMemPoolCreate)
    int types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (settings.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0), fd;

    if (pool == NULL || props == NULL || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(props->location.id))
        return CUDA_ERROR_INVALID_VALUE;
    if ((props->handleTypes & ~types) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    fd = memory_file(props->location.id, POOL_BYTES, (int)props->handleTypes);
    if (fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = add(fd, props->location.id, (int)props->handleTypes, false);
    return CUDA_SUCCESS;
}

static CUresult default_of(CUmemoryPool *pool, CUdevice device)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    int fd;

    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&making);
    if (defaults[device] == NULL && (fd = memory_file(device, POOL_BYTES, 0)) >= 0) {
        defaults[device]        = add(fd, device, 0, false);
        defaults[device]->fixed = true;
    }
    *pool = defaults[device];
    pthread_mutex_unlock(&making);
    return *pool != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CALL(cuDeviceGetDefaultMemPool)
    return default_of(pool, device);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CALL(cuDeviceGetMemPool)
    return default_of(pool, device);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CALL(cuMemPoolDestroy)
    if (!alive(pool) || pool->fixed)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    for (CUmemoryPool *at = &pools; *at != NULL; at = &(*at)->following)
        if (*at == pool) {
            close(pool->fd); /* its allocations have descriptors of their own */
            *at             = pool->following;
            pool->following = ended;
            ended           = pool;
            break;
        }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    CALL(cuMemPoolSetAccess)
    if (!alive(pool) || access == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUdevice device = access[i].location.id;

        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_valid(device))
            return CUDA_ERROR_INVALID_VALUE;
        if (device != pool->device && !settings.peers)
            return CUDA_ERROR_INVALID_DEVICE;
        pool->access[device] = access[i].flags;
    }
    ranges_of_pool_allow(pool, pool->access);
    return CUDA_SUCCESS;
}

/* Maps a part of a pool's file. */
static CUresult map_part(CUmemoryPool pool, const struct exported *part, CUdeviceptr *pointer)
{
    struct range range = {.kind = RANGE_POOL, .bytes = part->bytes, .room = part->room, .device = pool->device,
                          .pool = pool};
    int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);

    range.memory = fd >= 0 ? memory_import(fd, (off_t)part->offset, part->room, true) : NULL;
    if (range.memory == NULL) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(range.access, pool->access, sizeof(range.access));
    pthread_mutex_lock(&lock);
    range.start = range_space_locked(part->room, part->room >= GRANULARITY ? GRANULARITY : PAGE);
    range_add_locked(range);
    pthread_mutex_unlock(&lock);
    *pointer = range.start;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUmemoryPool pool, size_t bytes, CUdeviceptr *pointer)
{
    struct exported part = {.bytes = bytes, .room = (bytes + PAGE - 1) / PAGE * PAGE};

    if (pointer == NULL || bytes == 0 || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_counts_down(FAULT_ALLOC_NTH) || part.room > settings.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    part.offset = (uint64_t)pool->next;
    pool->next += (off_t)part.room;
    pthread_mutex_unlock(&lock);
    return part.offset + part.room <= POOL_BYTES ? map_part(pool, &part, pointer) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CALL_CURRENT(cuMemAllocFromPoolAsync, current)
    if (stream_of(stream, current) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return alive(pool) ? allocate(pool, bytes, pointer) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    CALL_CURRENT(cuMemAllocAsync, current)
    CUmemoryPool pool;
    CUresult result = default_of(&pool, current->device);

    if (stream_of(stream, current) == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return result == CUDA_SUCCESS ? allocate(pool, bytes, pointer) : result;
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    CALL_CURRENT(cuMemFreeAsync, current)
    struct operation operation = {.kind = OP_FREE, .to = pointer};
    CUstream own = stream_of(stream, current);
    struct range *range;
    bool good;

    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    good  = range != NULL && range->kind == RANGE_POOL && range->start == pointer;
    pthread_mutex_unlock(&lock);
    if (own == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    stream_post(own, operation);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          unsigned long long flags)
{
    CALL(cuMemPoolExportToShareableHandle)

    if (shareable == NULL || flags != 0 || !alive(pool) || (pool->handle_types & type) == 0 || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    return ipc_export(pool->fd, 0, type, shareable);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    CALL(cuMemPoolImportFromShareableHandle)
    struct ipc_name name;
    CUdevice device;
    int fd = -1, types;

    if (pool == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (fault_value(FAULT_IPC_REFUSED) != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        fd = fcntl((int)(uintptr_t)shareable, F_DUPFD_CLOEXEC, 0);
    } else if (type == CU_MEM_HANDLE_TYPE_FABRIC && settings.fabric) {
        memcpy(&name, shareable, sizeof(name));
        fd = ipc_open(&name);
    }
    if (fd < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_file_parse(fd, &device, &types)) {
        close(fd);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pool = add(fd, device, types, true);
    return CUDA_SUCCESS;
}

static ino_t inode_of(int fd)
{
    struct stat stat;

    return fstat(fd, &stat) == 0 ? stat.st_ino : 0;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer)
{
    CALL(cuMemPoolExportPointer)
    struct exported part = {.mark = IPC_MARK};
    struct range *range;
    bool good;

    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    good  = range != NULL && range->kind == RANGE_POOL && range->pool->handle_types != 0 && !range->pool->imported;
    if (good) {
        part.offset = (uint64_t)range->memory->offset;
        part.bytes  = range->bytes;
        part.room   = range->room;
        part.inode  = inode_of(range->memory->fd);
    }
    pthread_mutex_unlock(&lock);
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    memset(data, 0, sizeof(*data));
    memcpy(data, &part, sizeof(part));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    CALL(cuMemPoolImportPointer)
    struct exported part;

    if (fault_value(FAULT_IPC_REFUSED) != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    memcpy(&part, data, sizeof(part));
    if (!alive(pool) || !pool->imported || part.mark != IPC_MARK)
        return CUDA_ERROR_INVALID_VALUE;
    if (part.inode != inode_of(pool->fd) && fault_value(FAULT_POOL_UNCHECKED) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return map_part(pool, &part, pointer);
}
