//! Ping-pong latency of MPI_Send and MPI_Recv by size.
#include "exchanges.h"

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
