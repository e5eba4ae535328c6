//! The table of random access: see words.h. The rank's own words are read and written here while no updates are in
//! flight.
#include "words.h"
#include "options.h"
#include "sequence.h"
#include "team.h"

struct words words;

static struct {
    _Alignas(512) long count; /* of the thread's stretch */
} wrong_of[MAX_THREADS];

uint64_t default_words(int threads)
{
    int bits = 17;

    while (1 << (bits - 17) < threads) {
        bits++;
    }
    return UINT64_C(1) << (bits < 20 ? 20 : bits);
}

static uint64_t *own_words(void)
{
    return (uint64_t *)(void *)words.fabric->own;
}

/** Thread t of T has the t-th stretch of the words. */
static uint64_t stretch_of(int thread, uint64_t *end)
{
    uint64_t length = words.count / (uint64_t)words.fabric->threads + 1;
    uint64_t begin = length * (uint64_t)thread;

    *end = begin + length < words.count ? begin + length : words.count;
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

/** Undoes the updates of some threads' numbers on this rank's words. */
static void take_back(int thread, long updates)
{
    uint64_t streams = (uint64_t)job.size * (uint64_t)words.fabric->threads;

    for (uint64_t stream = (uint64_t)thread; stream < streams; stream += (uint64_t)words.fabric->threads) {
        uint64_t random = random_at(stream * STREAM + words.checked);

        for (long i = 0; i < updates; i++) {
            random = next_random(random);
            if (owner(random) == job.rank) {
                /* Relaxed: among threads of this rank only; the end of the task orders what follows. */
                __atomic_fetch_xor(&own_words()[random % words.count], random, __ATOMIC_RELAXED);
            }
        }
    }
}

static void count_wrong(int thread, long unused)
{
    uint64_t end;

    (void)unused;
    wrong_of[thread].count = 0;
    for (uint64_t i = stretch_of(thread, &end); i < end; i++) {
        wrong_of[thread].count += own_words()[i] != i;
    }
}

void check_words(long updates)
{
    double wrong = 0;

    run_team(take_back, updates);
    run_team(count_wrong, 0);
    for (int i = 0; i < words.fabric->threads; i++) {
        wrong += (double)wrong_of[i].count;
    }
    wrong = sum(wrong) / (double)words.count / job.size;
    words.worst = wrong > words.worst ? wrong : words.worst;
    words.checked += (uint64_t)updates;
    if (wrong > words.tolerated) {
        die("random access: %.4g %% of the words are wrong", wrong * 100);
    }
    run_team(fill_words, 0);
}

void open_words(void)
{
    run_team(fill_words, 0);
}
