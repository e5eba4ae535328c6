//! Shared by the MPI checks: start, failures that end the job, and data whose every byte can be verified.
#ifndef RUCP_MPI_CHECK_H
#define RUCP_MPI_CHECK_H

#include "../verify.h"

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank, world_size;

void check_report(const char *failure)
{
    fprintf(stderr, "FAILED on rank %d: %s\n", world_rank, failure);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static inline void *allocate(size_t length)
{
    void *memory = malloc(length ? length : 1);

    CHECK(memory != NULL, "no memory for %zu bytes", length);
    return memory;
}

/** Ends one part of a program: waits for all ranks, and rank 0 prints its name. */
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
