/* Locks in memory that processes share, of which any may be killed. */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>
#include <stdbool.h>

void soft_lock_make(pthread_mutex_t *lock);
/* Whether its last holder was killed: what he leaves is for the caller to judge. */
bool soft_lock(pthread_mutex_t *lock);

#endif
