/*
 * A storm: processes send each other tagged and active messages and streams, put, get and add, all verified, while a
 * supervisor kills them, stops and continues them, and starts others in their place, all drawn from a seed. Every
 * request ends, every endpoint to a process that dies calls its handler once and within a second of the death, and
 * processes that live hold no more resources in the end than in the beginning.
 *
 * usage: storm [-s SECONDS] [-p PROCESSES] [-r SEED] [-l LIMIT]     LIMIT: seconds from a death to its callback
 */
#define _GNU_SOURCE
#include "storm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * The two that are never killed may hold this much more in the last third than in the middle: memory kept by the heap,
 * and what two peers use (of nine), which died and are not yet detected or were started early. A reliable connection
 * alone takes 400 KB for its buffers, so that the bytes are a share of what is held as well.
 */
enum { SLACK_DESCRIPTORS = 4, SLACK_MAPPINGS = 24, SLACK_BYTES = 512 << 10, SLACK_SHARE = 4 };
enum { PAUSE_MS = 120, STOP_MS = 300, END_SECONDS = 40 };

typedef struct {
    pid_t    pid; /* 0: none now */
    unsigned generation;
    double   next; /* when it is started again or continued */
    int      stopped;
} child_t;

static board_t *shared;
static int      board_fd;
static child_t  children[MAX_SLOTS];
static uint64_t random_state;
static long     kills, stops;

double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned draw(unsigned below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(random_state >> 33) % below;
}

static void start(int slot)
{
    child_t *child = &children[slot];
    char     texts[3][16];

    child->generation++;
    snprintf(texts[0], sizeof(texts[0]), "%d", board_fd);
    snprintf(texts[1], sizeof(texts[1]), "%d", slot);
    snprintf(texts[2], sizeof(texts[2]), "%u", child->generation);
    child->pid = fork();
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "storm", "process", texts[0], texts[1], texts[2], NULL);
        _exit(127);
    }
    child->stopped = 0;
}

static void fail(const char *what)
{
    fprintf(stderr, "FAILED: %s\n", what);
    atomic_store(&shared->failed, 1);
}

/* A process that has ended was killed by the supervisor, or has finished. */
static void ended(int slot, int status)
{
    char what[128];

    children[slot].pid = 0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
        atomic_load(&shared->slots[slot].killed) == children[slot].generation) {
        children[slot].next = now() + draw(2 * PAUSE_MS) / 1e3;
    } else if (!atomic_load(&shared->over) || status != 0) {
        snprintf(what, sizeof(what), "process %d, generation %u, ended with status %#x", slot,
                 children[slot].generation, (unsigned)status);
        fail(what);
    }
}

static void wait_children(void)
{
    int   status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < shared->count; i++) {
            if (children[i].pid == pid) {
                ended(i, status);
            }
        }
    }
}

/* Kills, stops or spares one. */
static void kill_or_stop(void)
{
    int      slot  = (int)draw((unsigned)shared->count);
    child_t *child = &children[slot];

    if (child->pid == 0) {
        return;
    }
    if (slot >= SURVIVORS && draw(2) == 0) {
        atomic_store(&shared->slots[slot].killed, child->generation);
        kill(child->pid, SIGKILL);
        kills++;
    } else if (!child->stopped && draw(2) == 0) {
        kill(child->pid, SIGSTOP);
        child->stopped = 1;
        child->next    = now() + draw(STOP_MS) / 1e3;
        stops++;
    }
}

static void go_on(int at_once)
{
    for (int i = 0; i < shared->count; i++) {
        if (!at_once && children[i].next > now()) {
            continue;
        }
        if (children[i].pid == 0) {
            start(i);
        } else if (children[i].stopped) {
            kill(children[i].pid, SIGCONT);
            children[i].stopped = 0;
        }
    }
}

static int count_living(void)
{
    int count = 0;

    for (int i = 0; i < shared->count; i++) {
        count += children[i].pid != 0;
    }
    return count;
}

static void sleep_ms(unsigned milliseconds)
{
    struct timespec t = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000l};

    nanosleep(&t, NULL);
}

static int is_dying(int slot)
{
    return children[slot].pid != 0 && atomic_load(&shared->slots[slot].killed) == children[slot].generation;
}

