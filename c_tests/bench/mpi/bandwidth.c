//! Bandwidth by size: windows of 64 messages, one acknowledgement each. As `bibw` both ranks send.
#include "exchanges.h"

enum { WINDOW = 64 };

static int both;

static void window(struct table *table, size_t size, long rounds)
{
    window_of(table, size, rounds, WINDOW, both);
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
