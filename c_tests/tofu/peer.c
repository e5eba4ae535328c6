/*
 * Whether a process on the wire lives. Each holds a robust mutex in the wire, by a thread of its own: when the
 * process ends, in whatever way, the kernel marks the mutex. So a check costs a load, and no process that reuses the
 * number of a dead one is mistaken for it.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <unistd.h>

#include "tofu.h"

static pthread_barrier_t keeps;

bool peer_alive(uint32_t process)
{
    /*
     * The word that kernel and C library share: the holder's thread id, and FUTEX_OWNER_DIED. Acquire: everything that
     * the dead process wrote before is visible.
     */
    int word = __atomic_load_n(&wire->processes[process].life.__data.__lock, __ATOMIC_ACQUIRE);

    return (word & FUTEX_TID_MASK) != 0 && (word & FUTEX_OWNER_DIED) == 0;
}

static void *keep(void *life)
{
    wire_lock(life); /* of a dead process's number: it is marked, and now held by this process */
    pthread_barrier_wait(&keeps);
    for (;;)
        pause();
    return NULL;
}

bool peer_live(uint32_t process)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int error;

    pthread_barrier_init(&keeps, NULL, 2);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 65536);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* the program's signals are for its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attr, keep, &wire->processes[process].life);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (error == 0)
        pthread_barrier_wait(&keeps);
    return error == 0;
}
