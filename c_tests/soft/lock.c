#include "lock.h"

#include <errno.h>

void soft_lock_make(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

bool soft_lock(pthread_mutex_t *lock)
{
    if (pthread_mutex_lock(lock) != EOWNERDEAD)
        return false;
    pthread_mutex_consistent(lock);
    return true;
}
