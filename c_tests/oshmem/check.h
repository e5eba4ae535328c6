//! What the OpenSHMEM checks share: failing loudly, data of which every byte can be verified, and proof of the library.
#ifndef RUCP_OSHMEM_CHECK_H
#define RUCP_OSHMEM_CHECK_H

#include "../pattern.h"

#include <shmem.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, pes;

/** Says what was wrong on which PE and ends the whole job with a non-zero status. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...)
{
    char what[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    fprintf(stderr, "FAILED on PE %d: %s\n", me, what);
    fflush(NULL);
    shmem_global_exit(1);
    exit(1);
}

#define CHECK(condition, ...)      \
    do {                           \
        if (!(condition)) {        \
            fail(__VA_ARGS__);     \
        }                          \
    } while (0)

/** Fails, naming the first wrong byte, unless `buffer` holds the message called `seed`. */
static inline void verify(const void *buffer, size_t length, unsigned seed, const char *what)
{
    size_t i = first_wrong(buffer, length, seed);

    CHECK(i == length, "%s: byte %zu of %zu is 0x%02x, should be 0x%02x", what, i, length,
          ((const unsigned char *)buffer)[i], pattern(i, seed));
}

/** Fails unless the only libucp of the process is the one that EXPECT_LIBUCP names. */
static inline void verify_libucp(void)
{
    const char *expected = getenv("EXPECT_LIBUCP");
    char line[4096], *resolved;
    FILE *maps;
    int found = 0;

    if (expected == NULL) {
        return;
    }
    resolved = realpath(expected, NULL);
    maps = fopen("/proc/self/maps", "r");
    CHECK(resolved != NULL && maps != NULL, "no %s", expected);
    while (fgets(line, sizeof(line), maps) != NULL) {
        char *path = strchr(line, '/');

        if (path == NULL || strstr(path, "libucp") == NULL) {
            continue;
        }
        path[strcspn(path, "\n")] = '\0';
        CHECK(strcmp(path, resolved) == 0, "%s is mapped, should be %s", path, resolved);
        found = 1;
    }
    CHECK(found, "no libucp is mapped");
    fclose(maps);
    free(resolved);
}

/** Ends one part of a program: all PEs are through, and PE 0 says so. */
static inline void passed(const char *part)
{
    shmem_barrier_all();
    if (me == 0) {
        printf("ok  %s\n", part);
        fflush(stdout);
    }
}

static inline void start(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    verify_libucp();
}

static inline void *symmetric(size_t length)
{
    void *memory = shmem_malloc(length);

    CHECK(memory != NULL, "no symmetric memory for %zu bytes", length);
    return memory;
}

#endif
