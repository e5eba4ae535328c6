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

/* ThreadSanitizer does not intercept pthread_mutex_consistent(): an annotation marks the caller as the owner. */
extern void __tsan_mutex_post_lock(void *lock, unsigned flags, int recursion) __attribute__((weak));

/* The next retry. */
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
 * A waiter retries after some milliseconds, because a wake-up can be lost with a killed process: with the woken waiter,
 * or with the owner that has unlocked and not woken a waiter yet. If another process has taken the lock meanwhile the
 * kernel does nothing, as it does not know of the other waiters.
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
