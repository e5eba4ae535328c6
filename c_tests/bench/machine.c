//! Limits of the machine itself, without any library: a cache line from core to core, copies from process to process.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LARGEST = 4 << 20 };

struct machine {
    struct place place;
    const struct effort *effort;
    unsigned char *own;     /* private memory of this process */
    unsigned char *mailbox; /* shared by both */
    uint64_t theirs;        /* address of the other process's private memory */
    uint64_t partner;       /* its number */
    int may_copy;           /* each may copy from and to the other's private memory */
};

/** Takes turns with the other process for this many rounds; runs `before` before and `after` after the other's turn. */
static double take_turns(struct machine *machine, long rounds, size_t size)
{
    _Atomic unsigned *ball = &machine->place.stage->ball;
    unsigned mine = (unsigned)machine->place.index;
    double begin;

    atomic_store(ball, 0);
    meet(machine->place, NULL, NULL);
    begin = now();
    for (unsigned turn = 0; turn < 2 * rounds; turn++) {
        if (turn % 2 == mine) {
            memcpy(machine->mailbox + mine * LARGEST, machine->own, size);
            atomic_store_explicit(ball, turn + 1, memory_order_release);
        } else {
            while (atomic_load_explicit(ball, memory_order_acquire) == turn) {
            }
            memcpy(machine->own, machine->mailbox + !mine * LARGEST, size);
        }
    }
    return (now() - begin) / (double)rounds / 2;
}

/** Process 0 reads from the other one; the other one writes to it meanwhile, if both take a half. */
static double copy_across(struct machine *machine, long rounds, size_t size, int both)
{
    size_t part = both ? size / 2 : size, offset = machine->place.index == 0 ? 0 : part;
    struct iovec local = {machine->own + offset, part}, remote = {(void *)(uintptr_t)(machine->theirs + offset), part};
    double begin;

    meet(machine->place, NULL, NULL);
    begin = now();
    for (long i = 0; i < rounds && (both || machine->place.index == 0); i++) {
        ssize_t moved = machine->place.index == 0
            ? process_vm_readv((pid_t)machine->partner, &local, 1, &remote, 1, 0)
            : process_vm_writev((pid_t)machine->partner, &local, 1, &remote, 1, 0);

        if (moved != (ssize_t)part) {
            die("copying from process to process failed: %s", strerror(errno));
        }
        if (both) {
            meet(machine->place, NULL, NULL);
        }
    }
    meet(machine->place, NULL, NULL);
    return (now() - begin) / (double)rounds;
}

static void report_handoff(struct machine *machine)
{
    enum { FIRST = 500, MOST = 20000 };
    double values[MAX_BATCHES], seconds = take_turns(machine, FIRST, 0);
    long *rounds = &machine->place.stage->rounds;

    /* Under load by other processes a turn can take milliseconds. */
    if (machine->place.index == 0) {
        *rounds = 10 + (long)((machine->effort->quick ? 1e-3 : 4e-3) / (seconds + 1e-9));
        *rounds = *rounds < MOST ? *rounds : MOST;
    }
    meet(machine->place, NULL, NULL);
    for (int i = 0; i < machine->effort->batches; i++) {
        values[i] = take_turns(machine, *rounds, 0) * 1e9;
    }
    if (machine->place.index == 0) {
        figure("handoff", -1, median(values, machine->effort->batches), "ns");
    }
}

static void report_copies(struct machine *machine, size_t size)
{
    static const char *names[] = {"bare_one_reads", "bare_both_copy"};
    double values[MAX_BATCHES];
    long rounds = 1 + (long)(machine->effort->batch_seconds / (1e-6 + (double)size / 10e9));

    for (int both = 0; both < 2; both++) {
        copy_across(machine, 1, size, both);
        for (int i = 0; i < machine->effort->batches; i++) {
            values[i] = copy_across(machine, rounds, size, both);
        }
        if (machine->place.index == 0) {
            figure(names[both], (long)size, (double)size / median(values, machine->effort->batches) / 1e6, "MB/s");
        }
    }
}

static void report_latency(struct machine *machine, size_t size)
{
    double values[MAX_BATCHES];
    long rounds = 1 + (long)(machine->effort->batch_seconds / 2 / (1e-7 + (double)size / 10e9));

    take_turns(machine, 2, size);
    for (int i = 0; i < machine->effort->batches; i++) {
        values[i] = take_turns(machine, rounds, size) * 1e6;
    }
    if (machine->place.index == 0) {
        figure("bare_latency", (long)size, median(values, machine->effort->batches), "us");
    }
}

static int may_copy(const struct machine *machine)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)(uintptr_t)machine->theirs, 1};

    return process_vm_readv((pid_t)machine->partner, &local, 1, &remote, 1, 0) == 1;
}

static void set_up(struct machine *machine)
{
    uint64_t mine[2] = {0, (uint64_t)getpid()}, theirs[2];
    int here, there;

    machine->own = aligned_alloc(4096, LARGEST);
    if (machine->own == NULL) {
        die("no memory");
    }
    memset(machine->own, 1, LARGEST);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where Yama would forbid the copies */
    mine[0] = (uint64_t)(uintptr_t)machine->own;
    exchange(machine->place, mine, sizeof(mine), theirs, sizeof(theirs));
    machine->theirs = theirs[0];
    machine->partner = theirs[1];
    here = may_copy(machine);
    exchange(machine->place, &here, sizeof(here), &there, sizeof(there));
    machine->may_copy = here && there;
}

static void handoff(struct place place, void *argument)
{
    struct machine machine = *(struct machine *)argument;

    machine.place = place;
    report_handoff(&machine);
}

static void limits(struct place place, void *argument)
{
    struct machine machine = *(struct machine *)argument;

    machine.place = place;
    set_up(&machine);
    report_handoff(&machine);
    for (size_t size = 1; size <= LARGEST; size *= 2) {
        if (!measures_size(machine.effort, size)) {
            continue;
        }
        report_latency(&machine, size);
        if (size >= 4096 && machine.may_copy) {
            report_copies(&machine, size);
        }
    }
}

int run_machine(const struct effort *effort, int argc, char **argv)
{
    struct machine machine = {.effort = effort};

    (void)argc;
    machine.mailbox = mmap(NULL, 2 * LARGEST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (machine.mailbox == MAP_FAILED) {
        die("no memory");
    }
    return start_pair(strcmp(argv[0], "handoff") == 0 ? handoff : limits, &machine);
}
