/* A library's own thread, hidden from the program. */
#ifndef SOFT_THREAD_H
#define SOFT_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

struct soft_thread {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pid_t process; /* where the thread runs: a child of fork has none */
};

#define SOFT_THREAD_INITIALIZER {.lock = PTHREAD_MUTEX_INITIALIZER}

/*
 * thread->lock is held. Unless the thread runs in this process, starts it in `run`, with all signals blocked: those are
 * for the program's own threads.
 */
void soft_thread_start(struct soft_thread *thread, void *(*run)(void *));
/* thread->lock is held. Waits until a signal on thread->work, at most until `due` in ns of CLOCK_MONOTONIC. */
void soft_thread_wait(struct soft_thread *thread, uint64_t due);

#endif
