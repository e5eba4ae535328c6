/*
 * Memory of another process: a legacy handle names the process and its descriptor of the memory's file. The file's
 * inode says whether the descriptor is still that file's.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc.h"

_Static_assert(sizeof(struct ipc_name) <= CU_IPC_HANDLE_SIZE, "a handle holds it");

bool ipc_name(int fd, size_t bytes, unsigned long long id, struct ipc_name *name)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0)
        return false;
    *name = (struct ipc_name){.mark = IPC_MARK, .process = getpid(), .fd = fd, .inode = stat.st_ino,
                              .bytes = bytes, .id = id};
    return true;
}

CUresult ipc_export(int file, size_t bytes, CUmemAllocationHandleType type, void *shareable)
{
    struct ipc_name name;
    int fd;

    if (fault_value(FAULT_EXPORT_REFUSED) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
        if (!ipc_name(file, bytes, 0, &name))
            return CUDA_ERROR_UNKNOWN;
        memset(shareable, 0, sizeof(CUmemFabricHandle));
        memcpy(shareable, &name, sizeof(name));
        return CUDA_SUCCESS;
    }
    fd = fcntl(file, F_DUPFD_CLOEXEC, 0);
    memcpy(shareable, &fd, sizeof(fd));
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

int ipc_open(const struct ipc_name *name)
{
    struct stat stat;
    char path[64];
    int fd;

    if (name->mark != IPC_MARK)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)name->process, name->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &stat) != 0 || stat.st_ino != name->inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    CALL_CURRENT(cuIpcGetMemHandle, current)
    struct ipc_name name;
    struct range *range;
    bool good;

    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    good  = range != NULL && range->kind == RANGE_DEVICE && ipc_name(range->memory->fd, range->bytes, range->id, &name);
    pthread_mutex_unlock(&lock);
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &name, sizeof(name));
    return CUDA_SUCCESS;
}

/* The address of memory that is open already; `refused`: in another context of the same device. */
static bool opened_before(ino_t inode, CUcontext current, CUdeviceptr *pointer, bool *refused)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range    = range_of_inode_locked(inode);
    *refused = range != NULL && range->context != current && range->context->device == current->device;
    if (range != NULL && !*refused) {
        range->opened++;
        *pointer = range->start;
    }
    pthread_mutex_unlock(&lock);
    return range != NULL;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    CALL_CURRENT(cuIpcOpenMemHandle_v2, current)
    struct range range = {.kind = RANGE_IPC, .context = current, .opened = 1};
    struct ipc_name name;
    size_t room;
    bool refused;
    int fd;

    memcpy(&name, &handle, sizeof(name));
    if (pointer == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || name.mark != IPC_MARK)
        return CUDA_ERROR_INVALID_VALUE;
    if (name.process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fault_value(FAULT_IPC_REFUSED) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    usleep((useconds_t)fault_value(FAULT_OPEN_US));
    if (opened_before(name.inode, current, pointer, &refused))
        return refused ? CUDA_ERROR_ALREADY_MAPPED : CUDA_SUCCESS;
    fd = ipc_open(&name);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED; /* the process is gone, or the memory is */
    room         = (name.bytes + PAGE - 1) / PAGE * PAGE;
    range.memory = memory_import(fd, 0, room, true);
    if (range.memory == NULL) {
        close(fd);
        return CUDA_ERROR_MAP_FAILED;
    }
    if (range.memory->device != current->device && !settings.peers) {
        memory_drop(range.memory);
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    }
    range.device = range.memory->device;
    range.bytes  = name.bytes;
    range.room   = room;
    range.inode  = name.inode;
    pthread_mutex_lock(&lock);
    range.start = range_space_locked(room, GRANULARITY);
    range_add_locked(range);
    pthread_mutex_unlock(&lock);
    *pointer = range.start;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CALL_CURRENT(cuIpcCloseMemHandle, current)
    struct range *range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    streams_synchronize(current->device);
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range != NULL && range->kind == RANGE_IPC && range->start == pointer) {
        if (--range->opened == 0) {
            memory_drop_locked(range->memory);
            range_remove_locked(range);
        }
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}
