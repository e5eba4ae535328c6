//! The stage: processes of one machine, two as a rule, and what they share besides the library under test.
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <stdatomic.h>
#include <stddef.h>

enum { MAIL_ROOM = 64 << 10, MAX_PROCESSES = 512 };

/** Anonymous memory, mapped before the fork; zeroed. */
struct stage {
    _Alignas(128) _Atomic unsigned ball;    /* handed to and fro by the measurement of the machine itself */
    _Alignas(128) _Atomic unsigned arrived; /* at meetings, all processes counted */
    unsigned processes;
    _Atomic int over;                       /* the active process is through with something one-sided */
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

/** The same for so many processes, at most MAX_PROCESSES. Process 0 is the caller, the others are its children. */
int start_processes(int number, void (*play)(struct place, void *), void *argument);

/** Waits for all other processes; calls `meanwhile` over and over, if there is one. */
void meet(struct place place, void (*meanwhile)(void *), void *argument);

/** Of two processes: gives the other one some bytes and gets its own, at most `room`; returns their number. */
size_t exchange(struct place place, const void *mine, size_t length, void *theirs, size_t room);

#endif
