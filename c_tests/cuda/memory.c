/* Bytes of a device: a file in memory, mapped where only this library finds it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "soft.h"

/* A file's name carries what an importer has to know. */
#define FILE_NAME "soft-cuda.%d.%d"

static struct memory *memories;
static unsigned long long ids;
static size_t used[MAX_DEVICES];

int memory_file(CUdevice device, size_t bytes, int handle_types)
{
    char name[64];
    int fd;

    snprintf(name, sizeof(name), FILE_NAME, device, handle_types);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool memory_file_parse(int fd, CUdevice *device, int *handle_types)
{
    char path[64], name[128] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof(name) - 1) > 0 &&
           sscanf(name, "/memfd:" FILE_NAME, device, handle_types) == 2 && device_valid(*device);
}

static struct memory *add(struct memory one)
{
    struct memory *memory;
    char *second = mmap(NULL, one.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, one.fd, one.offset);

    if (second == MAP_FAILED)
        return NULL;
    memory         = malloc(sizeof(*memory));
    *memory        = one;
    memory->second = second;
    memory->refs   = 1;
    pthread_mutex_lock(&lock);
    memory->id   = ++ids;
    memory->next = memories;
    memories     = memory;
    pthread_mutex_unlock(&lock);
    return memory;
}

static bool take(CUdevice device, size_t bytes)
{
    bool fits;

    pthread_mutex_lock(&lock);
    fits = bytes <= settings.memory && used[device] <= settings.memory - bytes;
    if (fits)
        used[device] += bytes;
    pthread_mutex_unlock(&lock);
    return fits;
}

struct memory *memory_make(CUdevice device, size_t bytes, int handle_types, CUresult *result)
{
    struct memory one = {.owns_fd = true, .bytes = bytes, .device = device, .handle_types = handle_types}, *memory;

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (fault_counts_down(FAULT_ALLOC_NTH) || !take(device, bytes))
        return NULL;
    one.fd = memory_file(device, bytes, handle_types);
    memory = one.fd >= 0 ? add(one) : NULL;
    if (memory != NULL)
        *result = CUDA_SUCCESS;
    return memory;
}

struct memory *memory_import(int fd, off_t offset, size_t bytes, bool owns_fd)
{
    struct memory one = {.fd = fd, .owns_fd = owns_fd, .offset = offset, .bytes = bytes, .imported = true};

    return memory_file_parse(fd, &one.device, &one.handle_types) ? add(one) : NULL;
}

void memory_hold_locked(struct memory *memory)
{
    memory->refs++;
}

void memory_drop_locked(struct memory *memory)
{
    struct memory **at = &memories;

    if (--memory->refs > 0)
        return;
    while (*at != memory)
        at = &(*at)->next;
    *at = memory->next;
    if (!memory->imported)
        used[memory->device] -= memory->bytes;
    munmap(memory->second, memory->bytes);
    if (memory->owns_fd)
        close(memory->fd);
    free(memory);
}

void memory_drop(struct memory *memory)
{
    pthread_mutex_lock(&lock);
    memory_drop_locked(memory);
    pthread_mutex_unlock(&lock);
}

bool memory_alive_locked(const struct memory *memory)
{
    for (const struct memory *one = memories; one != NULL; one = one->next)
        if (one == memory)
            return true;
    return false;
}

size_t memory_used(CUdevice device)
{
    size_t bytes;

    pthread_mutex_lock(&lock);
    bytes = used[device];
    pthread_mutex_unlock(&lock);
    return bytes;
}
