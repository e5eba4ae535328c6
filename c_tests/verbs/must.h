/* For programs of several ranks that exit at the first failed check. */
#ifndef RUCP_VERBS_MUST_H
#define RUCP_VERBS_MUST_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>

static inline void must(int fine, const char *what)
{
    if (!fine) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
        exit(1);
    }
}

/* Progresses until the request is complete, which must be with UCS_OK; frees it. */
static inline void wait_for(ucp_worker_h worker, ucs_status_ptr_t request, const char *what)
{
    must(!UCS_PTR_IS_ERR(request), what);
    if (request == NULL)
        return;
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    must(ucp_request_check_status(request) == UCS_OK, what);
    ucp_request_free(request);
}

/* Initializes a barrier for this many processes, in shared memory. */
static inline void open_barrier(pthread_barrier_t *barrier, int processes)
{
    pthread_barrierattr_t shared;

    must(pthread_barrierattr_init(&shared) == 0 &&
             pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0 &&
             pthread_barrier_init(barrier, &shared, (unsigned)processes) == 0,
         "barrier");
    pthread_barrierattr_destroy(&shared);
}

/* Kills rank 1 once `ready` is set; prints rank 0's wait status, and returns whether it failed. */
static inline int kill_one(const pid_t child[2], _Atomic int *ready)
{
    int status;

    while (!*ready && waitpid(child[0], &status, WNOHANG) == 0)
        sched_yield();
    kill(child[1], SIGKILL);
    must(waitpid(child[1], &status, 0) == child[1] && waitpid(child[0], &status, 0) == child[0], "wait");
    printf("%d\n", status);
    return status != 0;
}

/* Waits for both ranks, and kills the other one when one fails. Returns whether one failed. */
static inline int wait_ranks(const pid_t child[2])
{
    int failed = 0;

    for (int rank = 0; rank < 2; rank++) {
        int   status;
        pid_t ended = wait(&status);

        if (status != 0) {
            failed = 1;
            kill(ended == child[0] ? child[1] : child[0], SIGKILL);
        }
    }
    return failed;
}

#endif
