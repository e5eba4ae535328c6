/* For programs of several ranks that exit at the first failed check. */
#ifndef RUCP_VERBS_MUST_H
#define RUCP_VERBS_MUST_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
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

#endif
