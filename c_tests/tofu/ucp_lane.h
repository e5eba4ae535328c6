/* Lanes of direct.h by UCP: a worker for each, with an endpoint and a key to the other end's memory. */
#ifndef SOFT_TOFU_UCP_LANE_H
#define SOFT_TOFU_UCP_LANE_H

#include <ucp/api/ucp.h>

#include "direct.h"

struct ucp_lane {
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_mem_h memh;
    ucp_rkey_h rkey;
    uint64_t remote;       /* address of the other end's buffer */
    void *request;         /* requests that `step` waits for */
    uint64_t data[2];      /* send buffer, receive buffer */
};

static const ucp_request_param_t ucp_plain = {.op_attr_mask = 0};

void ucp_lane_open(struct lane *lane, int number);
void ucp_lane_connect(struct lane *lane);
/* Progresses until all lanes are connected, in both directions. */
void ucp_lanes_settle(struct lane *lanes, int count);
/* Whether a request, which may be NULL, has completed with UCS_OK; frees it then. */
bool ucp_has_ended(void *request);

#endif
