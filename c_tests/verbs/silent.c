/*
 * Peers that reply to nothing: their processes are stopped before there is a connection. Endpoints with error handling
 * fail after UCX_UD_TIMEOUT, which has to be one second; others wait until the peer continues. The worker keeps working
 * all the time.
 */
#define _GNU_SOURCE
#include "apart.h"

#include <time.h>

enum { MIN_MS = 900, MAX_MS = 8000, SECONDS = 3 };

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Another worker of this process stays reachable. */
static void check_other_worker(party_t *self)
{
    ucp_ep_h       silent = self->ep;
    uint64_t       value  = 7, got = 0;
    party_t        near   = {.context = self->context};
    ucp_address_t *address;
    size_t         length;

    ucp_worker_params_t params = {.field_mask = 0};
    WANT(UCS_OK, ucp_worker_create(self->context, &params, &near.worker));
    WANT(UCS_OK, ucp_worker_get_address(near.worker, &address, &length));
    party_connect(self, address, UCP_ERR_HANDLING_MODE_PEER);
    ucp_worker_release_address(near.worker, address);
    ucs_status_ptr_t arrives = receive_tag(&near, &got, sizeof(got), 1);
    ucs_status_ptr_t leaves  = send_tag(self, &value, sizeof(value));
    for (long end = now_ms() + MAX_MS; got == 0 && now_ms() < end;) {
        ucp_worker_progress(self->worker);
        ucp_worker_progress(near.worker);
    }
    WANT(UCS_OK, finish(&near, arrives));
    WANT(UCS_OK, finish(self, leaves));
    WANT_TRUE(got == value);
    close_endpoint(self, UCP_EP_CLOSE_FLAG_FORCE);
    self->ep = silent;
    ucp_worker_destroy(near.worker);
}

static void noticed(void)
{
    party_t  self;
    uint64_t value = 1;

    start_apart(&self, 1);
    long began = now_ms();
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    ucs_status_ptr_t sent = send_tag(&self, &value, sizeof(value));
    WANT_TRUE(UCS_PTR_IS_PTR(sent));
    while (self.failures == 0 && now_ms() - began < MAX_MS) {
        ucp_worker_progress(self.worker);
    }
    long took = now_ms() - began;
    WANT_TRUE(self.failures == 1);
    WANT(UCS_ERR_ENDPOINT_TIMEOUT, self.failure);
    WANT_TRUE(took >= MIN_MS);
    WANT(UCS_ERR_ENDPOINT_TIMEOUT, finish(&self, sent));
    check_other_worker(&self);
    close_endpoint(&self, UCP_EP_CLOSE_FLAG_FORCE);
    /* A peer that was only slow is reachable by the next endpoint. */
    kill(self.other, SIGCONT);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT(UCS_OK, finish(&self, send_tag(&self, &value, sizeof(value))));
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(self.failures == 1);
    close_endpoint(&self, UCP_EP_CLOSE_FLAG_FORCE);
    kill_other(&self);
    close_worker(&self);
}

static void waited_for(void)
{
    party_t  self;
    uint64_t value = 1;

    start_apart(&self, 1);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_NONE);
    ucs_status_ptr_t sent = send_tag(&self, &value, sizeof(value));
    for (long end = now_ms() + SECONDS * 1000; now_ms() < end;) {
        ucp_worker_progress(self.worker);
    }
    WANT(UCS_INPROGRESS, ucp_request_check_status(sent));
    check_other_worker(&self);
    kill(self.other, SIGCONT);
    WANT(UCS_OK, finish(&self, sent));
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(self.failures == 0);
    close_endpoint(&self, 0);
    kill_other(&self);
    close_worker(&self);
}

static const case_t cases[] = {
    {"silent: noticed where errors are handled", noticed},
    {"silent: no timeout without error handling", waited_for},
};

CHECK_MAIN(cases)
