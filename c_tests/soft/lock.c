#include "lock.h"

#include <errno.h>
#include <time.h>

void soft_lock_make(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

/* ThreadSanitizer, where it is there, has to be told that who gets a dead one's lock has it: of this call it does not know. */
extern void __tsan_mutex_post_lock(void *lock, unsigned flags, int recursion) __attribute__((weak));

/* When to look again: this soon. */
static struct timespec later(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_nsec += 5000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

/*
 * Who sleeps for a lock looks again after some milliseconds, because a wake-up can be lost with a process that is killed: with the
 * one who was woken, or with the one who has let go and not woken anybody yet. If a third has taken the lock meanwhile the
 * kernel does nothing, and he does not know that others sleep.
 */
bool soft_lock(pthread_mutex_t *lock)
{
    int error = pthread_mutex_trylock(lock);

    while (error == EBUSY || error == ETIMEDOUT) {
        struct timespec until = later();

        error = pthread_mutex_timedlock(lock, &until);
        if (error == EOWNERDEAD && __tsan_mutex_post_lock != NULL)
            __tsan_mutex_post_lock(lock, 0, 0);
    }
    if (error != EOWNERDEAD)
        return false;
    pthread_mutex_consistent(lock);
    return true;
}
