/*
 * A receiver has receives posted for everything that the sender's window allows, however seldom it polls: without one,
 * the device would retry a millisecond later (RNR), and delay the packets behind.
 *
 * To be run with HCACTL.
 */
#define _GNU_SOURCE
#include "counters.h"
#include "party.h"

#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 400, SHORT = 8, MIDDLE = 8000, LONG = 4 << 20 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static void receive_all(party_t *self, size_t size, int messages)
{
    unsigned char   *bytes = calloc((size_t)messages, size);
    ucs_status_ptr_t requests[MESSAGES];

    for (int i = 0; i < messages; i++) {
        requests[i] = ucp_tag_recv_nbx(self->worker, bytes + (size_t)i * size, size, 1, -1, &none);
    }
    notify_peer(self);
    /* Everything that fits the window is sent before either end polls. */
    wait_notified_blocking(self);
    for (int i = 0; i < messages; i++) {
        WANT(UCS_OK, finish(self, requests[i]));
        WANT_TRUE(bytes[(size_t)i * size] == i % 256 && bytes[(size_t)(i + 1) * size - 1] == i % 256);
    }
    free(bytes);
}

static void send_all(party_t *self, size_t size, int messages)
{
    unsigned char   *bytes = malloc((size_t)messages * size);
    ucs_status_ptr_t requests[MESSAGES];

    WANT_TRUE(wait_notified(self));
    for (int i = 0; i < messages; i++) {
        memset(bytes + (size_t)i * size, i % 256, size);
        requests[i] = send_tag(self, bytes + (size_t)i * size, size);
    }
    for (int turn = 0; turn < 1000; turn++) {
        ucp_worker_progress(self->worker);
    }
    notify_peer(self);
    for (int i = 0; i < messages; i++) {
        WANT(UCS_OK, finish(self, requests[i]));
    }
    WANT_TRUE(wait_notified(self));
    free(bytes);
}

static void receives(party_t *self)
{
    for (int round = 0; round < 3; round++) {
        receive_all(self, SHORT, MESSAGES);
        notify_peer(self);
        receive_all(self, MIDDLE, MESSAGES);
        notify_peer(self);
        receive_all(self, LONG, 4);
        notify_peer(self);
    }
    notify_peer(self);
}

static void always(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, receives);
    for (int round = 0; round < 3; round++) {
        send_all(&self, SHORT, MESSAGES);
        send_all(&self, MIDDLE, MESSAGES);
        send_all(&self, LONG, 4);
    }
    WANT_TRUE(has_counters());
    WANT_TRUE(counter("not_ready") == 0);
    kill_and_check(&self);
}

static const case_t cases[] = {
    {"ready: a receive for every packet", always},
};

CHECK_MAIN(cases)
