/* Waiting for requests, with a limit. */
#ifndef FINISH_H
#define FINISH_H

#include <ucp/api/ucp.h>

/*
 * Calls progress(arg) until the request that a call returned has completed, for this many seconds at most; returns its
 * status, UCS_INPROGRESS on timeout, and frees it.
 */
ucs_status_t finish_with(ucs_status_ptr_t request, int seconds, void (*progress)(void *arg), void *arg);
/* finish_with() for a request that needs the progress of one worker. */
ucs_status_t finish_on(ucp_worker_h worker, ucs_status_ptr_t request, int seconds);

#endif
