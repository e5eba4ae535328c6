/*
 * Memory of another device by its descriptor. In place of a dma-buf there is the file of the software GPUs' memory,
 * whose position is where the memory begins (c_tests/cuda/dmabuf.c). It is mapped as long as it is registered.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hca.h"

static bool is_supported(void)
{
    const char *set = getenv("SOFT_HCA_DMABUF");

    return set == NULL || strcmp(set, "n") != 0;
}

static bool is_of_gpu(int fd)
{
    static const char expected[] = "/memfd:soft-cuda.";
    char path[64], name[128] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof(name) - 1) > 0 && strncmp(name, expected, sizeof(expected) - 1) == 0;
}

/* The memory from `offset` of the descriptor on. MAP_FAILED: it is none, or has not so many bytes. */
static void *map(int fd, uint64_t offset, size_t length)
{
    off_t begin = lseek(fd, 0, SEEK_CUR);
    struct stat file;

    if (!is_of_gpu(fd) || begin < 0 || fstat(fd, &file) != 0 || length == 0 ||
        (uint64_t)begin + offset + length > (uint64_t)file.st_size) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, begin + (off_t)offset);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
    int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct soft_mr *soft;
    void *mapped;

    access &= ~IBV_ACCESS_OPTIONAL_RANGE;
    if (!is_supported() || (access & ~known) != 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (__atomic_load_n(&wire->faults.dmabuf_refused, __ATOMIC_RELAXED) != 0) {
        errno = ENOMEM;
        return NULL;
    }
    mapped = map(fd, offset, length);
    if (mapped == MAP_FAILED)
        return NULL;
    soft = mr_make(pd, mapped, length, iova, (unsigned)access);
    if (soft == NULL) {
        munmap(mapped, length);
        return NULL;
    }
    soft->mapped = mapped;
    __atomic_fetch_add(&wire->faults.dmabufs, 1, __ATOMIC_RELAXED);
    return &soft->mr;
}
