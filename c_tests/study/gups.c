//! Random access (GUPS): every thread of every rank updates random words of a table that is spread over all ranks.
//!
//! As in HPC Challenge a word is combined with a random number by exclusive or, with a bounded number of updates under
//! way. Afterwards each rank works out, without the library, what its words must be. By atomics all are right; by get and
//! put two updates of a word at the same time may leave one of them, and one percent of the words may be wrong.
#include "benchmark.h"
#include "figure.h"
#include "job.h"
#include "local.h"
#include "sequence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers between the beginnings of two threads: more than one of them ever uses. */
#define STREAM (UINT64_C(1) << 36)

static struct {
    struct fabric fabric;
    uint64_t words;    /* of each rank, a power of two */
    uint64_t checked;  /* updates of every thread that have been checked */
    double tolerated;  /* part of the words that may be wrong */
    double worst;      /* part of the words that was wrong in one repetition */
    struct {
        _Alignas(512) uint64_t random; /* the last one */
        long wrong;                    /* words of this thread's stretch */
        ucs_status_ptr_t requests[1024];
        uint64_t randoms[1024];
    } at[MAX_THREADS];
} table;

static int owner(uint64_t random)
{
    return (int)(random / table.words % (uint64_t)job.size);
}

static uint64_t address_of(uint64_t random)
{
    return table.fabric.base[owner(random)] + random % table.words * 8;
}

static int end_of(int thread, uint64_t random)
{
    return worker_of(&table.fabric, thread) * job.size + owner(random);
}

static uint64_t *words_of(int thread)
{
    return (uint64_t *)(void *)local.of[thread];
}

/* ---- updates ---- */

static void complete_all(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        complete(&table.fabric, own_worker(&table.fabric, thread), table.at[thread].requests[i]);
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
        table.at[thread].randoms[i] = table.at[thread].random;
    }
}

static void update_by_atomics(int thread, long rounds)
{
    ucp_request_param_t of_eight = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    for (long round = 0; round < rounds; round++) {
        draw(thread);
        for (int i = 0; i < options.look_ahead; i++) {
            uint64_t random = table.at[thread].randoms[i];
            int end = end_of(thread, random);

            table.at[thread].requests[i] =
                ucp_atomic_op_nbx(table.fabric.ep[end], UCP_ATOMIC_OP_XOR, &table.at[thread].randoms[i], 1,
                                  address_of(random), table.fabric.rkey[end], &of_eight);
        }
        flush(thread);
        complete_all(thread);
    }
}

static void get_words(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        uint64_t random = table.at[thread].randoms[i];
        int end = end_of(thread, random);

        table.at[thread].requests[i] = ucp_get_nbx(table.fabric.ep[end], &words_of(thread)[i], 8, address_of(random),
                                                   table.fabric.rkey[end], &plain);
    }
}

static void put_words(int thread)
{
    for (int i = 0; i < options.look_ahead; i++) {
        uint64_t random = table.at[thread].randoms[i];
        int end = end_of(thread, random);

        words_of(thread)[i] ^= random;
        table.at[thread].requests[i] = ucp_put_nbx(table.fabric.ep[end], &words_of(thread)[i], 8, address_of(random),
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

/* ---- checking: while no updates are under way ---- */

static uint64_t *own_words(void)
{
    return (uint64_t *)(void *)table.fabric.own;
}

/** Thread t of T has the t-th stretch of the words. */
static uint64_t stretch_of(int thread, uint64_t *end)
{
    uint64_t length = table.words / (uint64_t)table.fabric.threads + 1;
    uint64_t begin = length * (uint64_t)thread;

    *end = begin + length < table.words ? begin + length : table.words;
    return begin;
}

static void fill_words(int thread, long unused)
{
    uint64_t end;

    (void)unused;
    for (uint64_t i = stretch_of(thread, &end); i < end; i++) {
        own_words()[i] = i;
    }
}

/** Of some threads' numbers, takes back those that went into this rank's words. */
static void take_back(int thread, long updates)
{
    uint64_t streams = (uint64_t)job.size * (uint64_t)table.fabric.threads;

    for (uint64_t stream = (uint64_t)thread; stream < streams; stream += (uint64_t)table.fabric.threads) {
        uint64_t random = random_at(stream * STREAM + table.checked);

        for (long i = 0; i < updates; i++) {
            random = next_random(random);
            if (owner(random) == job.rank) {
                /* Relaxed: among threads of this rank only; the end of the task orders what follows. */
                __atomic_fetch_xor(&own_words()[random % table.words], random, __ATOMIC_RELAXED);
            }
        }
    }
}

static void count_wrong(int thread, long unused)
{
    uint64_t end;

    (void)unused;
    table.at[thread].wrong = 0;
    for (uint64_t i = stretch_of(thread, &end); i < end; i++) {
        table.at[thread].wrong += own_words()[i] != i;
    }
}

static void check_words(long rounds)
{
    long updates = rounds * options.look_ahead;
    double wrong = 0;

    run_team(take_back, updates);
    run_team(count_wrong, 0);
    for (int i = 0; i < table.fabric.threads; i++) {
        wrong += (double)table.at[i].wrong;
    }
    wrong = sum(wrong) / (double)table.words / job.size;
    table.worst = wrong > table.worst ? wrong : table.worst;
    table.checked += (uint64_t)updates;
    if (wrong > table.tolerated) {
        die("random access: %.4g %% of the words are wrong", wrong * 100);
    }
    run_team(fill_words, 0);
}

/* ---- */

/** So large that a lost update is rare, however many threads have updates under way. */
static int default_bits(int threads)
{
    int bits = 17;

    while (1 << (bits - 17) < threads) {
        bits++;
    }
    return bits < 20 ? 20 : bits;
}

static void open_table(int threads, int workers)
{
    memset(table.at, 0, sizeof(table.at));
    table.words = UINT64_C(1) << (options.table_bits ? options.table_bits : default_bits(threads));
    table.checked = 0;
    table.worst = 0;
    for (int i = 0; i < threads; i++) {
        table.at[i].random = random_at(((uint64_t)job.rank * (uint64_t)threads + (uint64_t)i) * STREAM);
    }
    open_fabric(&table.fabric, threads, workers, EVERYONE, UCP_FEATURE_RMA | UCP_FEATURE_AMO64, table.words * 8);
    open_team(&table.fabric);
    open_local((size_t)options.look_ahead * 8);
    run_team(fill_words, 0);
}

static void play(const char *name, task update, double tolerated, int threads, int workers)
{
    double updates = (double)options.look_ahead * threads * job.size; /* of a round */
    double most;

    open_table(threads, workers);
    table.tolerated = tolerated;
    run_team(update, 1); /* connects */
    check_words(1);
    most = 4.0 * (double)table.words * job.size / updates; /* four updates of a word, as in HPC Challenge */
    updates /= measure(update, most < 1 ? 1 : (long)most, job.size, check_words).whole;
    print_row(name, &table.fabric, 0, updates / 1e6, "M/s");
    if (job.rank == 0) {
        printf("# of %llu words of each rank at most %.3g %% wrong after a repetition\n", (unsigned long long)table.words,
               table.worst * 100);
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