/* Waits until the killed processes have ended, so that go_on() starts them once more. */
static void wait_for_killed(void)
{
    for (int i = 0; i < shared->count; i++) {
        while (is_dying(i)) {
            sleep_ms(1);
            wait_children();
        }
    }
}

/* All end by themselves, or are killed after a while. */
static void finish(void)
{
    double end = now() + END_SECONDS;

    atomic_store(&shared->over, 1);
    while (count_living() > 0 && now() < end && !atomic_load(&shared->failed)) {
        sleep_ms(10);
        wait_children();
    }
    if (count_living() > 0 && !atomic_load(&shared->failed)) {
        fail("some processes do not come to their end");
    }
    for (int i = 0; i < shared->count; i++) {
        if (children[i].pid != 0) {
            kill(children[i].pid, SIGKILL);
            waitpid(children[i].pid, NULL, 0);
        }
    }
}

static int grew(const resources_t *before, const resources_t *after)
{
    size_t slack = before->bytes / SLACK_SHARE > SLACK_BYTES ? before->bytes / SLACK_SHARE : SLACK_BYTES;

    return after->descriptors > before->descriptors + SLACK_DESCRIPTORS ||
           after->mappings > before->mappings + SLACK_MAPPINGS || after->bytes > before->bytes + slack;
}

static void judge_survivors(void)
{
    for (int i = 0; i < SURVIVORS; i++) {
        resources_t *least = shared->least[i], *before = &least[SAMPLES / 2], *after = &least[SAMPLES - 1];

        printf("survivor %d: descriptors, mappings, KB on the heap:", i);
        for (int third = 0; third < SAMPLES; third++) {
            printf("%s %zu, %zu, %zu", third == 0 ? "" : ";", least[third].descriptors, least[third].mappings,
                   least[third].bytes >> 10);
        }
        printf("\n");
        if (before->descriptors != 0 && after->descriptors != 0 && grew(before, after)) {
            fail("the resources of a survivor grow");
        }
    }
}

static void open_board(int fd)
{
    board_fd = fd;
    shared   = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int    option, fd, count = 10;
    double seconds = 20, limit = 1;
    unsigned seed = 1;

    if (argc == 5 && strcmp(argv[1], "process") == 0) {
        open_board(atoi(argv[2]));
        run_process(shared, atoi(argv[3]), (unsigned)atoi(argv[4]));
    }
    while ((option = getopt(argc, argv, "s:p:r:l:")) != -1) {
        switch (option) {
        case 's': seconds = atof(optarg); break;
        case 'p': count = atoi(optarg); break;
        case 'r': seed = (unsigned)atoi(optarg); break;
        case 'l': limit = atof(optarg); break;
        default: fprintf(stderr, "usage: storm [-s seconds] [-p processes] [-r seed] [-l limit]\n"); return 2;
        }
    }
    fd = memfd_create("storm", 0);
    if (count <= SURVIVORS || count > MAX_SLOTS || fd < 0 || ftruncate(fd, sizeof(*shared)) != 0) {
        fprintf(stderr, "storm: %d to %d processes\n", SURVIVORS + 1, MAX_SLOTS);
        return 2;
    }
    open_board(fd);
    shared->count  = count;
    shared->seed   = seed;
    shared->limit  = limit;
    shared->begins = now();
    shared->ends   = shared->begins + seconds;
    random_state  = seed;
    while (now() < shared->ends && !atomic_load(&shared->failed)) {
        go_on(0);
        sleep_ms(5 + draw(PAUSE_MS));
        wait_children();
        kill_or_stop();
    }
    /* No process waits for the address of a killed one. */
    wait_for_killed();
    go_on(1);
    finish();
    printf("%ld kills, %ld stops, %ld callbacks, the slowest after %ld ms; tagged %ld, active %ld, "
           "put and get %ld, add %ld, stream %ld, cancelled %ld\n", kills, stops, atomic_load(&shared->failures),
           atomic_load(&shared->slowest_us) / 1000, atomic_load(&shared->done[0]), atomic_load(&shared->done[1]),
           atomic_load(&shared->done[2]), atomic_load(&shared->done[3]), atomic_load(&shared->done[4]),
           atomic_load(&shared->cancels));
    judge_survivors();
    printf("%s: %d processes, seed %u\n", atomic_load(&shared->failed) ? "FAILED" : "fine", count, seed);
    return atomic_load(&shared->failed);
}
