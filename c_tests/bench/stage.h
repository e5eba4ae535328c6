//! The stage: processes of one machine, two as a rule, and their shared memory besides the library under test.
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <stdatomic.h>
#include <stddef.h>

enum { MAIL_ROOM = 64 << 10, MAX_PROCESSES = 512 };

/** Time of a program after which it ends by SIGALRM, for the next start_processes(). */
extern unsigned limit_seconds;

/** Anonymous memory, mapped before the fork; zeroed. */
struct stage {
    _Alignas(128) _Atomic unsigned ball;    /* passed to and fro by the measurement of the machine itself */
    _Alignas(128) _Atomic unsigned arrived; /* at meetings, all processes counted */
    unsigned processes;
    _Atomic int over;                       /* the active process has finished a one-sided phase */
    long rounds;                            /* of the next batch; the active process writes it between two meetings */
    struct {
        size_t length;
        unsigned char bytes[MAIL_ROOM];
    } mail[MAX_PROCESSES]; /* by the process that writes it */
};

/** One of the processes: 0 measures and reports; of two, 1 answers. */
struct place {
    struct stage *stage;
    int index;
};

/**
 * Forks; `play` runs in both processes, each pinned to a core of its own, and either fails as a whole or both return.
 * Returns the exit status for main.
 */
int start_pair(void (*play)(struct place, void *), void *argument);

/**
 * Like start_pair for this many processes, at most MAX_PROCESSES. Process 0 is the caller, the others are its children.
 */
int start_processes(int number, void (*play)(struct place, void *), void *argument);

/** A barrier of all processes; calls `meanwhile` repeatedly, if there is one. */
void meet(struct place place, void (*meanwhile)(void *), void *argument);

/**
 * Of two processes: exchanges some bytes, at most `room`; returns the number of the received ones. The only one of a
 * stage receives its own.
 */
size_t exchange(struct place place, const void *mine, size_t length, void *theirs, size_t room);

#endif
