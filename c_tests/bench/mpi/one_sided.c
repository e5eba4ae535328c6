//! Latency of MPI_Put, MPI_Get and MPI_Fetch_and_op with a flush, on a window that MPI allocates: by the program's
//! name, `put_latency`, `get_latency` or `fop_latency`.
#include "osu.h"

static MPI_Win window;
static char operation; /* its first letter */

static void once(struct table *table, size_t size)
{
    switch (operation) {
    case 'p':
        MPI_Put(table->out, (int)size, MPI_CHAR, table->peer, 0, (int)size, MPI_CHAR, window);
        break;
    case 'g':
        MPI_Get(table->in, (int)size, MPI_CHAR, table->peer, 0, (int)size, MPI_CHAR, window);
        break;
    default:
        MPI_Fetch_and_op(table->out, table->in, MPI_LONG, table->peer, 0, MPI_SUM, window);
    }
}

static void access_remote(struct table *table, size_t size, long rounds)
{
    for (long i = 0; i < rounds && table->first; i++) {
        once(table, size);
        MPI_Win_flush(table->peer, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/');
    struct table table;
    void *base;

    name = name ? name + 1 : argv[0];
    operation = *(strncmp(name, "osu_", 4) == 0 ? name + 4 : name);
    start(&argc, &argv);
    table = open_table(argc, argv,
                       operation == 'p' ? "Put Latency Test"
                       : operation == 'g' ? "Get Latency Test"
                                          : "Fetch_and_op Latency Test",
                       "Size          Latency (us)");
    if (operation == 'f') {
        table.min = table.max = sizeof(long);
    }
    MPI_Win_allocate((MPI_Aint)table.max, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 0, table.max);
    MPI_Win_lock_all(0, window);
    for (size_t size = table.min; size <= table.max; size *= 2) {
        row(size, seconds_per_round(&table, access_remote, size) * 1e6);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    return close_table(&table);
}
