/* The name of a file of this library in another process. */
#ifndef SOFT_CUDA_IPC_H
#define SOFT_CUDA_IPC_H

#include "soft.h"

#define IPC_MARK 0x61647563 /* "cuda" */

struct ipc_name {
    uint32_t mark;
    int32_t process, fd;
    uint64_t inode, bytes, offset, id;
};

bool ipc_name(int fd, size_t bytes, unsigned long long id, struct ipc_name *name);
/* The file as a handle of this type, a fabric handle or a descriptor, which is written to `shareable`. */
CUresult ipc_export(int fd, size_t bytes, CUmemAllocationHandleType type, void *shareable);
int ipc_open(const struct ipc_name *name); /* a descriptor, or -1: it is gone */

#endif
