/* Robust locks in shared memory; any of the processes may be killed. */
#ifndef SOFT_LOCK_H
#define SOFT_LOCK_H

#include <pthread.h>
#include <stdbool.h>

void soft_lock_make(pthread_mutex_t *lock);
/* Whether the last owner was killed: the caller has to check the state that it left. */
bool soft_lock(pthread_mutex_t *lock);

#endif
