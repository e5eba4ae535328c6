//! One rank kills itself in the middle of traffic; the caller checks what is left of the job.
//!
//! usage: kill [ROUNDS]: rank 1 dies by SIGKILL in round ROUNDS (20), with sends, receives and puts of the others in
//! flight. The last line on standard output is "killing rank 1": without it nothing was tested.

#include "mapped_ucp.h"

#include <signal.h>

enum { SIZES = 4, WINDOW = 4, LARGEST = 1 << 20 };

static const int sizes[SIZES] = {8, 5000, 100000, LARGEST};

int main(int argc, char **argv)
{
    int rounds, left, right;
    MPI_Request requests[2 * SIZES * WINDOW];
    char *out, *in, *base;
    MPI_Win win;

    start(&argc, &argv);
    CHECK(world_size >= 2, "needs two ranks or more");
    rounds = argc > 1 ? atoi(argv[1]) : 20;
    left = (world_rank + world_size - 1) % world_size;
    right = (world_rank + 1) % world_size;
    out = allocate(LARGEST);
    in = allocate((size_t)LARGEST * SIZES * WINDOW);
    fill(out, LARGEST, 1);
    report_mapped_ucp();
    MPI_Win_allocate(LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_lock_all(0, win);
    for (int round = 0;; round++) {
        for (int i = 0; i < SIZES * WINDOW; i++) {
            MPI_Irecv(in + (size_t)i * LARGEST, sizes[i % SIZES], MPI_BYTE, left, i, MPI_COMM_WORLD, &requests[2 * i]);
            MPI_Isend(out, sizes[i % SIZES], MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
        }
        MPI_Put(out, LARGEST, MPI_BYTE, right, 0, LARGEST, MPI_BYTE, win);
        if (world_rank == 1 && round == rounds) {
            printf("killing rank 1\n");
            fflush(stdout);
            raise(SIGKILL);
        }
        MPI_Waitall(2 * SIZES * WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Win_flush_all(win);
        for (int i = 0; i < SIZES * WINDOW; i++) {
            verify(in + (size_t)i * LARGEST, (size_t)sizes[i % SIZES], 1, "traffic before the kill");
        }
        CHECK(round < rounds + 1000, "rank 1 was not missed in 1000 rounds");
    }
}
