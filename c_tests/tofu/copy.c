/*
 * Payload, from one process to another or within one. Where memory can be reached directly the last bytes of a transfer
 * are written last, in one store if they are aligned and with release, so that a thread of the target that loads them
 * with acquire sees the rest as well.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tofu.h"

enum { SMALL = 64 };

#define PIECE(type, to, from) \
    __atomic_store_n((type *)(to), __atomic_load_n((const type *)(from), __ATOMIC_RELAXED), __ATOMIC_RELAXED)

/* The largest power of two up to 8 that `length` and both addresses allow. */
static size_t piece(uintptr_t to, uintptr_t from, size_t length)
{
    size_t largest = length >= 8 ? 8 : length >= 4 ? 4 : length >= 2 ? 2 : 1;

    while ((to | from) % largest != 0)
        largest /= 2;
    return largest;
}

static void copy_pieces(char *to, const char *from, size_t length)
{
    while (length > 0) {
        size_t step = piece((uintptr_t)to, (uintptr_t)from, length);

        switch (step) {
        case 8: PIECE(uint64_t, to, from); break;
        case 4: PIECE(uint32_t, to, from); break;
        case 2: PIECE(uint16_t, to, from); break;
        default: PIECE(uint8_t, to, from); break;
        }
        to += step, from += step, length -= step;
    }
}

/* How many bytes at the end can be written at once. */
static size_t last_piece(uintptr_t to, size_t length)
{
    size_t last = length >= 8 ? 8 : length >= 4 ? 4 : length >= 2 ? 2 : 1;

    while ((to + length) % last != 0)
        last /= 2;
    return last;
}

static void copy_last(void *to, const void *from, size_t length)
{
    union {
        uint64_t eight;
        uint32_t four;
        uint16_t two;
        uint8_t one;
    } value;

    memcpy(&value, from, length);
    /* Release: partner of the acquire with which a program polls on memory that a put or a get fills. */
    switch (length) {
    case 8: __atomic_store_n((uint64_t *)to, value.eight, __ATOMIC_RELEASE); break;
    case 4: __atomic_store_n((uint32_t *)to, value.four, __ATOMIC_RELEASE); break;
    case 2: __atomic_store_n((uint16_t *)to, value.two, __ATOMIC_RELEASE); break;
    default: __atomic_store_n((uint8_t *)to, value.one, __ATOMIC_RELEASE); break;
    }
}

static void copy_here(char *to, const char *from, size_t length)
{
    size_t last = length == 0 ? 0 : last_piece((uintptr_t)to, length), rest = length - last;

    if (length == 0)
        return;
    if (rest <= SMALL)
        copy_pieces(to, from, rest);
    else
        memmove(to, from, rest);
    copy_last(to + rest, from + rest, last);
}

static enum copy_result why(const void *local, size_t length)
{
    if (errno == ESRCH || errno == EPERM)
        return COPY_GONE; /* a killed process loses its memory before its liveness mutex is marked */
    return stag_mapped(local, length) ? COPY_REMOTE : COPY_LOCAL;
}

static pid_t pid_of(const struct region *region)
{
    return atomic_load_explicit(&wire->processes[region->process].pid, memory_order_relaxed);
}

/* A system call for the memory of a process, and the same by its file in /proc, where QEMU emulates another processor
 * and lacks the call. */
typedef ssize_t call_function(pid_t, const struct iovec *, unsigned long, const struct iovec *, unsigned long,
                              unsigned long);
typedef ssize_t file_function(int, const struct iovec *, int, off_t);

static ssize_t across(pid_t pid, const struct iovec *local, int parts, const struct iovec *remote, call_function *call,
                      file_function *by_file)
{
    ssize_t done = call(pid, local, parts, remote, 1, 0);
    char name[64];
    int fd;

    if (done >= 0 || errno != ENOSYS)
        return done;
    snprintf(name, sizeof(name), "/proc/%d/mem", (int)pid);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        errno = ESRCH;
        return -1;
    }
    done = by_file(fd, local, parts, (off_t)(uintptr_t)remote->iov_base);
    close(fd);
    return done;
}

enum copy_result copy_to(const struct region *to, const void *from, size_t length)
{
    size_t last = length == 0 ? 0 : last_piece(to->address, length);
    struct iovec remote = {(void *)to->address, length};
    struct iovec local[2] = {{(void *)from, length - last}, {(char *)from + length - last, last}};
    int parts = length == last ? 1 : 2;

    if (to->here != NULL) {
        copy_here(to->here, from, length);
        return COPIED;
    }
    if (length == 0 || across(pid_of(to), local + 2 - parts, parts, &remote, process_vm_writev, pwritev) ==
                           (ssize_t)length)
        return COPIED;
    return why(from, length);
}

enum copy_result copy_from(const struct region *from, void *to, size_t length)
{
    struct iovec remote = {(void *)from->address, length}, local = {to, length};

    if (from->here != NULL) {
        copy_here(to, from->here, length);
        return COPIED;
    }
    if (length == 0 || across(pid_of(from), &local, 1, &remote, process_vm_readv, preadv) == (ssize_t)length)
        return COPIED;
    return why(to, length);
}
