//! More ranks than cores: the cost of one step when some of the ranks that it needs do not run. A ring of messages,
//! allreduce, put, get and fetch-and-op with a flush at the next rank, and fetch-and-op of all ranks on one
//! counter. Lines `NAME RANKS VALUE us`.
//!
//! usage: crowd SECONDS (of each measurement, about)
#include "osu.h"

enum { BYTES = 8, BATCHES = 5 };

static MPI_Win window;
static double seconds;
static long out[BYTES / sizeof(long)], in[BYTES / sizeof(long)], *mine;

static int next(void)
{
    return (world_rank + 1) % world_size;
}

static void ring(void)
{
    int previous = (world_rank + world_size - 1) % world_size;

    if (world_rank == 0) {
        MPI_Send(out, BYTES, MPI_CHAR, next(), 0, MPI_COMM_WORLD);
        MPI_Recv(in, BYTES, MPI_CHAR, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, BYTES, MPI_CHAR, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, BYTES, MPI_CHAR, next(), 0, MPI_COMM_WORLD);
    }
}

static void allreduce(void)
{
    MPI_Allreduce(out, in, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
}

static void put(void)
{
    MPI_Put(out, BYTES, MPI_CHAR, next(), 0, BYTES, MPI_CHAR, window);
    MPI_Win_flush(next(), window);
}

static void get(void)
{
    MPI_Get(in, BYTES, MPI_CHAR, next(), 0, BYTES, MPI_CHAR, window);
    MPI_Win_flush(next(), window);
}

static void fetch_at(int rank)
{
    MPI_Fetch_and_op(out, in, MPI_LONG, rank, 0, MPI_SUM, window);
    MPI_Win_flush(rank, window);
}

static void fetch_and_op(void)
{
    fetch_at(next());
}

static void one_counter(void)
{
    fetch_at(0);
}

/** Seconds of one step: every rank does as many, and the last one counts. */
static double batch(void (*step)(void), long steps)
{
    double took;

    MPI_Barrier(MPI_COMM_WORLD);
    took = MPI_Wtime();
    for (long i = 0; i < steps; i++) {
        step();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    took = MPI_Wtime() - took;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took / (double)steps;
}

static void measure(const char *name, void (*step)(void))
{
    double values[BATCHES], least = seconds / BATCHES;
    long steps = 4;

    while (batch(step, steps) * (double)steps < least / 2) {
        steps *= 2;
    }
    for (int i = 0; i < BATCHES; i++) {
        values[i] = batch(step, steps);
    }
    if (world_rank == 0) {
        printf("%s %d %.3f us\n", name, world_size, median_of(values, BATCHES) * 1e6);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*step)(void);
    } steps[] = {
        {"ring", ring}, {"allreduce", allreduce},       {"put", put},
        {"get", get},   {"fetch_and_op", fetch_and_op}, {"one_counter", one_counter},
    };

    start(&argc, &argv);
    CHECK(argc == 2 && (seconds = atof(argv[1])) > 0, "usage: crowd SECONDS");
    report_mapped_ucp();
    MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
    *mine = 0;
    MPI_Win_lock_all(0, window);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        measure(steps[i].name, steps[i].step);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
