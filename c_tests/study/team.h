//! The team: the threads of a rank, each on a core, the main thread the first of them.
#ifndef STUDY_TEAM_H
#define STUDY_TEAM_H

#include "fabric.h"

/** What every thread of every rank does; `rounds` is what the caller of run_team said. */
typedef void (*task)(int thread, long rounds);

/** Starts the threads, which work with this fabric until the team is closed. */
void open_team(struct fabric *fabric);

void close_team(void);

/**
 * All threads of all ranks do the task, which they begin together; returns when the last one is through. A thread that is
 * done goes on progressing its worker until then: others may need it. All ranks call it, from the main thread.
 */
void run_team(task task, long rounds);

/**
 * Seconds of the last task: from when all ranks had met to when all were through, and the mean of what this rank's threads
 * took. The first is what rates are of: ranks or threads that share a core may have worked one after another.
 */
double team_seconds(void);
double mean_seconds(void);

#endif
