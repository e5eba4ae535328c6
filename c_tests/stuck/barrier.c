/* The last rank stops itself, and the others wait for it in a barrier. Each rank prints `rank NUMBER PID` before. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d %d\n", rank, (int)getpid());
    fflush(stdout);
    if (rank == ranks - 1) {
        raise(SIGSTOP);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
