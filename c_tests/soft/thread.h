/* A library's own thread, hidden from the program. */
#ifndef SOFT_THREAD_H
#define SOFT_THREAD_H

#include <pthread.h>

/*
 * Runs `run` with all signals blocked: those are for the program's own threads. Initializes `work` again, for waiting
 * by CLOCK_MONOTONIC: in the child of a fork it has waiters that do not exist.
 */
void soft_thread(void *(*run)(void *), pthread_cond_t *work);

#endif
