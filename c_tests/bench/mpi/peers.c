//! Everything that the table of `scripts/bench --only peers` compares, in one run: MPI programs start in half a second,
//! and the ways are many. With two ranks: latency, windows, message rate, put, get and fetch-add, and a plain copy
//! beside them; with any number of ranks: allreduce and alltoall. Lines `NAME SIZE VALUE UNIT`.
//!
//! usage: peers [quick]
#include "exchanges.h"

enum { RATE_BYTES = 8, LARGE = 256 << 10 };

static const size_t message_sizes[] = {8,        64,       256,       1 << 10, 4 << 10,
                                       16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
static const size_t collective_sizes[] = {8, 1 << 10, 64 << 10};

static int quick;

/** Windows of 64 messages, of 16 from 256 KiB on. */
static int window_size(size_t size)
{
    return size >= LARGE ? MAX_WINDOW / 4 : MAX_WINDOW;
}

static void window(struct table *table, size_t size, long rounds)
{
    window_of(table, size, rounds, window_size(size), 0);
}

static void figure(const char *name, size_t size, double value, const char *unit)
{
    if (world_rank == 0) {
        printf("%s %zu %.5g %s\n", name, size, value, unit);
        fflush(stdout);
    }
}

/** In the quick form every third size is enough. */
static int number_of(size_t sizes)
{
    return (int)(quick ? (sizes + 2) / 3 : sizes);
}

static void measure_pairs(struct table *table)
{
    const size_t *sizes = message_sizes;
    int count = number_of(sizeof(message_sizes) / sizeof(*message_sizes));

    for (int i = 0; i < count; i++) {
        figure("latency", sizes[i], seconds_per_round(table, ping_pong, sizes[i]) / 2 * 1e6, "us");
    }
    for (int i = 1; i < count; i++) { /* of 8 bytes: the message rate */
        double bytes = (double)sizes[i] * window_size(sizes[i]);

        figure("window", sizes[i], bytes / seconds_per_round(table, window, sizes[i]) / 1e6, "MB/s");
    }
    figure("rate", RATE_BYTES, MAX_WINDOW / seconds_per_round(table, window, RATE_BYTES) / 1e6, "M/s");
    for (int i = 0; i < count; i++) {
        figure("memcpy", sizes[i], seconds_per_round(table, copy, sizes[i]) * 1e6, "us");
    }
    open_memory(table);
    for (int i = 0; i < count; i++) {
        figure("put", sizes[i], seconds_per_round(table, put, sizes[i]) * 1e6, "us");
    }
    for (int i = 0; i < count; i++) {
        figure("get", sizes[i], seconds_per_round(table, get, sizes[i]) * 1e6, "us");
    }
    figure("fetch_add", sizeof(long), seconds_per_round(table, fetch_and_op, sizeof(long)) * 1e6, "us");
    close_memory(table);
}

static void measure_collectives(struct table *table)
{
    static const struct {
        const char *name;
        exchange_fn exchange;
    } collectives[] = {{"allreduce", reduce}, {"alltoall", all_to_all}};
    char name[32];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s_of_%d", collectives[i].name, world_size);
        for (int k = 0; k < number_of(sizeof(collective_sizes) / sizeof(*collective_sizes)); k++) {
            size_t size = collective_sizes[k];

            figure(name, size, seconds_per_round(table, collectives[i].exchange, size) * 1e6, "us");
        }
    }
}

int main(int argc, char **argv)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    struct table table;
    int length;

    start(&argc, &argv);
    quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    MPI_Get_library_version(version, &length);
    if (world_rank == 0) {
        printf("# mpi: %.*s\n", (int)strcspn(version, "\n"), version);
    }
    table = open_table(1, argv, "Table of Peers", "");
    table.limit = quick ? 0.02 : 0.3;
    if (world_size == 2) {
        measure_pairs(&table);
    }
    measure_collectives(&table);
    return close_table(&table);
}
