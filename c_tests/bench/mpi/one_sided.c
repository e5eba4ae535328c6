//! Latency of MPI_Put, MPI_Get and MPI_Fetch_and_op with a flush, on memory that MPI allocates: by the program's
//! name, `put_latency`, `get_latency` or `fop_latency`.
#include "exchanges.h"

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    exchange_fn operation;
    struct table table;

    name = name ? name + 1 : argv[0];
    name += strncmp(name, "osu_", 4) == 0 ? 4 : 0;
    operation = *name == 'p' ? put : *name == 'g' ? get : fetch_and_op;
    start(&argc, &argv);
    table = open_table(argc, argv,
                       operation == put ? "Put Latency Test"
                       : operation == get ? "Get Latency Test"
                                          : "Fetch_and_op Latency Test",
                       "Size          Latency (us)");
    if (operation == fetch_and_op) {
        table.min = table.max = sizeof(long);
    }
    open_memory(&table);
    for (size_t size = table.min; size <= table.max; size *= 2) {
        row(size, seconds_per_round(&table, operation, size) * 1e6);
    }
    close_memory(&table);
    return close_table(&table);
}
