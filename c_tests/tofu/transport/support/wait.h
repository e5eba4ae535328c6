/* Waiting for operations, in programs whose workers are all their own. */
#ifndef TRANSPORT_WAIT_H
#define TRANSPORT_WAIT_H

#include <ucp/api/ucp.h>

/* What an operation that a call returned ends with, for which `progress` is called, for at most so many seconds. Frees its request. */
ucs_status_t wait_for(ucs_status_ptr_t request, void (*progress)(void), int seconds);

#endif
