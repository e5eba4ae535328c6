/*
 * A peer that computes for longer than UCX_UD_TIMEOUT, which has to be one second, without calling progress is not
 * declared dead: messages sent to it arrive. Nor is a peer whose acknowledgements arrived while this process computed.
 */
#define _GNU_SOURCE
#include "party.h"

#include <string.h>
#include <time.h>

enum { COUNT = 300, SIZE = 900, SECONDS = 3 };

static char data[COUNT][SIZE];

static void compute(party_t *self)
{
    wait_notified_blocking(self);
    for (int i = 0; i < COUNT; i++) {
        WANT(UCS_OK, finish(self, receive_tag(self, data[0], SIZE, (ucp_tag_t)5)));
        WANT_TRUE(data[0][0] == (char)i && data[0][SIZE - 1] == (char)i);
    }
    notify_peer(self);
}

static void exchange_with_busy_peer(ucp_err_handling_mode_t mode)
{
    static ucs_status_ptr_t sent[COUNT];
    party_t                 self;

    start(&self, mode, compute);
    for (int i = 0; i < COUNT; i++) {
        memset(data[i], i, SIZE);
        ucp_request_param_t param = {.op_attr_mask = 0};
        sent[i]                   = ucp_tag_send_nbx(self.ep, data[i], SIZE, 5, &param);
    }
    for (time_t end = time(NULL) + SECONDS; time(NULL) <= end;) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(self.failures == 0);
    notify_peer(&self);
    for (int i = 0; i < COUNT; i++) {
        WANT(UCS_OK, finish(&self, sent[i]));
    }
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
}

static void guarded(void)
{
    exchange_with_busy_peer(UCP_ERR_HANDLING_MODE_PEER);
}

static void unguarded(void)
{
    exchange_with_busy_peer(UCP_ERR_HANDLING_MODE_NONE);
}

/* Neither end polls: the timeout must not count this time as the peer's silence. */
static void both(void)
{
    uint64_t value = 1;
    party_t  self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, compute);
    ucp_request_param_t param = {.op_attr_mask = 0};
    for (int i = 0; i < COUNT; i++) {
        memset(data[i], i, SIZE);
        WANT_TRUE(!UCS_PTR_IS_ERR(ucp_tag_send_nbx(self.ep, data[i], SIZE, 5, &param)));
    }
    for (time_t end = time(NULL) + SECONDS; time(NULL) <= end;) {
    }
    notify_peer(&self);
    WANT_TRUE(wait_notified(&self));
    WANT(UCS_OK, finish(&self, send_tag(&self, &value, sizeof(value))));
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
}

static const case_t cases[] = {
    {"busy: a peer that computes, with error handling", guarded},
    {"busy: a peer that computes, without", unguarded},
    {"busy: both compute", both},
};

CHECK_MAIN(cases)
