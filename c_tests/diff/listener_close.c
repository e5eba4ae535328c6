/*
 * How connections between clients and servers end (rules.txt 2.12): both ends take part in a flushing close (C2),
 * and an accepted endpoint handles errors as its client does (C1).
 */
#define _GNU_SOURCE
#include "listening.h"

#include <stdio.h>
#include <sys/mman.h>

#define TURNS 3000 /* progress calls in which no event may happen */

static server_t server;
static client_t client;
static ucp_ep_h accepted;

/* Shared by both processes: how often the handlers of both ends have run. */
static struct {
    volatile int handled;
} *shared;

static void on_peer_closed(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    if (arg == &client) {
        on_client_failure(arg, ep, status);
    } else {
        on_failure(arg, ep, status);
    }
    shared->handled++;
}

/* A case: error handling of the two ends, which of them closes first, whether messages were sent before. */
typedef struct {
    const char *name;
    int         handles_errors, server_first, talks;
} case_t;

static ucp_err_handling_mode_t mode_of(int handles_errors)
{
    return handles_errors ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
}

static ucs_status_t connect_client(side_t *side, ucp_err_handling_mode_t mode)
{
    address_t       address = loopback(AF_INET, server.port);
    ucp_ep_params_t params  = {
        .field_mask  = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = &address.any, .addrlen = length_of(&address)},
        .err_mode    = mode,
        .err_handler = {.cb = on_peer_closed, .arg = &client},
    };

    memset(&client, 0, sizeof(client));
    if (mode != UCP_ERR_HANDLING_MODE_NONE) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    }
    return ucp_ep_create(side->worker, &params, &client.ep);
}

/* No error handling mode is given: it is that of the client. */
static ucs_status_t accept_client(ucp_worker_h worker, int handler)
{
    ucp_ep_params_t params = {
        .field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST | (handler ? UCP_EP_PARAM_FIELD_ERR_HANDLER : 0u),
        .conn_request = server.requests[0],
        .err_handler  = {.cb = on_peer_closed, .arg = &server},
    };

    return ucp_ep_create(worker, &params, &accepted);
}

static void request_client(bed_t *bed, ucp_err_handling_mode_t mode)
{
    accepted        = NULL;
    shared->handled = 0;
    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        must(bed->a, connect_client(bed->a, mode), "ucp_ep_create");
    }
}

static void meet(bed_t *bed, ucp_err_handling_mode_t mode)
{
    request_client(bed, mode);
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, accept_client(bed->b->worker, mode != UCP_ERR_HANDLING_MODE_NONE), "ucp_ep_create");
    }
    bed_sync(bed);
}

/* One message in each direction; without any the two are still connected after a flush of the client. */
static void talk(bed_t *bed, int messages)
{
    static uint64_t     out = 5, in[2];
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    r[2] = {NULL, NULL}, s[2] = {NULL, NULL};

    if (bed->a != NULL && messages) {
        r[0] = ucp_tag_recv_nbx(bed->a->worker, &in[0], sizeof(in[0]), 0xa, -1, &param);
        s[0] = ucp_tag_send_nbx(client.ep, &out, sizeof(out), 0xb, &param);
    }
    if (bed->b != NULL && messages) {
        r[1] = ucp_tag_recv_nbx(bed->b->worker, &in[1], sizeof(in[1]), 0xb, -1, &param);
        s[1] = ucp_tag_send_nbx(accepted, &out, sizeof(out), 0xa, &param);
    }
    for (int i = 0; i < 2; i++) {
        bed_wait(bed, r[i]);
        bed_wait(bed, s[i]);
    }
    bed_sync(bed);
    for (int i = 0; i < TURNS; i++) {
        bed_progress(bed);
    }
    bed_sync(bed);
}

static void progress_alone(const side_t *side)
{
    for (int i = 0; i < TURNS; i++) {
        ucp_worker_progress(side->worker);
    }
}

/* --- one end closes --- */

typedef struct {
    unsigned     calls;
    int          handled; /* whether the handler of the other end had run when the close ended */
    ucs_status_t status;
} ended_t;

static ended_t ended[2];

static void on_closed(void *request, ucs_status_t status, void *user_data)
{
    ended_t *e = user_data;

    (void)request;
    e->calls++;
    e->status  = status;
    e->handled = shared->handled;
}

static ucs_status_ptr_t begin_close(ucp_ep_h ep, ended_t *e, uint32_t flags)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags        = flags,
        .cb.send      = on_closed,
        .user_data    = e,
    };

    memset(e, 0, sizeof(*e));
    return ucp_ep_close_nbx(ep, &param);
}

