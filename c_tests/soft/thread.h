/* A thread of a library's own in a program that does not know of it. */
#ifndef SOFT_THREAD_H
#define SOFT_THREAD_H

#include <pthread.h>

/* Runs `run`, with no signals: those are for the program's own threads. `work` is made anew, for waiting by CLOCK_MONOTONIC: in the
 * child of a fork it has waiters who are not there. */
void soft_thread(void *(*run)(void *), pthread_cond_t *work);

#endif
