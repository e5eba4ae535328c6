//! Shared by the OpenSHMEM checks: start, failures that end the job, data whose every byte can be verified, and the
//! check that the expected library is used.
#ifndef RUCP_OSHMEM_CHECK_H
#define RUCP_OSHMEM_CHECK_H

#include "../verify.h"

#include <shmem.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int me, pes;

void check_report(const char *failure)
{
    fprintf(stderr, "FAILED on PE %d: %s\n", me, failure);
    fflush(NULL);
    shmem_global_exit(1);
    exit(1);
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

/** Ends one part of a program: waits for all PEs, and PE 0 prints its name. */
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
