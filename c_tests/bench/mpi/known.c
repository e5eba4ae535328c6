//! Ping-pong of two ranks that many others have sent to: right after that, and after the others have sent nothing for
//! a while, in which all call the library from time to time. Lines `NAME RANKS VALUE us`.
//!
//! usage: known SECONDS (of rest)
#include "osu.h"

enum { ROUNDS = 50000, BATCHES = 5, NUDGES = 20, NUDGE_US = 100000, PONG = 1, END };

static char byte[8];

/** Every rank sends to each of the first two. */
static void meet_all(void)
{
    for (int to = 0; to < 2; to++) {
        for (int from = 0; from < world_size; from++) {
            if (world_rank == to && from != to) {
                MPI_Recv(byte, 1, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (world_rank == from && from != to) {
                MPI_Send(byte, 1, MPI_CHAR, to, 0, MPI_COMM_WORLD);
            }
        }
    }
}

static void ping_pong(const char *name)
{
    double best = 1e9;

    for (int i = 0; i < BATCHES; i++) {
        double took = MPI_Wtime();

        for (int k = 0; k < ROUNDS; k++) {
            if (world_rank == 0) {
                MPI_Send(byte, sizeof(byte), MPI_CHAR, 1, PONG, MPI_COMM_WORLD);
            }
            MPI_Recv(byte, sizeof(byte), MPI_CHAR, !world_rank, PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (world_rank == 1) {
                MPI_Send(byte, sizeof(byte), MPI_CHAR, 0, PONG, MPI_COMM_WORLD);
            }
        }
        took = (MPI_Wtime() - took) / ROUNDS / 2;
        best = took < best ? took : best;
    }
    if (world_rank == 0) {
        printf("%s %d %.3f us\n", name, world_size, best * 1e6);
        fflush(stdout);
    }
}

/** Calls the library from time to time, until the first rank says that it is over, or for some seconds. */
static void rest(double seconds)
{
    int is_over = 0;

    for (double until = MPI_Wtime() + seconds; !is_over && MPI_Wtime() < until; usleep(NUDGE_US)) {
        for (int i = 0; i < NUDGES && !is_over; i++) {
            MPI_Iprobe(0, END, MPI_COMM_WORLD, &is_over, MPI_STATUS_IGNORE);
        }
    }
}

int main(int argc, char **argv)
{
    double seconds = 0;

    start(&argc, &argv);
    CHECK(argc == 2 && (seconds = atof(argv[1])) > 0 && world_size >= 2, "usage: known SECONDS");
    report_mapped_ucp();
    meet_all();
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank < 2) {
        ping_pong("known");
        rest(seconds);
        ping_pong("rested");
        for (int to = 2; world_rank == 0 && to < world_size; to++) {
            MPI_Send(byte, 1, MPI_CHAR, to, END, MPI_COMM_WORLD);
        }
    } else {
        rest(1e9);
        MPI_Recv(byte, 1, MPI_CHAR, 0, END, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
