/*
 * Flushes beside connections of clients and servers (rules.txt 2.4, 2.12): a flush waits until a client's endpoint is
 * connected, and for messages before a close (C8), but not for the other end's part in a close (C9).
 */
#define _GNU_SOURCE
#include "../transport.h"
#include "listening.h"

#include <stdio.h>

#define TURNS  30000 /* progress calls in which no event may happen */
#define TAG    0xb
#define LENGTH 8000
#define MANY   2500 /* messages: more than the buffers between two processes hold */
#define ENDS   2

static const ucp_request_param_t no_fields = {.op_attr_mask = 0};

static server_t         server;
static client_t         clients[ENDS];
static ucp_ep_h         accepted[ENDS];
static ucs_status_ptr_t sent[MANY], received[MANY];
static char             out[LENGTH], in[LENGTH];

static const char *state_of(ucs_status_ptr_t request)
{
    return UCS_PTR_IS_PTR(request) ? status_name(ucp_request_check_status(request)) : ptr_status_name(request);
}

static void progress_alone(const bed_t *bed)
{
    for (int i = 0; i < TURNS && bed->topology != TOPOLOGY_SELF; i++) {
        ucp_worker_progress(bed->a->worker);
    }
}

/* --- clients and servers --- */

static void request_client(bed_t *bed, client_t *client)
{
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, client, &address), "ucp_ep_create");
    }
}

static void accept_client(bed_t *bed, int number)
{
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > number);
        must(bed->b, accept_request(&server, bed->b->worker, server.requests[number], &accepted[number]),
             "ucp_ep_create");
    }
}

static void meet(bed_t *bed, int number)
{
    request_client(bed, &clients[number]);
    accept_client(bed, number);
    bed_sync(bed);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_ep_flush_nbx(clients[number].ep, &no_fields));
    }
    bed_sync(bed);
}

static void send_messages(int count)
{
    for (int i = 0; i < count; i++) {
        sent[i] = ucp_tag_send_nbx(clients[0].ep, out, LENGTH, TAG, &no_fields);
    }
}

static void receive_messages(const side_t *side, int count)
{
    for (int i = 0; i < count; i++) {
        received[i] = ucp_tag_recv_nbx(side->worker, in, LENGTH, TAG, -1, &no_fields);
    }
}

static void wait_for_messages(bed_t *bed, const side_t *side, ucs_status_ptr_t *requests, int count, const char *what)
{
    int good = 0;

    for (int i = 0; i < count; i++) {
        good += bed_wait(bed, requests[i]) == UCS_OK;
        requests[i] = NULL;
    }
    rule(side, "C8", "%s %d", what, good);
}

static void end_server(bed_t *bed, int ends)
{
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures >= ends);
        for (int i = 0; i < ends; i++) {
            int fails = UCS_PTR_IS_ERR(ucp_ep_close_nbx(accepted[i], &no_fields));
            rule(bed->b, "C8", "the server's close fails %d", fails);
        }
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* --- flushes of an endpoint that is not connected --- */

typedef enum { ACCEPTED, CLOSED, REJECTED } answer_t;

static void early_flush_rules(bed_t *bed, answer_t answer, int messages)
{
    static const char *names[] = {"accepted", "closed and accepted", "rejected"};
    const char        *name    = names[answer];
    ucs_status_ptr_t   flush = NULL, all = NULL, close = NULL;

    serve(bed, &server, AF_INET, 0);
    request_client(bed, &clients[0]);
    stand_still(bed, bed->a);
    if (bed->a != NULL) {
        send_messages(messages);
        flush = ucp_ep_flush_nbx(clients[0].ep, &no_fields);
        all   = ucp_worker_flush_nbx(bed->a->worker, &no_fields);
        if (answer == CLOSED) {
            close = ucp_ep_close_nbx(clients[0].ep, &no_fields);
        }
        progress_alone(bed);
        rule(bed->a, "C8", "%d messages, to be %s: flush %s, of the worker %s, close %s", messages, name,
             state_of(flush), state_of(all), state_of(close));
        go_on(bed);
    } else {
        wait_without_progress(bed);
    }
    if (answer != REJECTED) {
        accept_client(bed, 0);
    } else if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, ucp_listener_reject(server.listener, server.requests[0]), "ucp_listener_reject");
    }
    if (bed->b != NULL && answer != REJECTED) {
        receive_messages(bed->b, messages);
        wait_for_messages(bed, bed->b, received, messages, "messages that arrived:");
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, flush);
        rule(bed->a, "C8", "%d messages, %s: flush %s, of the worker %s", messages, name, status_name(status),
             status_name(bed_wait(bed, all)));
        wait_for_messages(bed, bed->a, sent, messages, "sends that ended well:");
        if (answer != CLOSED) {
            close = ucp_ep_close_nbx(clients[0].ep, &no_fields);
        }
        if (answer == REJECTED) {
            rule(bed->a, "C8", "rejected: close fails %d, failures %d", UCS_PTR_IS_ERR(close), clients[0].failures);
        } else {
            status = bed_wait(bed, close);
            rule(bed->a, "C8", "%s: close %s, failures %d", name, status_name(status), clients[0].failures);
        }
    }
    end_server(bed, answer != REJECTED);
}

