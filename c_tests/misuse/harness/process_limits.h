/* Checks that a worker releases the resources of peers that are gone. The program defines _GNU_SOURCE. */
#ifndef PROCESS_LIMITS_H
#define PROCESS_LIMITS_H

#include "../../resources.h"

#include <ucp/api/ucp.h>

/* Progresses the worker until the process uses at most `limit`, for this many seconds at most; returns its use. */
resources_t progress_until_at_most(ucp_worker_h worker, resources_t limit, int seconds);
/* Checks each resource. */
void want_at_most(resources_t limit, resources_t used);

#endif
