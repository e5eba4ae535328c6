/*
 * A killed peer without error handling: operations in flight to it complete, and so do later ones. A receive stays
 * posted: another peer may send.
 */
#define _GNU_SOURCE
#include "party.h"

#include <time.h>

enum { SECONDS = 20 };

static void nothing(party_t *self)
{
    (void)self;
}

static int is_loss(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
}

static void killed(void)
{
    static char         large[1 << 20], small[8];
    ucp_request_param_t param = {.op_attr_mask = 0};
    party_t             self;
    time_t              end;

    start(&self, UCP_ERR_HANDLING_MODE_NONE, nothing);
    kill_other(&self);
    ucs_status_ptr_t received = receive_tag(&self, small, sizeof(small), 3);
    ucs_status_ptr_t sent     = send_tag(&self, large, sizeof(large));
    ucs_status_ptr_t flushed  = ucp_ep_flush_nbx(self.ep, &param);
    WANT_TRUE(UCS_PTR_IS_PTR(sent) && UCS_PTR_IS_PTR(flushed));
    for (end = time(NULL) + SECONDS; ucp_request_check_status(sent) == UCS_INPROGRESS && time(NULL) < end;) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(is_loss(ucp_request_check_status(sent)));
    WANT_TRUE(is_loss(ucp_request_check_status(flushed)));
    WANT_TRUE(is_loss(finish(&self, send_tag(&self, small, sizeof(small)))));
    WANT(UCS_INPROGRESS, ucp_request_check_status(received));
    ucp_request_free(sent);
    ucp_request_free(flushed);
    ucp_request_cancel(self.worker, received);
    WANT(UCS_ERR_CANCELED, finish(&self, received));
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static const case_t cases[] = {
    {"unhandled: a peer is killed", killed},
};

CHECK_MAIN(cases)
