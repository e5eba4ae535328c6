/*
 * Peers that close their endpoint, destroy their worker or exit, on endpoints that handle errors. (UCX does not use
 * shared memory for such endpoints, so there is no reference: rules 2.3 of c_tests/diff/rules.txt say what must be
 * seen.)
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "party.h"
#include "workers.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

static void close_forced(party_t *self)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    finish(self, ucp_ep_close_nbx(self->ep, &force));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

static void close_flushing(party_t *self)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    finish(self, ucp_ep_close_nbx(self->ep, &param));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

static void destroy_worker(party_t *self)
{
    ucp_worker_destroy(self->worker);
}

static void leave_at_once(party_t *self)
{
    if (!check_failed()) {
        notify_peer(self);
    }
    exit(0);
}

static void leave_orderly(party_t *self)
{
    close_flushing(self);
    destroy_worker(self);
    leave_at_once(self);
}

static void lost_by(void (*act)(party_t *))
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(wait_notified(&self));
    check_failure(&self);
    kill_other(&self);
    check_after_failure(&self);
}

static void other_forces(void)
{
    lost_by(close_forced);
}

static void other_closes(void)
{
    lost_by(close_flushing);
}

/* Closes in order. The peer progresses a step for each step of this process: over UD it has to acknowledge. */
static void close_in_turns(party_t *self)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    close = ucp_ep_close_nbx(self->ep, &param);

    while (UCS_PTR_IS_PTR(close) && ucp_request_check_status(close) == UCS_INPROGRESS) {
        ucp_worker_progress(self->worker);
        WANT_TRUE(send(self->link, "s", 1, MSG_NOSIGNAL) == 1);
    }
    WANT(UCS_OK, finish(self, close));
    notify_peer(self);
}

static void take_turns(party_t *self)
{
    char byte = 's';

    while (byte == 's' && recv(self->link, &byte, 1, 0) == 1) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(byte == 't');
}

/*
 * A close in order after the peer has closed in order, and perhaps exited, raises no error. The grace period is three
 * liveness checks, 0.2 s apart, of this process's own progress from when it detects the close: so it makes none while
 * the peer is not running. 0: this process made progress for so long that the grace may have been over.
 */
static int close_in_grace(void (*act)(party_t *), int other_goes)
{
    party_t             self;
    ucp_request_param_t flush = {.op_attr_mask = 0};
    ucs_status_t        status;
    double              began, progressed;
    int                 in_time;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, act);
    began = seconds_now();
    take_turns(&self);
    progressed = seconds_now() - began;
    wait_notified_blocking(&self);
    if (other_goes) {
        wait_other(&self);
    }
    began = seconds_now();
    /* Few calls: on a busy machine each can yield the core for a while. */
    for (int i = 0; i < 20; i++) {
        ucp_worker_progress(self.worker);
    }
    status = finish(&self, ucp_ep_close_nbx(self.ep, &flush));
    progressed += seconds_now() - began;
    in_time = progressed < 0.2;
    if (!other_goes) {
        kill_other(&self);
    }
    /* longer than the grace period */
    for (time_t end = time(NULL) + 2; in_time && time(NULL) < end;) {
        ucp_worker_progress(self.worker);
    }
    if (in_time) {
        WANT(UCS_OK, status);
        WANT_TRUE(self.failures == 0);
    }
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
    return in_time;
}

static void closes_last(void (*act)(party_t *), int other_goes)
{
    int in_time = 0;

    for (int i = 0; i < 20 && !in_time; i++) {
        in_time = close_in_grace(act, other_goes);
    }
    WANT_TRUE(in_time);
}

static void close_first(party_t *self)
{
    close_in_turns(self);
    /* Over datagrams a peer that does not progress acknowledges nothing. */
    if (!transport_has("delivery")) {
        notify_peer(self);
        progress_until_killed(self);
    }
}

static void leave_first(party_t *self)
{
    close_in_turns(self);
    destroy_worker(self);
    leave_at_once(self);
}

static void both_close(void)
{
    closes_last(close_first, 0);
}

static void both_leave(void)
{
    closes_last(leave_first, 1);
}

static void other_destroys(void)
{
    lost_by(destroy_worker);
}

static void other_leaves(void)
{
    lost_by(leave_orderly);
}

static void other_exits(void)
{
    lost_by(leave_at_once);
}

static const case_t cases[] = {
    {"departed: the other forces", other_forces},
    {"departed: the other closes", other_closes},
    {"departed: both close", both_close},
    {"departed: both close, the other leaves", both_leave},
    {"departed: the other destroys its worker", other_destroys},
    {"departed: the other leaves in order", other_leaves},
    {"departed: the other exits", other_exits},
};

CHECK_MAIN(cases)
