//! Time from MPI_Init to the end of MPI_Finalize, with a message to a neighbour in between; every rank reports its own.
#include "../../mpi/check.h"
#include "../../mpi/mapped_ucp.h"

#include <time.h>

static double milliseconds(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

int main(int argc, char **argv)
{
    double begin = milliseconds(), ready, work, end;
    int in = 0;

    start(&argc, &argv);
    ready = milliseconds();
    MPI_Sendrecv(&world_rank, 1, MPI_INT, (world_rank + 1) % world_size, 1, &in, 1, MPI_INT,
                 (world_rank + world_size - 1) % world_size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(in == (world_rank + world_size - 1) % world_size, "wrong message");
    work = milliseconds();
    report_mapped_ucp(); /* is not counted */
    if (world_rank == 0) {
        printf("# rucp's own MPI Init to Finalize Test\n"
               "# Rank   Init (ms)   First message (ms)   Finalize (ms)   Total (ms)\n");
        fflush(stdout);
    }
    end = milliseconds();
    MPI_Finalize();
    end = milliseconds() - end;
    /* In one write: all ranks write at once. */
    printf("%-6d %12.3f %18.3f %15.3f %12.3f\n", world_rank, ready - begin, work - ready, end, work - begin + end);
    return 0;
}
