#include "thread.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

void soft_thread_start(struct soft_thread *thread, void *(*run)(void *))
{
    pthread_condattr_t attr;
    pthread_t id;
    sigset_t all, before;

    if (thread->process == getpid())
        return;
    thread->process = getpid();
    /* Initialized again in the child of a fork: there the condition variable has waiters that do not exist. */
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->work, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&id, NULL, run, NULL) == 0)
        pthread_detach(id);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void soft_thread_wait(struct soft_thread *thread, uint64_t due)
{
    struct timespec until = {due / 1000000000, due % 1000000000};

    if (due == UINT64_MAX)
        pthread_cond_wait(&thread->work, &thread->lock);
    else
        pthread_cond_timedwait(&thread->work, &thread->lock, &until);
}
