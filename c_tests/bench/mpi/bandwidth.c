//! Bandwidth by size: windows of 64 messages, one acknowledgement each. As `bibw` both ranks send.
#include "osu.h"

enum { WINDOW = 64 };

static int both;

static void window(struct table *table, size_t size, long rounds)
{
    MPI_Request requests[2 * WINDOW];

    for (long round = 0; round < rounds; round++) {
        int count = 0;

        for (int i = 0; i < WINDOW && (both || !table->first); i++) {
            MPI_Irecv(table->in, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, &requests[count++]);
        }
        for (int i = 0; i < WINDOW && (both || table->first); i++) {
            MPI_Isend(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, &requests[count++]);
        }
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (table->first) {
            MPI_Recv(table->in, 1, MPI_CHAR, table->peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(table->out, 1, MPI_CHAR, table->peer, 2, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    struct table table;

    both = strstr(name ? name : argv[0], "bibw") != NULL;
    start(&argc, &argv);
    table = open_table(argc, argv, both ? "Bi-Directional Bandwidth Test" : "Bandwidth Test",
                       "Size      Bandwidth (MB/s)");
    for (size_t size = table.min; size <= table.max; size *= 2) {
        double bytes = (double)size * WINDOW * (both ? 2 : 1) * (world_size / 2);

        row(size, bytes / seconds_per_round(&table, window, size) / 1e6);
    }
    return close_table(&table);
}
