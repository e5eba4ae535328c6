//! Random access (GUPS): every thread of every rank updates random words of a table that is spread over all ranks.
//!
//! As in HPC Challenge a word is combined with a random number by exclusive or, with a bounded number of updates in
//! flight. Afterwards each rank computes, without the library, the expected values of its words. By atomics all are
//! right; by get and put two updates of a word at the same time may leave one of them, and one percent of the words may
//! be wrong.
#include "benchmark.h"
#include "figure.h"
#include "job.h"
#include "local.h"
#include "sequence.h"
#include "words.h"

#include <stdio.h>
#include <string.h>

static struct {
    struct fabric fabric;
    struct {
        _Alignas(512) uint64_t random; /* the last one */
    } at[MAX_THREADS];
} table;

static int end_of(int thread, uint64_t random)
{
    return worker_of(&table.fabric, thread) * job.size + owner(random);
}

/* Updates of a thread in flight: words, random numbers, requests, all in its local memory. */
static uint64_t *words_of(int thread)
{
    return (uint64_t *)(void *)local.of[thread];
}

static uint64_t *randoms_of(int thread)
{
    return words_of(thread) + options.look_ahead;
}

static ucs_status_ptr_t *requests_of(int thread)
{
    return (ucs_status_ptr_t *)(void *)(randoms_of(thread) + options.look_ahead);
}

/* ---- updates ---- */

static void complete_all(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        complete(&table.fabric, own_worker(&table.fabric, thread), requests_of(thread)[i]);
    }
}

static void flush(int thread)
{
    ucp_worker_h worker = own_worker(&table.fabric, thread);

    complete(&table.fabric, worker, ucp_worker_flush_nbx(worker, &plain));
}

static void draw(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        table.at[thread].random = next_random(table.at[thread].random);
        randoms_of(thread)[i] = table.at[thread].random;
    }
}

static void update_by_atomics(int thread, long rounds)
{
    ucp_request_param_t of_eight = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    for (long round = 0; round < rounds; round++) {
        draw(thread);
        for (int i = 0; i < options.look_ahead; i++) {
            uint64_t random = randoms_of(thread)[i];
            int end = end_of(thread, random);

            requests_of(thread)[i] = ucp_atomic_op_nbx(table.fabric.ep[end], UCP_ATOMIC_OP_XOR, &randoms_of(thread)[i],
                                                       1, address_of(random), table.fabric.rkey[end], &of_eight);
        }
        flush(thread);
        complete_all(thread);
    }
}

static void get_words(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        uint64_t random = randoms_of(thread)[i];
        int end = end_of(thread, random);

        requests_of(thread)[i] = ucp_get_nbx(table.fabric.ep[end], &words_of(thread)[i], 8, address_of(random),
                                             table.fabric.rkey[end], &plain);
    }
}

static void put_words(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        uint64_t random = randoms_of(thread)[i];
        int end = end_of(thread, random);

        words_of(thread)[i] ^= random;
        requests_of(thread)[i] = ucp_put_nbx(table.fabric.ep[end], &words_of(thread)[i], 8, address_of(random),
                                             table.fabric.rkey[end], &plain);
    }
}

static void update_by_get_and_put(int thread, long rounds)
{
    for (long round = 0; round < rounds; round++) {
        draw(thread);
        get_words(thread);
        complete_all(thread);
        put_words(thread);
        flush(thread);
        complete_all(thread);
    }
}

static void check_rounds(long rounds)
{
    check_words(rounds * options.look_ahead);
}

/* ---- */

static void open_table(double tolerated, int threads, int workers)
{
    memset(table.at, 0, sizeof(table.at));
    words = (struct words){.fabric = &table.fabric,
                           .count = options.table_bits ? UINT64_C(1) << options.table_bits : default_words(threads),
                           .tolerated = tolerated};
    for (int i = 0; i < threads; i++) {
        table.at[i].random = random_at(((uint64_t)job.rank * (uint64_t)threads + (uint64_t)i) * STREAM);
    }
    open_fabric(&table.fabric, threads, workers, EVERYONE, UCP_FEATURE_RMA | UCP_FEATURE_AMO64, words.count * 8);
    open_team(&table.fabric);
    open_local((size_t)options.look_ahead * (2 * sizeof(uint64_t) + sizeof(ucs_status_ptr_t)));
    open_words();
}

static void play(const char *name, task update, double tolerated, int threads, int workers)
{
    double updates = (double)options.look_ahead * threads * job.size; /* of a round */
    double most;

    open_table(tolerated, threads, workers);
    run_team(update, 1); /* connects */
    check_rounds(1);
    most = 4.0 * (double)words.count * job.size / updates; /* four updates of a word, as in HPC Challenge */
    updates /= measure(update, most < 1 ? 1 : (long)most, job.size, check_rounds).whole;
    print_row(name, &table.fabric, 0, updates / 1e6, "M/s");
    if (job.rank == 0) {
        printf("# of %llu words of each rank at most %.3g %% wrong after a repetition\n",
               (unsigned long long)words.count, words.worst * 100);
    }
    close_team();
    close_local();
    close_fabric(&table.fabric);
}

void gups_atomic(int threads, int workers)
{
    play("gups_atomic", update_by_atomics, 0, threads, workers);
}

void gups_put_get(int threads, int workers)
{
    play("gups_put_get", update_by_get_and_put, 0.01, threads, workers);
}
