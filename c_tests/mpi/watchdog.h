//! Ends a process whose MPI calls make no progress, so that a lost message is a failure and not a hang.
#ifndef RUCP_MPI_WATCHDOG_H
#define RUCP_MPI_WATCHDOG_H

#include "check.h"

#include <signal.h>
#include <unistd.h>

/** Limit of one step of a program, in seconds; machines with fewer cores than ranks are slow. */
enum { STEP_SECONDS = 20 };

static char watchdog_text[160];

static void watchdog_expired(int signal)
{
    (void)signal;
    if (write(STDERR_FILENO, watchdog_text, strlen(watchdog_text)) < 0) {
        _exit(2);
    }
    _exit(1);
}

/** Begins the next step: a process that exceeds STEP_SECONDS for it reports that and ends, and the job with it. */
static inline void watchdog(const char *what, unsigned number)
{
    alarm(0);
    snprintf(watchdog_text, sizeof(watchdog_text), "FAILED on rank %d: HANG in %s %u\n", world_rank, what, number);
    signal(SIGALRM, watchdog_expired);
    alarm(STEP_SECONDS);
}

static inline void watchdog_off(void)
{
    alarm(0);
}

#endif
