//! What the MPI checks share: failing loudly, and data of which every byte can be verified.
#ifndef RUCP_MPI_CHECK_H
#define RUCP_MPI_CHECK_H

#include "../pattern.h"

#include <mpi.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;

/** Says what was wrong on which rank and ends the whole job with a non-zero status. */
__attribute__((format(printf, 1, 2), noreturn)) static inline void fail(const char *format, ...)
{
    char what[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    /* In one piece: other ranks may be failing as well. */
    fprintf(stderr, "FAILED on rank %d: %s\n", world_rank, what);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
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

static inline void *allocate(size_t length)
{
    void *memory = malloc(length ? length : 1);

    CHECK(memory != NULL, "no memory for %zu bytes", length);
    return memory;
}

/** Ends one part of a program: all ranks are through, and rank 0 says so. */
static inline void passed(const char *part)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        printf("ok  %s\n", part);
        fflush(stdout);
    }
}

static inline void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
}

#endif
