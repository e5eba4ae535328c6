/*
 * Descriptors of device memory for other devices. In place of a dma-buf it is one of the memory's file, whose position
 * is where the memory begins: no process reads or writes by it. It keeps the memory, as a dma-buf does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "soft.h"

/* A descriptor of its own position. */
static int reopened(int fd, off_t position)
{
    char path[64];
    int other;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    other = open(path, O_RDWR | O_CLOEXEC);
    if (other >= 0 && lseek(other, position, SEEK_SET) < 0) {
        close(other);
        other = -1;
    }
    return other;
}

/* Whole pages of one allocation. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,
                                       unsigned long long flags)
{
    CALL(cuMemGetHandleForAddressRange)
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct range *range;

    if (!settings.dmabuf)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (handle == NULL || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || bytes == 0 ||
        pointer % PAGE != 0 || bytes % PAGE != 0)
        return result;
    if (fault_value(FAULT_EXPORT_REFUSED) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range != NULL && range_is_device(range) && range->kind != RANGE_IPC &&
        bytes <= range->start + range->room - pointer) {
        off_t position = range->memory->offset + (off_t)(range->offset + (pointer - range->start));
        int fd = reopened(range->memory->fd, position);

        if (fd >= 0)
            *(int *)handle = fd;
        result = fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* What adapters have written is there: the call is counted. */
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope)
{
    CALL_CURRENT(cuFlushGPUDirectRDMAWrites, current)
    (void)current;
    return target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                   (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                    scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}
