//! Message rate of many threads: windows of puts with a flush each, or of gets, into or from the partner's memory.
//!
//! The first half of the ranks is active. Each message of a window has its own place, in the thread's own part.
#include "../pattern.h"
#include "benchmark.h"
#include "figure.h"
#include "job.h"
#include "local.h"

#include <stdio.h>
#include <string.h>

/* A thread's part of the memory; one message, if that is larger. */
enum { PART = 1 << 20 };

static struct {
    struct fabric fabric;
    size_t size;
    int window;
    size_t part; /* of a thread, of remote and of local memory; in the latter its requests follow */
} table;

static int is_active(void)
{
    return job.rank < job.size / 2;
}

static unsigned char *own_part(int thread)
{
    return table.fabric.own + (size_t)thread * table.part;
}

static ucs_status_ptr_t *requests_of(int thread)
{
    return (ucs_status_ptr_t *)(void *)(local.of[thread] + table.part);
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
        complete(&table.fabric, worker, requests_of(thread)[i]);
    }
}

/* ---- put: the source has the pattern, the target is cleared before and compared after ---- */

static void put_windows(int thread, long rounds)
{
    struct fabric *fabric = &table.fabric;
    ucp_worker_h worker = own_worker(fabric, thread);
    int end = worker_of(fabric, thread) * job.size + fabric->partner;
    uint64_t address = fabric->base[fabric->partner] + (uint64_t)thread * table.part;

    for (long round = 0; round < rounds && is_active(); round++) {
        for (int i = 0; i < table.window; i++) {
            size_t at = (size_t)i * table.size;

            requests_of(thread)[i] = ucp_put_nbx(fabric->ep[end], local.of[thread] + at, table.size, address + at,
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
    uint64_t address = fabric->base[fabric->partner] + (uint64_t)thread * table.part;

    for (long round = 0; round < rounds && is_active(); round++) {
        for (int i = 0; i < table.window; i++) {
            size_t at = (size_t)i * table.size;

            requests_of(thread)[i] = ucp_get_nbx(fabric->ep[end], local.of[thread] + at, table.size, address + at,
                                                 fabric->rkey[end], &plain);
        }
        complete_all(thread, worker);
    }
}

/* ---- data ---- */

/** Initial data: in the active ranks' local memory (put), or the others' remote memory (get). */
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
    table.part = rounded_up(options.largest > PART ? options.largest : PART);
    open_fabric(&table.fabric, threads, workers, PARTNER, UCP_FEATURE_RMA, (size_t)threads * table.part);
    open_team(&table.fabric);
    open_local(table.part + (size_t)options.window * sizeof(ucs_status_ptr_t));
}

static void play(const char *name, task windows, int gets, int threads, int workers)
{
    char rate[32], bandwidth[32];

    open_table(threads, workers);
    snprintf(rate, sizeof(rate), "%s_rate", name);
    snprintf(bandwidth, sizeof(bandwidth), "%s_bandwidth", name);
    for (table.size = options.smallest; table.size <= options.largest; table.size *= options.factor) {
        size_t fit = table.part / table.size;
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
    close_team();
    close_local();
    close_fabric(&table.fabric);
}

void put_rate(int threads, int workers)
{
    play("put", put_windows, 0, threads, workers);
}

void get_rate(int threads, int workers)
{
    play("get", get_windows, 1, threads, workers);
}
