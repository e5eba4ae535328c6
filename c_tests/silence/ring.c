/* Every rank sends to the next one and takes part in collective operations. Prints nothing. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int   rank, ranks;
    char *in = malloc(200000), *out = calloc(1, 200000);
    long  one = 1, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int length = 1; length <= 200000; length *= 50) {
        MPI_Sendrecv(out, length, MPI_CHAR, (rank + 1) % ranks, 1, in, length, MPI_CHAR, (rank + ranks - 1) % ranks, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    free(in);
    free(out);
    return sum != ranks;
}
