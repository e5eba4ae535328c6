//! Latency of MPI_Allreduce (sum of floats) by size.
#include "exchanges.h"

int main(int argc, char **argv)
{
    struct table table;

    start(&argc, &argv);
    table = open_table(argc, argv, "Allreduce Latency Test", "Size      Avg Latency(us)");
    for (size_t size = table.min < 4 ? 4 : table.min; size <= table.max && size <= 1 << 20; size *= 2) {
        row(size, seconds_per_round(&table, reduce, size) * 1e6);
    }
    return close_table(&table);
}
