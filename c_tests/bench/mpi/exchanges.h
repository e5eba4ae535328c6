//! What the MPI benchmarks repeat: messages, windows of messages, one-sided accesses, copies, collectives.
#ifndef BENCH_MPI_EXCHANGES_H
#define BENCH_MPI_EXCHANGES_H

#include "osu.h"

enum { MAX_WINDOW = 64 };

/** MPI_Send and MPI_Recv there and back. */
static inline void ping_pong(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        if (table->first) {
            MPI_Send(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD);
        }
        MPI_Recv(table->in, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!table->first) {
            MPI_Send(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD);
        }
    }
}

/** `count` outstanding messages, then one acknowledgement; with `both` in both directions. */
static inline void window_of(struct table *table, size_t size, long rounds, int count, int both)
{
    MPI_Request requests[2 * MAX_WINDOW];

    for (long round = 0; round < rounds; round++) {
        int posted = 0;

        for (int i = 0; i < count && (both || !table->first); i++) {
            MPI_Irecv(table->in, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, &requests[posted++]);
        }
        for (int i = 0; i < count && (both || table->first); i++) {
            MPI_Isend(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, &requests[posted++]);
        }
        MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
        if (table->first) {
            MPI_Recv(table->in, 1, MPI_CHAR, table->peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(table->out, 1, MPI_CHAR, table->peer, 2, MPI_COMM_WORLD);
        }
    }
}

/** Opens the memory for `put`, `get` and `fetch_and_op`: `table->max` bytes of every rank, which MPI allocates. */
static inline void open_memory(struct table *table)
{
    void *base;

    MPI_Win_allocate((MPI_Aint)table->max, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &table->memory);
    memset(base, 0, table->max);
    MPI_Win_lock_all(0, table->memory);
}

static inline void close_memory(struct table *table)
{
    MPI_Win_unlock_all(table->memory);
    MPI_Win_free(&table->memory);
}

/** The ranks of the first half access the others' memory, with a flush each; the others wait in a barrier. */
static inline void put(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds && table->first; i++) {
        MPI_Put(table->out, (int)size, MPI_CHAR, table->peer, 0, (int)size, MPI_CHAR, table->memory);
        MPI_Win_flush(table->peer, table->memory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline void get(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds && table->first; i++) {
        MPI_Get(table->in, (int)size, MPI_CHAR, table->peer, 0, (int)size, MPI_CHAR, table->memory);
        MPI_Win_flush(table->peer, table->memory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static inline void fetch_and_op(struct table *table, size_t size, long rounds)
{
    (void)size; /* of one long */
    for (long i = 0; i < rounds && table->first; i++) {
        MPI_Fetch_and_op(table->out, table->in, MPI_LONG, table->peer, 0, MPI_SUM, table->memory);
        MPI_Win_flush(table->peer, table->memory);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/** No MPI: what a copy takes inside of a process, while the ranks of the second half wait in a barrier. */
static inline void copy(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds && table->first; i++) {
        memcpy(table->in, table->out, size);
        __asm__ volatile("" ::: "memory"); /* each copy is needed */
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/** MPI_Allreduce, the sum of floats. */
static inline void reduce(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Allreduce(table->out, table->in, (int)(size / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

/** MPI_Alltoall of so many bytes from each rank to each. */
static inline void all_to_all(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        MPI_Alltoall(table->out, (int)size, MPI_CHAR, table->in, (int)size, MPI_CHAR, MPI_COMM_WORLD);
    }
}

#endif
