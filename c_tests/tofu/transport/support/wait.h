/* Waiting for operations, in programs whose workers are all their own. */
#ifndef TRANSPORT_WAIT_H
#define TRANSPORT_WAIT_H

#include <ucp/api/ucp.h>

/*
 * Progresses until the request that a call returned has ended, for this many seconds at most; returns its status, and
 * frees it.
 */
ucs_status_t wait_for(ucs_status_ptr_t request, void (*progress)(void), int seconds);

#endif
