//! The team: see team.h.
#include "team.h"
#include "cores.h"
#include "job.h"
#include "options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* Two lines of the A64FX, which fetches lines of 256 bytes: no false sharing of the threads' clocks. */
struct member {
    _Alignas(512) double begin, end;
    pthread_t thread;
};

static struct {
    struct fabric *fabric;
    task task; /* NULL: the threads exit */
    long rounds;
    double seconds;
    pthread_barrier_t start, stop;
    _Alignas(512) atomic_int through; /* threads that have done their task */
    _Alignas(512) atomic_int over;    /* all threads of all ranks are done */
    struct member member[MAX_THREADS];
} team;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void work(int thread)
{
    struct member *member = &team.member[thread];

    member->begin = now();
    team.task(thread, team.rounds);
    member->end = now();
    /* Release: the main thread that sees it notifies other ranks, and may then read the task's results. */
    atomic_fetch_add_explicit(&team.through, 1, memory_order_release);
}

/** Of the threads that share a worker the first one progresses it; the others sleep at the barrier. */
static void stay(int thread)
{
    while (thread < team.fabric->workers && !atomic_load_explicit(&team.over, memory_order_acquire)) {
        progress(team.fabric, own_worker(team.fabric, thread));
    }
}

/** The main thread's wait: for its own team, and then for the other ranks. */
static void stay_and_meet(void)
{
    struct meeting meeting;
    int begun = 0;

    while (!begun || !meeting_is_over(&meeting)) {
        progress(team.fabric, own_worker(team.fabric, 0));
        /* Acquire: pairs with the release at the end of every thread's work. */
        if (!begun && atomic_load_explicit(&team.through, memory_order_acquire) == team.fabric->threads) {
            begin_meeting(&meeting);
            begun = 1;
        }
    }
    /* Release: pairs with the acquire of the threads that keep progressing. */
    atomic_store_explicit(&team.over, 1, memory_order_release);
}

static void *live(void *index)
{
    int thread = (int)(intptr_t)index;

    bind_to_core(thread);
    for (;;) {
        pthread_barrier_wait(&team.start);
        if (team.task == NULL) {
            return NULL;
        }
        work(thread);
        stay(thread);
        pthread_barrier_wait(&team.stop);
    }
}

void open_team(struct fabric *fabric)
{
    team.fabric = fabric;
    bind_to_core(0);
    if (pthread_barrier_init(&team.start, NULL, (unsigned)fabric->threads) != 0 ||
        pthread_barrier_init(&team.stop, NULL, (unsigned)fabric->threads) != 0) {
        die("pthread_barrier_init");
    }
    for (int i = 1; i < fabric->threads; i++) {
        if (pthread_create(&team.member[i].thread, NULL, live, (void *)(intptr_t)i) != 0) {
            die("pthread_create");
        }
    }
}

void close_team(void)
{
    team.task = NULL;
    pthread_barrier_wait(&team.start);
    for (int i = 1; i < team.fabric->threads; i++) {
        pthread_join(team.member[i].thread, NULL);
    }
    /* Threads that the library starts for the next fabric must not be bound to this core. */
    unpin();
    pthread_barrier_destroy(&team.start);
    pthread_barrier_destroy(&team.stop);
}

void run_team(task task, long rounds)
{
    double begin;

    team.task = task;
    team.rounds = rounds;
    /* Relaxed: the barrier orders both before the task. */
    atomic_store_explicit(&team.through, 0, memory_order_relaxed);
    atomic_store_explicit(&team.over, 0, memory_order_relaxed);
    meet(team.fabric);
    begin = now();
    pthread_barrier_wait(&team.start);
    work(0);
    stay_and_meet();
    team.seconds = now() - begin;
    pthread_barrier_wait(&team.stop);
}

double team_seconds(void)
{
    return team.seconds;
}

double mean_seconds(void)
{
    double total = 0;

    for (int i = 0; i < team.fabric->threads; i++) {
        total += team.member[i].end - team.member[i].begin;
    }
    return total / team.fabric->threads;
}
