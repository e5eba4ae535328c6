//! The team: the threads of a rank, each on a core, the main thread the first of them.
#ifndef STUDY_TEAM_H
#define STUDY_TEAM_H

#include "fabric.h"

/** The task of every thread of every rank; `rounds` is the argument of run_team. */
typedef void (*task)(int thread, long rounds);

/** Starts the threads, which work with this fabric until the team is closed. */
void open_team(struct fabric *fabric);

void close_team(void);

/**
 * All threads of all ranks run the task, beginning together; returns when the last one has ended. A thread that is
 * done keeps progressing its worker until then: others may need it. All ranks call it, from the main thread.
 */
void run_team(task task, long rounds);

/**
 * Seconds of the last task: from a barrier of all ranks to the end of the last one, and the mean of this rank's
 * threads. Rates use the first: ranks or threads that share a core may have worked one after another.
 */
double team_seconds(void);
double mean_seconds(void);

#endif
