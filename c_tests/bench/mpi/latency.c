//! Ping-pong latency of MPI_Send and MPI_Recv by size.
#include "osu.h"

static void ping_pong(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        if (table->first) {
            MPI_Send(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD);
        }
        MPI_Recv(table->in, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!table->first) {
            MPI_Send(table->out, (int)size, MPI_CHAR, table->peer, 1, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    struct table table;

    start(&argc, &argv);
    table = open_table(argc, argv, "Latency Test", "Size          Latency (us)");
    for (size_t size = table.min; size <= table.max; size *= 2) {
        row(size, seconds_per_round(&table, ping_pong, size) / 2 * 1e6);
    }
    return close_table(&table);
}
