/*
 * Flushes and closes with NO_IMM_CMPL: never NULL, as the header says, but a request whose callback is called once
 * (rules.txt 2.1, R6).
 *
 * UCX returns NULL in spite of the flag when nothing is outstanding. Behind a put something always is with it, so that
 * programs written for UCX use the result unchecked (LCI v1). On rucp a put completes in its call wherever it can,
 * which is why the flag applies without outstanding operations, too: that half of the rule is rucp's alone.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4096 };

#define CALLED "OK, calls 1 with OK, its request 1, user data 1"

/* A's view of B: its address, and a packed key of the window. */
typedef struct {
    char address[BED_ADDRESS_MAX], key[PACKED_KEY_MAX];
} remote_t;

typedef struct {
    unsigned     calls;
    void        *request, *user_data;
    ucs_status_t status;
} called_t;

static called_t called;

static void on_end(void *request, ucs_status_t status, void *user_data)
{
    called_t *h = user_data;

    h->calls++;
    h->request   = request;
    h->user_data = user_data;
    h->status    = status;
}

typedef enum { EP_FLUSH, WORKER_FLUSH, EP_CLOSE, OPERATIONS } operation_t;

static const char *const names[] = {"flush of an endpoint", "flush of a worker", "close"};

static ucs_status_ptr_t begin(operation_t operation, ucp_worker_h worker, ucp_ep_h ep)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send      = on_end,
        .user_data    = &called,
    };

    memset(&called, 0, sizeof(called));
    switch (operation) {
    case EP_FLUSH: return ucp_ep_flush_nbx(ep, &param);
    case WORKER_FLUSH: return ucp_worker_flush_nbx(worker, &param);
    default: return ucp_ep_close_nbx(ep, &param);
    }
}

/* An endpoint to be closed, with a key of its own for the window. */
static ucp_ep_h another_endpoint(bed_t *bed, const remote_t *remote, ucp_rkey_h *rkey)
{
    ucp_ep_h ep = bed_connect(bed->a, remote->address);

    must(bed->a, ucp_ep_rkey_unpack(ep, remote->key, rkey), "ucp_ep_rkey_unpack");
    return ep;
}

/*
 * Behind a put of its own: a request on every library, except UCX where both ends are one worker; its put completes in
 * the call there, too.
 */
static void busy_rules(bed_t *bed, operation_t operation, const window_t *window, const remote_t *remote,
                       const void *data)
{
    const departure_t own = {
        .name    = "R6",
        .why     = "UCX has nothing outstanding behind a put to the worker itself",
        .on_rucp = "a request",
    };
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucp_rkey_h          rkey = window->rkey;
    ucp_ep_h            ep   = bed->a->ep;

    if (operation == EP_CLOSE) {
        ep = another_endpoint(bed, remote, &rkey);
    }
    ucs_status_ptr_t put  = ucp_put_nbx(ep, data, LENGTH, window->remote, rkey, &none);
    ucs_status_ptr_t end  = begin(operation, bed->a->worker, ep);
    char             text[96];
    const char      *what = UCS_PTR_IS_PTR(end) ? "a request" : ptr_status_name(end);
    if (bed->topology == TOPOLOGY_SELF) {
        rule_departs(bed->a, &own, what);
    } else {
        rule(bed->a, "R6", "%s behind a put: %s", names[operation], what);
    }
    if (UCS_PTR_IS_PTR(end)) {
        BED_UNTIL(bed, ucp_request_check_status(end) != UCS_INPROGRESS);
        snprintf(text, sizeof(text), "%s, calls %u with %s, its request %d, user data %d",
                 status_name(ucp_request_check_status(end)), called.calls, status_name(called.status),
                 called.request == end, called.user_data == &called);
        ucp_request_free(end);
    }
    rule(bed->a, "R6", "%s: the put: %s", names[operation], status_name(bed_wait(bed, put)));
    if (!UCS_PTR_IS_PTR(end)) {
        snprintf(text, sizeof(text), "%s", CALLED); /* no callback is due, which the fact states already */
    }
    rule(bed->a, "R6", "%s: %s", names[operation], text);
    if (operation == EP_CLOSE) {
        ucp_rkey_destroy(rkey);
    }
}

/* Without outstanding operations: rucp's request has completed when the call returns. */
static void idle_rules(bed_t *bed, operation_t operation, const remote_t *remote)
{
    const departure_t idle = {
        .name    = "R6",
        .why     = "UCX gives NULL where nothing is outstanding, against its header",
        .on_rucp = "complete 1, calls 1 with OK, its request 1",
    };
    ucp_ep_h ep       = operation == EP_CLOSE ? bed_connect(bed->a, remote->address) : bed->a->ep;
    char     text[96] = "";

    bed_wait(bed, begin(WORKER_FLUSH, bed->a->worker, NULL));
    ucs_status_ptr_t end = begin(operation, bed->a->worker, ep);
    if (on_rucp() && UCS_PTR_IS_PTR(end)) {
        snprintf(text, sizeof(text), "complete %d, calls %u with %s, its request %d", ucp_request_is_completed(end),
                 called.calls, status_name(called.status), called.request == end);
    }
    rule_departs(bed->a, &idle, text);
    rule(bed->a, "R6", "%s of what is idle: %s", names[operation], status_name(bed_wait(bed, end)));
}

/* Without the flag, and with callback and request area given: NULL, and no callback. */
static void plain_rules(bed_t *bed, operation_t operation)
{
    static char         memory[4096];
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .request      = memory + sizeof(memory),
        .cb.send      = on_end,
        .user_data    = &called,
    };

    bed_wait(bed, begin(WORKER_FLUSH, bed->a->worker, NULL));
    memset(&called, 0, sizeof(called));
    ucs_status_ptr_t end = operation == EP_FLUSH ? ucp_ep_flush_nbx(bed->a->ep, &param)
                                                 : ucp_worker_flush_nbx(bed->a->worker, &param);
    rule(bed->a, "R6", "%s of what is idle, without the flag: %s, calls %u", names[operation],
         end == NULL ? "NULL" : "not NULL", called.calls);
}

static void script(bed_t *bed)
{
    static remote_t remote;
    static char     own[BED_ADDRESS_MAX];
    bed_params_t    params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    window_t        window;
    void           *data = data_make(LENGTH, 4);

    bed_open(bed, &params);
    bed_exchange_addresses(bed, remote.address, own);
    window_open(bed, &window, WINDOW_MALLOCED, LENGTH);
    window_carry_key(bed, window.memh, remote.key);
    for (int i = 0; i < OPERATIONS; i++) {
        if (i == EP_CLOSE && bed->topology == TOPOLOGY_SELF) {
            continue; /* UCX 1.22 crashes when a worker closes an endpoint to itself so */
        }
        if (bed->a != NULL) {
            busy_rules(bed, (operation_t)i, &window, &remote, data);
            idle_rules(bed, (operation_t)i, &remote);
            if (i != EP_CLOSE) {
                plain_rules(bed, (operation_t)i);
            }
        }
        bed_sync(bed);
    }
    if (bed->b != NULL) {
        rule(bed->b, "R6", "what was put: %s", data_check(window.memory, LENGTH, 4));
    }
    window_close(bed, &window);
    bed_close(bed);
    free(data);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
