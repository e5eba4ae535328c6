#include "thread.h"

#include <signal.h>
#include <time.h>

void soft_thread(void *(*run)(void *), pthread_cond_t *work)
{
    pthread_condattr_t attr;
    pthread_t thread;
    sigset_t all, before;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(work, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
