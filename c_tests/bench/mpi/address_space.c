//! Peak address space of a rank (VmPeak) beyond that before MPI_Init, once every rank has sent 640 KiB to
//! every other one; the largest of all ranks.
#include "../../mpi/check.h"
#include "../../mpi/mapped_ucp.h"

#include <stdio.h>

/** Peak address space of this process, KiB. */
static long peak_address_space(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long peak = -1;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "VmPeak: %ld kB", &peak);
    }
    if (file != NULL) {
        fclose(file);
    }
    return peak;
}

enum { MESSAGES = 160, WORDS = 1024 };

/**
 * This many messages of 4 KiB to every other rank, and as many from each: more than the initial resources of a pair
 * hold.
 */
static void exchange_with_all(void)
{
    static int out[WORDS], in[WORDS];

    for (int distance = 1; distance < world_size; distance++) {
        int to = (world_rank + distance) % world_size, from = (world_rank + world_size - distance) % world_size;

        for (int i = 0; i < MESSAGES; i++) {
            out[0] = world_rank * MESSAGES + i;
            MPI_Sendrecv(out, WORDS, MPI_INT, to, 1, in, WORDS, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(in[0] == from * MESSAGES + i, "wrong message");
        }
    }
}

int main(int argc, char **argv)
{
    long before = peak_address_space(), mine, largest = 0;

    start(&argc, &argv);
    exchange_with_all();
    mine = peak_address_space() - before;
    MPI_Reduce(&mine, &largest, 1, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    report_mapped_ucp();
    if (world_rank == 0) {
        printf("# rucp's own MPI Address Space Test\n# Ranks   Peak address space (MiB)\n%-6d %12.1f\n", world_size,
               (double)largest / 1024);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
