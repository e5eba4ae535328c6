//! One rank kills itself in the middle of traffic; the caller checks what is left of the job.
//!
//! usage: kill [ROUNDS]: rank 1 dies by SIGKILL in round ROUNDS (20), with sends, receives and puts of the others in
//! flight. The last line on standard output is "killing rank 1": without it nothing was tested.
//!
//! A survivor whose call fails says so and ends at once, without MPI_Finalize or MPI_Abort. Open MPI's own ends of a
//! job with an error send a message to mpirun, and mpirun of Open MPI 4.1 sometimes crashes on one that comes while it
//! ends the job itself.

#include "mapped_ucp.h"

#include <signal.h>
#include <unistd.h>

enum { SIZES = 4, WINDOW = 4, LARGEST = 1 << 20 };

static const int sizes[SIZES] = {8, 5000, 100000, LARGEST};

/** Ends a survivor whose call returned the error `status`. */
static void end_on_error(int status)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;

    if (status != MPI_SUCCESS) {
        MPI_Error_string(status, text, &length);
        fprintf(stderr, "rank %d ends: %s\n", world_rank, text);
        fflush(NULL);
        _exit(1);
    }
}

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
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    end_on_error(MPI_Win_lock_all(0, win));
    for (int round = 0;; round++) {
        for (int i = 0; i < SIZES * WINDOW; i++) {
            int count = sizes[i % SIZES];

            end_on_error(MPI_Irecv(in + (size_t)i * LARGEST, count, MPI_BYTE, left, i, MPI_COMM_WORLD,
                                   &requests[2 * i]));
            end_on_error(MPI_Isend(out, count, MPI_BYTE, right, i, MPI_COMM_WORLD, &requests[2 * i + 1]));
        }
        end_on_error(MPI_Put(out, LARGEST, MPI_BYTE, right, 0, LARGEST, MPI_BYTE, win));
        if (world_rank == 1 && round == rounds) {
            printf("killing rank 1\n");
            fflush(stdout);
            raise(SIGKILL);
        }
        end_on_error(MPI_Waitall(2 * SIZES * WINDOW, requests, MPI_STATUSES_IGNORE));
        end_on_error(MPI_Win_flush_all(win));
        for (int i = 0; i < SIZES * WINDOW; i++) {
            verify(in + (size_t)i * LARGEST, (size_t)sizes[i % SIZES], 1, "traffic before the kill");
        }
        CHECK(round < rounds + 1000, "rank 1 was not missed in 1000 rounds");
    }
}