static void end_listening(bed_t *bed)
{
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* The status at an end whose peer has closed: UCX 1.13.1 has a status of its own. */
static void lost_rule(const side_t *side, const char *what, ucs_status_ptr_t result)
{
    const departure_t lost = {
        .name    = "C2",
        .why     = "what an end answers whose other end is closed has changed between versions of UCX",
        .on_1_13 = "ENDPOINT_TIMEOUT",
        .on_1_22 = "CONNECTION_RESET",
        .on_rucp = "CONNECTION_RESET",
    };

    rule(side, "C2", "%s fails %d", what, UCS_PTR_IS_ERR(result));
    rule_departs(side, &lost, ptr_status_name(result));
}

/* The first to close waits for the other end, whose handler, if it has one, reports the close. */
static void first_rules(bed_t *bed, const case_t *c)
{
    side_t  *first = c->server_first ? bed->b : bed->a, *other = c->server_first ? bed->a : bed->b;
    uint64_t value = 1;
    ucp_request_param_t none  = {.op_attr_mask = 0};
    ucs_status_ptr_t    close = NULL;
    const departure_t   before = {
        .name    = "C2",
        .why     = "the other end's handler runs before the close ends, in UCX mostly",
        .on_rucp = "1",
    };

    meet(bed, mode_of(c->handles_errors));
    talk(bed, c->talks);
    stand_still(bed, first);
    if (first != NULL) {
        close = begin_close(c->server_first ? accepted : client.ep, &ended[0], 0);
        rule(first, "C2", "%s: close: %s", c->name, ptr_status_name(close));
        if (bed->topology != TOPOLOGY_SELF) {
            progress_alone(first);
            rule(first, "C2", "%s: while the other end stands still: ended %u", c->name, ended[0].calls);
        }
        go_on(bed);
    }
    if (other != NULL && first == NULL) {
        wait_without_progress(bed);
    }
    if (first != NULL) {
        ucs_status_t status = bed_wait(bed, close);
        rule(first, "C2", "%s: then: %s, calls %u", c->name, status_name(status), ended[0].calls);
        rule_departs(first, &before, !c->handles_errors || ended[0].handled ? "1" : "0");
    }
    if (other != NULL && c->handles_errors) { /* UCX can be quicker to end the close */
        BED_UNTIL(bed, *(c->server_first ? &client.failures : &server.failures) > 0);
    }
    bed_sync(bed);
    if (other != NULL) {
        int          *failures = c->server_first ? &client.failures : &server.failures;
        ucs_status_t *failure  = c->server_first ? &client.failure : &server.failure;
        ucp_ep_h      ep       = c->server_first ? client.ep : accepted;
        rule(other, "C2", "%s: the other end: %d times, %d", c->name, *failures, *failures == 0 || is_end(*failure));
        lost_rule(other, "its send", ucp_tag_send_nbx(ep, &value, sizeof(value), 1, &none));
        lost_rule(other, "its close", begin_close(ep, &ended[1], 0));
        rule(other, "C2", "%s: callbacks of the other's close: %u", c->name, ended[1].calls);
    }
    end_listening(bed);
}

/* Both close before either has detected the other's close: neither gets a failure. */
static void crossing_rules(bed_t *bed, const case_t *c, uint32_t flags_of_server)
{
    ucs_status_ptr_t close[2] = {NULL, NULL};

    meet(bed, mode_of(c->handles_errors));
    talk(bed, c->talks);
    stand_still(bed, bed->a);
    if (bed->a != NULL) {
        close[0] = begin_close(client.ep, &ended[0], 0);
        progress_alone(bed->topology == TOPOLOGY_SELF ? &(side_t){.worker = bed->a->worker} : bed->a);
        go_on(bed);
    } else {
        wait_without_progress(bed);
    }
    if (bed->b != NULL) {
        close[1] = begin_close(accepted, &ended[1], flags_of_server);
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, close[0]);
        rule(bed->a, "C2", "%s: the client's close: %s, failures %d", c->name, status_name(status), client.failures);
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, close[1]);
        /* It may have detected the client's close or not: UCX returns OK, CANCELED or reset. */
        int over = status == UCS_OK || status == UCS_ERR_CANCELED || is_end(status);
        rule(bed->b, "C2", "%s: the server's close: over %d, failures %d", c->name, over, server.failures);
    }
    end_listening(bed);
}

/* --- a close before the request is accepted --- */

