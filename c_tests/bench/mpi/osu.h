//! Shared by the MPI benchmarks: the command line and the tables of the OSU micro-benchmarks, written anew.
//!
//! -m MIN:MAX sizes in bytes (powers of two), -i ITERATIONS for each size, instead of as many as 20 milliseconds allow.
#ifndef BENCH_MPI_OSU_H
#define BENCH_MPI_OSU_H

#include "../../mpi/check.h"
#include "../../mpi/mapped_ucp.h"

#include <unistd.h>

struct table {
    size_t min, max;
    long iterations; /* 0: as many as fit */
    double limit;    /* seconds after which a size gets no further batch; 0: it gets all of them */
    char *out, *in;
    MPI_Win memory; /* of one-sided accesses, where the program opens it */
    int first, peer; /* whether this rank begins, and its partner */
};

/** One exchange, repeated; every rank takes part. */
typedef void (*exchange_fn)(struct table *table, size_t size, long rounds);

static inline struct table open_table(int argc, char **argv, const char *title, const char *columns)
{
    struct table table = {.min = 1, .max = 4 << 20};
    int option;

    while ((option = getopt(argc, argv, "m:i:x:")) != -1) {
        if (option == 'm') {
            CHECK(sscanf(optarg, "%zu:%zu", &table.min, &table.max) == 2, "-m MIN:MAX");
        } else if (option == 'i') {
            table.iterations = atol(optarg);
        } else {
            CHECK(option == 'x', "usage: [-m MIN:MAX] [-i ITERATIONS]");
        }
    }
    CHECK(world_size % 2 == 0, "needs an even number of ranks");
    table.first = world_rank < world_size / 2;
    table.peer = (world_rank + world_size / 2) % world_size;
    table.out = allocate(table.max);
    table.in = allocate(table.max);
    memset(table.out, 1, table.max);
    memset(table.in, 0, table.max);
    report_mapped_ucp();
    if (world_rank == 0) {
        printf("# rucp's own MPI %s\n# %s\n", title, columns);
        fflush(stdout);
    }
    return table;
}

/** The median; sorts the values. */
static inline double median_of(double *values, int count)
{
    double swap;

    for (int i = 0; i < count; i++) {
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            swap = values[k], values[k] = values[k - 1], values[k - 1] = swap;
        }
    }
    return values[count / 2];
}

/**
 * Seconds of one round: the median of several batches, whose rounds rank 0 decides. Past the table's limit no further
 * batch is begun; if not even the first ones to find out are within it, the last of those counts.
 */
static inline double seconds_per_round(struct table *table, exchange_fn exchange, size_t size)
{
    enum { BATCHES = 7 };
    double values[BATCHES] = {0}, spent = 0, took;
    long rounds = table->limit > 0 ? 1 : 2;
    int count = 0, over = 0;

    for (int batch = -2; batch < BATCHES && !over; batch++) {
        MPI_Barrier(MPI_COMM_WORLD);
        took = MPI_Wtime();
        exchange(table, size, rounds);
        took = MPI_Wtime() - took;
        spent += took;
        over = table->limit > 0 && spent > table->limit;
        took /= (double)rounds;
        if (batch < 0) {
            rounds = table->iterations ? table->iterations / BATCHES + 1 : 2 + (long)(3e-3 / took);
            MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        }
        if (table->limit > 0) {
            MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        if (batch >= 0 || over) {
            values[count++] = took;
        }
    }
    return median_of(values, count);
}

static inline void row(size_t size, double value)
{
    if (world_rank == 0) {
        printf("%-10zu%18.3f\n", size, value);
        fflush(stdout);
    }
}

static inline int close_table(struct table *table)
{
    free(table->out);
    free(table->in);
    MPI_Finalize();
    return 0;
}

#endif
