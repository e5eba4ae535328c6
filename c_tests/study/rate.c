//! Message rate of many threads: windows of puts with a flush each, or of gets, into or from the partner's memory.
//!
//! The first half of the ranks is active. Each message of a window has its own place, in the thread's own part.
#include "../pattern.h"
#include "benchmark.h"
#include "figure.h"
#include "job.h"
#include "local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread's part of the memory; one message, if that is larger. */
enum { PART = 1 << 20 };

static struct {
    struct fabric fabric;
    size_t size, stride;
    int window;
    ucs_status_ptr_t *requests[MAX_THREADS];
} table;

static int is_active(void)
{
    return job.rank < job.size / 2;
}

static unsigned char *own_part(int thread)
{
    return table.fabric.own + (size_t)thread * table.stride;
}

static size_t used(void)
{
    return (size_t)table.window * table.size;
}

static unsigned seed_of(int thread)
{
    return (unsigned)thread * 263u + (unsigned)table.window + (unsigned)__builtin_ctzl(table.size) * 7u;
}

static void complete_all(int thread, ucp_worker_h worker)
{
    for (int i = 0; i < table.window; i++) {
        complete(&table.fabric, worker, table.requests[thread][i]);
    }
}

/* ---- put: the source has the pattern, the target is cleared before and compared after ---- */

static void put_windows(int thread, long rounds)
{
    struct fabric *fabric = &table.fabric;
    ucp_worker_h worker = own_worker(fabric, thread);
    int end = worker_of(fabric, thread) * job.size + fabric->partner;
    uint64_t address = fabric->base[fabric->partner] + (uint64_t)thread * table.stride;

    for (long round = 0; round < rounds && is_active(); round++) {
        for (int i = 0; i < table.window; i++) {
            size_t at = (size_t)i * table.size;

            table.requests[thread][i] = ucp_put_nbx(fabric->ep[end], local.of[thread] + at, table.size, address + at,
                                                    fabric->rkey[end], &plain);
        }
        complete(fabric, worker, ucp_ep_flush_nbx(fabric->ep[end], &plain));
        complete_all(thread, worker);
    }
}

/* ---- get: the other way round ---- */

static void get_windows(int thread, long rounds)
{
    struct fabric *fabric = &table.fabric;
    ucp_worker_h worker = own_worker(fabric, thread);
    int end = worker_of(fabric, thread) * job.size + fabric->partner;
    uint64_t address = fabric->base[fabric->partner] + (uint64_t)thread * table.stride;

    for (long round = 0; round < rounds && is_active(); round++) {
        for (int i = 0; i < table.window; i++) {
            size_t at = (size_t)i * table.size;

            table.requests[thread][i] = ucp_get_nbx(fabric->ep[end], local.of[thread] + at, table.size, address + at,
                                                    fabric->rkey[end], &plain);
        }
        complete_all(thread, worker);
    }
}

/* ---- data ---- */

/** Who has the data at first: the active ranks' local memory (put), or the others' remote memory (get). */
static void prepare(int thread, long gets)
{
    unsigned char *source = gets ? own_part(thread) : local.of[thread];
    unsigned char *target = gets ? local.of[thread] : own_part(thread);

    if (is_active() == !gets) {
        fill(source, used(), seed_of(thread));
    } else {
        memset(target, 0, used());
    }
}

static void compare(int thread, long gets)
{
    const unsigned char *target = gets ? local.of[thread] : own_part(thread);
    size_t wrong;

    if (is_active() == !!gets) {
        wrong = first_wrong(target, used(), seed_of(thread));
        if (wrong < used()) {
            die("%s of %zu bytes, thread %d: byte %zu of the window is wrong", gets ? "get" : "put", table.size, thread,
                wrong);
        }
    }
}

/* ---- */

static void open_table(int threads, int workers)
{
    size_t part = options.largest > PART ? options.largest : PART;

    table.stride = rounded_up(part);
    open_fabric(&table.fabric, threads, workers, PARTNER, UCP_FEATURE_RMA, (size_t)threads * table.stride);
    open_team(&table.fabric);
    open_local(part);
    for (int i = 0; i < threads; i++) {
        table.requests[i] = calloc((size_t)options.window, sizeof(**table.requests));
        if (table.requests[i] == NULL) {
            die("no memory for %d requests", options.window);
        }
    }
}

static void close_table(void)
{
    for (int i = 0; i < table.fabric.threads; i++) {
        free(table.requests[i]);
    }
    close_team();
    close_local();
    close_fabric(&table.fabric);
}

static void play(const char *name, task windows, int gets, int threads, int workers)
{
    char rate[32], bandwidth[32];

    open_table(threads, workers);
    snprintf(rate, sizeof(rate), "%s_rate", name);
    snprintf(bandwidth, sizeof(bandwidth), "%s_bandwidth", name);
    for (table.size = options.smallest; table.size <= options.largest; table.size *= options.factor) {
        size_t fit = table.stride / table.size;
        double messages;

        table.window = fit < (size_t)options.window ? (int)fit : options.window;
        messages = (double)table.window * threads * job.size / 2;
        run_team(prepare, gets);
        run_team(windows, 1);
        run_team(compare, gets);
        run_team(prepare, gets);
        messages /= measure(windows, 1L << 40, job.size / 2, NULL).whole;
        run_team(compare, gets);
        print_row(rate, &table.fabric, table.size, messages / 1e6, "M/s");
        print_row(bandwidth, &table.fabric, table.size, messages * (double)table.size / 1e6, "MB/s");
    }
    close_table();
}

void put_rate(int threads, int workers)
{
    play("put", put_windows, 0, threads, workers);
}

void get_rate(int threads, int workers)
{
    play("get", get_windows, 1, threads, workers);
}
