//! Ping-pong between neighbouring ranks, verified and then timed: latency and bandwidth, 1 B to 4 MiB, printed as the
//! OSU benchmarks do.
//!
//! usage: pingpong [--quick] [--max BYTES]
//! Ranks 2i and 2i+1 form a pair; all pairs run at once and rank 0 prints the mean over the pairs.

#include "mapped_ucp.h"

enum { WINDOW = 64, TAG = 1, ACK_TAG = 2 };

struct effort {
    int small, medium, large; /* iterations up to 8 KiB, up to 256 KiB, beyond */
};

static const struct effort latency_full = {10000, 1000, 100}, latency_quick = {20, 10, 4};
static const struct effort bandwidth_full = {200, 50, 10}, bandwidth_quick = {2, 1, 1};

static int iterations(const struct effort *effort, size_t size)
{
    return size <= 8192 ? effort->small : size <= 262144 ? effort->medium : effort->large;
}

/** Sends a message there and back, blocking and non-blocking, and checks every byte of it on both sides. */
static void verify_size(int first, int peer, char *out, char *in, size_t size)
{
    for (unsigned round = 0; round < 4; round++) {
        unsigned seed = (unsigned)size * 8 + round * 2;
        MPI_Request request;
        MPI_Status status;
        int count;

        memset(in, 0, size);
        fill(out, size, seed + (unsigned)first);
        if (round % 2 == 0 && first) {
            MPI_Send(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
        } else if (round % 2 == 0) {
            MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
            MPI_Send(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Isend(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &request);
            MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == (int)size, "received %d bytes, %zu were sent", count, size);
        verify(in, size, seed + (unsigned)!first, "ping-pong");
    }
}

static double time_latency(int first, int peer, char *out, char *in, size_t size, int count)
{
    double begin = 0;

    for (int i = -count / 10 - 2; i < count; i++) {
        if (i == 0) {
            begin = MPI_Wtime();
        }
        if (first) {
            MPI_Send(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
            MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begin) / count / 2 * 1e6;
}

static double time_bandwidth(int first, int peer, char *out, char *in, size_t size, int count)
{
    MPI_Request requests[WINDOW];
    double begin = 0;
    char ack = 0;

    for (int i = -1; i < count; i++) {
        if (i == 0) {
            begin = MPI_Wtime();
        }
        for (int slot = 0; slot < WINDOW; slot++) {
            if (first) {
                MPI_Isend(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[slot]);
            } else {
                MPI_Irecv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[slot]);
            }
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (first) {
            MPI_Recv(&ack, 1, MPI_CHAR, peer, ACK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(&ack, 1, MPI_CHAR, peer, ACK_TAG, MPI_COMM_WORLD);
        }
    }
    return (double)size * WINDOW * count / (MPI_Wtime() - begin) / 1e6;
}

typedef double (*timer_fn)(int, int, char *, char *, size_t, int);

static void table(const char *unit, timer_fn timer, const struct effort *effort, char *out, char *in, size_t max)
{
    int first = world_rank % 2 == 0, peer = world_rank ^ 1;

    if (world_rank == 0) {
        printf("# Size  %s\n", unit);
    }
    for (size_t size = 1; size <= max; size *= 2) {
        double mine, sum;

        verify_size(first, peer, out, in, size);
        MPI_Barrier(MPI_COMM_WORLD);
        mine = timer(first, peer, out, in, size, iterations(effort, size));
        MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (world_rank == 0) {
            printf("%-10zu%15.2f\n", size, sum / world_size);
            fflush(stdout);
        }
    }
}

int main(int argc, char **argv)
{
    size_t max = 4 << 20;
    int quick = 0;
    char *out, *in;

    start(&argc, &argv);
    CHECK(world_size % 2 == 0, "needs an even number of ranks");
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = 1;
        } else if (strcmp(argv[i], "--max") == 0 && i + 1 < argc) {
            max = strtoull(argv[++i], NULL, 0);
        } else {
            check_report("usage: pingpong [--quick] [--max BYTES]");
        }
    }
    out = allocate(max);
    in = allocate(max);
    report_mapped_ucp();
    table("Latency (us)", time_latency, quick ? &latency_quick : &latency_full, out, in, max);
    table("Bandwidth (MB/s)", time_bandwidth, quick ? &bandwidth_quick : &bandwidth_full, out, in, max);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
