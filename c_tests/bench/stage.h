//! The stage: two processes of one machine, and what they share besides the library under test.
#ifndef BENCH_STAGE_H
#define BENCH_STAGE_H

#include <stdatomic.h>
#include <stddef.h>

enum { MAIL_ROOM = 64 << 10 };

/** Anonymous memory, mapped before the fork; zeroed. */
struct stage {
    _Alignas(128) _Atomic unsigned ball;    /* handed to and fro by the measurement of the machine itself */
    _Alignas(128) _Atomic unsigned arrived; /* at meetings, both processes counted */
    _Atomic int over;                       /* the active process is through with something one-sided */
    long rounds;                            /* of the next batch; the active process writes it between two meetings */
    struct {
        size_t length;
        unsigned char bytes[MAIL_ROOM];
    } mail[2];
};

/** A process of the two: 0, which measures and reports, or 1, which answers. */
struct place {
    struct stage *stage;
    int index;
};

/**
 * Forks; `play` runs in both processes, each pinned to a core of its own, and either fails as a whole or both return.
 * Returns the exit status for main.
 */
int start_pair(void (*play)(struct place, void *), void *argument);

/** Waits for the other process; calls `meanwhile` over and over, if there is one. */
void meet(struct place place, void (*meanwhile)(void *), void *argument);

/** Gives the other process some bytes and gets its own, at most `room`; returns their number. */
size_t exchange(struct place place, const void *mine, size_t length, void *theirs, size_t room);

#endif