static void early_rules(bed_t *bed, int reject)
{
    const char      *what  = reject ? "rejected" : "not accepted yet";
    ucs_status_ptr_t close = NULL;

    request_client(bed, UCP_ERR_HANDLING_MODE_PEER);
    if (bed->a != NULL) {
        close = begin_close(client.ep, &ended[0], 0);
        rule(bed->a, "C2", "%s: close: %s", what, ptr_status_name(close));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        if (reject) {
            must(bed->b, ucp_listener_reject(server.listener, server.requests[0]), "ucp_listener_reject");
        } else {
            rule(bed->b, "C2", "%s: accept: %s", what, status_name(accept_client(bed->b->worker, 1)));
        }
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, close);
        rule(bed->a, "C2", "%s: then: %s, calls %u, failures %d", what, status_name(status), ended[0].calls,
             client.failures);
    }
    if (bed->b != NULL && !reject) {
        BED_UNTIL(bed, server.failures > 0);
        rule(bed->b, "C2", "%s: the server: %d times, %d", what, server.failures, is_end(server.failure));
        lost_rule(bed->b, "its close", begin_close(accepted, &ended[1], 0));
    }
    end_listening(bed);
}

/* The other end's worker is destroyed with its endpoint open. */
static void destroyed_rules(bed_t *bed, int handles_errors)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker = NULL;
    ucs_status_ptr_t    close  = NULL;

    request_client(bed, mode_of(handles_errors));
    if (bed->b != NULL) {
        must(bed->b, ucp_worker_create(bed->b->context, &params, &worker), "ucp_worker_create");
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, accept_client(worker, handles_errors), "ucp_ep_create");
    }
    bed_sync(bed);
    talk(bed, 0);
    if (bed->a != NULL) {
        close = begin_close(client.ep, &ended[0], 0);
        progress_alone(bed->a);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        rule(bed->a, "C2", "before the other's worker goes: ended %u", ended[0].calls);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_worker_destroy(worker);
    }
    if (bed->a != NULL) {
        /* One of several statuses; without error handling UCX sometimes returns OK. */
        ucs_status_t status = bed_wait(bed, close);
        rule(bed->a, "C2", "the other's worker goes: ended, calls %u, fails %d", ended[0].calls,
             !handles_errors || status != UCS_OK);
    }
    end_listening(bed);
}

/* --- the mode of an accepted endpoint --- */

typedef struct {
    const char             *name, *what; /* of the rule */
    ucp_err_handling_mode_t mode;        /* of the client */
    ucs_status_t (*close)(bed_t *bed, ucp_ep_h ep);
} forced_t;

static ucs_status_t old_force_close(bed_t *bed, ucp_ep_h ep)
{
    return bed_wait(bed, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE));
}

static void forced_rules(bed_t *bed, const forced_t *f)
{
    meet(bed, f->mode);
    talk(bed, 1);
    if (bed->a != NULL) {
        rule(bed->a, f->name, "%sthe client's forced close: %s", f->what, status_name(f->close(bed, client.ep)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
        rule(bed->b, f->name, "%saccepted without a mode: the handler ran %d times, %d", f->what, server.failures,
             is_end(server.failure));
        rule(bed->b, f->name, "%sits forced close: %s", f->what, status_name(f->close(bed, accepted)));
    }
    end_listening(bed);
    meet(bed, f->mode);
    if (bed->b != NULL) {
        rule(bed->b, f->name, "%sa forced close at once: %s", f->what, status_name(f->close(bed, accepted)));
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, client.failures > 0);
        rule(bed->a, f->name, "%sthe client's handler: %d times", f->what, client.failures);
        f->close(bed, client.ep);
    }
    end_listening(bed);
}

static void mode_rules(bed_t *bed)
{
    static const forced_t cases[] = {
        {.name = "C1", .what = "", .mode = UCP_ERR_HANDLING_MODE_PEER, .close = force_close},
        {.name = "F4", .what = "ucp_ep_close_nb: ", .mode = UCP_ERR_HANDLING_MODE_PEER, .close = old_force_close},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        forced_rules(bed, &cases[i]);
    }
}

static void script(bed_t *bed)
{
    static const case_t first[] = {
        {"client", 1, 0, 1}, {"silent client", 1, 0, 0}, {"client, no error handling", 0, 0, 1},
        {"server", 1, 1, 1}, {"silent server", 1, 1, 0}, {"server, no error handling", 0, 1, 1},
    };
    static const case_t crossing[] = {
        {"both", 1, 0, 1}, {"both, silent", 1, 0, 0}, {"both, no error handling", 0, 0, 1},
    };
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    mode_rules(bed);
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        first_rules(bed, &first[i]);
    }
    if (bed->topology != TOPOLOGY_SELF) { /* one worker cannot stop progressing while it progresses */
        for (size_t i = 0; i < sizeof(crossing) / sizeof(crossing[0]); i++) {
            crossing_rules(bed, &crossing[i], 0);
        }
        crossing_rules(bed, &(case_t){"the server's by force", 1, 0, 1}, UCP_EP_CLOSE_FLAG_FORCE);
    }
    early_rules(bed, 0);
    early_rules(bed, 1);
    destroyed_rules(bed, 1);
    destroyed_rules(bed, 0);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return listening_main(argc, argv, script);
}