/* --- flushes of the worker beside a close --- */

/* Over ud the peer's worker acknowledges packets, also that of a close: a flush waits for its progress. */
static int acknowledged_by_progress(void)
{
    return !transport_has("delivery");
}

/* Nothing is in flight: the close waits for the server, and no flush waits for the close. */
static void idle_close_rules(bed_t *bed)
{
    ucs_status_ptr_t close = NULL, all = NULL;

    serve(bed, &server, AF_INET, 0);
    meet(bed, 0);
    stand_still(bed, bed->a);
    if (bed->a != NULL) {
        close = ucp_ep_close_nbx(clients[0].ep, &no_fields);
        all   = ucp_worker_flush_nbx(bed->a->worker, &no_fields);
        progress_alone(bed);
        /* By rdma_cm the kernel answers UCX's close; else it waits (C2). */
        rule(bed->a, "C9", "nothing was sent: flush %s", acknowledged_by_progress() ? "OK" : state_of(all));
        go_on(bed);
        bed_wait(bed, all);
        rule(bed->a, "C9", "nothing was sent: then close %s", status_name(bed_wait(bed, close)));
    } else {
        wait_without_progress(bed);
    }
    end_server(bed, 1);
}

/* Messages are in flight on the first endpoint; `forced`: a second one to the worker is closed by force meanwhile. */
static void busy_close_rules(bed_t *bed, int forced)
{
    const char      *name  = forced ? "a forced close beside it" : "much was sent";
    ucs_status_ptr_t close = NULL, all = NULL;

    serve(bed, &server, AF_INET, 0);
    for (int i = 0; i <= forced; i++) {
        meet(bed, i);
    }
    stand_still(bed, bed->a);
    if (bed->a != NULL) {
        send_messages(MANY);
        close = ucp_ep_close_nbx(clients[0].ep, &no_fields);
        all   = ucp_worker_flush_nbx(bed->a->worker, &no_fields);
        if (forced) {
            ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
            bed_wait(bed, ucp_ep_close_nbx(clients[1].ep, &force));
        }
        progress_alone(bed);
        if (bed->topology != TOPOLOGY_SELF) {
            rule(bed->a, "C9", "%s: close %s, flush %s", name, state_of(close), state_of(all));
        }
        go_on(bed);
    } else {
        wait_without_progress(bed);
    }
    if (bed->b != NULL) {
        receive_messages(bed->b, MANY);
        wait_for_messages(bed, bed->b, received, MANY, "messages that arrived:");
    }
    if (bed->a != NULL) {
        rule(bed->a, "C9", "%s: then flush %s", name, status_name(bed_wait(bed, all)));
        rule(bed->a, "C9", "%s: then close %s", name, status_name(bed_wait(bed, close)));
        wait_for_messages(bed, bed->a, sent, MANY, "sends that ended well:");
    }
    end_server(bed, 1 + forced);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    early_flush_rules(bed, ACCEPTED, 0);
    early_flush_rules(bed, ACCEPTED, 3);
    early_flush_rules(bed, CLOSED, 0);
    early_flush_rules(bed, CLOSED, 3);
    early_flush_rules(bed, REJECTED, 0);
    idle_close_rules(bed);
    busy_close_rules(bed, 0);
    busy_close_rules(bed, 1);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return listening_main(argc, argv, script);
}
