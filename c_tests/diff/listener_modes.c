/*
 * Error handling modes of clients and servers (rules.txt 2.12): a server whose mode is not the client's gets no
 * endpoint; error handlers of both ends are called in any mode (C7).
 */
#define _GNU_SOURCE
#include "listening.h"

#define NOT_GIVEN (-1)
#define NONE      UCP_ERR_HANDLING_MODE_NONE
#define PEER      UCP_ERR_HANDLING_MODE_PEER
#define TAG       0xb

static const ucp_request_param_t no_fields = {.op_attr_mask = 0};

static server_t server;
static client_t client;
static ucp_ep_h accepted;

/* The error handling mode given at each end. */
typedef struct {
    const char *name;
    int         client, server;
} case_t;

static void give_mode(ucp_ep_params_t *params, int mode)
{
    if (mode != NOT_GIVEN) {
        params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params->err_mode = (ucp_err_handling_mode_t)mode;
    }
}

static ucs_status_t connect_client(side_t *side, int mode)
{
    address_t       address = loopback(AF_INET, server.port);
    ucp_ep_params_t params  = {
        .field_mask  = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = &address.any, .addrlen = length_of(&address)},
        .err_handler = {.cb = on_client_failure, .arg = &client},
    };

    memset(&client, 0, sizeof(client));
    give_mode(&params, mode);
    return ucp_ep_create(side->worker, &params, &client.ep);
}

static ucs_status_t accept_client(const side_t *side, int mode)
{
    ucp_ep_params_t params = {
        .field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .conn_request = server.requests[0],
        .err_handler  = {.cb = on_failure, .arg = &server},
    };

    accepted = NULL;
    give_mode(&params, mode);
    return ucp_ep_create(side->worker, &params, &accepted);
}

/* A client connects and the server accepts or rejects it. */
static void meet(bed_t *bed, const case_t *c)
{
    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        must(bed->a, connect_client(bed->a, c->client), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        ucs_status_t status = accept_client(bed->b, c->server);
        rule(bed->b, "C7", "%s: accept: %s, endpoint %d", c->name, status_name(status), accepted != NULL);
    }
}

static void end_listening(bed_t *bed)
{
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* The message and its flush let UCX finish connecting: otherwise it may end both closes with other statuses. */
static void talk(bed_t *bed)
{
    static uint64_t  out = 5, in;
    ucs_status_ptr_t sent = NULL, received = NULL;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, &in, sizeof(in), TAG, -1, &no_fields);
    }
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(client.ep, &out, sizeof(out), TAG, &no_fields);
    }
    bed_wait(bed, sent);
    bed_wait(bed, received);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_ep_flush_nbx(client.ep, &no_fields));
    }
    bed_sync(bed);
}

/* Both ends have the client's mode. The server's handler is called when the client has closed. */
static void agreed_rules(bed_t *bed, const case_t *c)
{
    ucs_status_ptr_t close = NULL;

    meet(bed, c);
    talk(bed);
    if (bed->b != NULL && c->client != PEER) {
        rule(bed->b, "C7", "%s: the server's forced close: %s", c->name, status_name(force_close(bed, accepted)));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        close = ucp_ep_close_nbx(client.ep, &no_fields);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, close);
        rule(bed->a, "C7", "%s: the client's close: %s, failures %d", c->name, status_name(status), client.failures);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        int fails = UCS_PTR_IS_ERR(ucp_ep_close_nbx(accepted, &no_fields));
        rule(bed->b, "C7", "%s: the server: %d times, %d; its close fails %d", c->name, server.failures,
             is_end(server.failure), fails);
    }
    end_listening(bed);
}

/* Operations of a client whose connection attempt has failed. */
static void lost_client_rules(bed_t *bed, const char *name)
{
    static uint64_t value = 1;

    if (bed->a != NULL) {
        int send_fails  = UCS_PTR_IS_ERR(ucp_tag_send_nbx(client.ep, &value, sizeof(value), TAG, &no_fields));
        int flush_fails = UCS_PTR_IS_ERR(ucp_ep_flush_nbx(client.ep, &no_fields));
        int close_fails = UCS_PTR_IS_ERR(ucp_ep_close_nbx(client.ep, &no_fields));
        rule(bed->a, "C7", "%s: then fail: send %d, flush %d, close %d; failures %d", name, send_fails, flush_fails,
             close_fails, client.failures);
    }
}

/* The server gives another mode than the client has: neither end has a usable endpoint. */
static void refused_rules(bed_t *bed, const case_t *c)
{
    meet(bed, c);
    if (bed->a != NULL) {
        BED_UNTIL(bed, client.failures > 0);
        /* UCX 1.22 returns either. */
        int disconnected = client.failure == UCS_ERR_NOT_CONNECTED || client.failure == UCS_ERR_CONNECTION_RESET;
        rule(bed->a, "C7", "%s: the client: %d times, disconnected %d", c->name, client.failures, disconnected);
    }
    bed_sync(bed);
    lost_client_rules(bed, c->name);
    if (bed->b != NULL) {
        rule(bed->b, "C7", "%s: the server: %d times", c->name, server.failures);
    }
    end_listening(bed);
}

/* A client without error handling that is not accepted: its handler is called all the same. */
static void unhandled_rules(bed_t *bed, int listens)
{
    const char *name = listens ? "none, rejected" : "none, no listener";

    serve(bed, &server, AF_INET, 0);
    if (bed->b != NULL && !listens) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        must(bed->a, connect_client(bed->a, NONE), "ucp_ep_create");
    }
    if (bed->b != NULL && listens) {
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, ucp_listener_reject(server.listener, server.requests[0]), "ucp_listener_reject");
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, client.failures > 0);
        rule(bed->a, "C7", "%s: the client: %d times, %s", name, client.failures, status_name(client.failure));
    }
    bed_sync(bed);
    if (listens) {
        lost_client_rules(bed, name);
    } else if (bed->a != NULL) { /* a send would sometimes not return on UCX 1.22 */
        rule(bed->a, "C7", "%s: then fails: close %d", name, UCS_PTR_IS_ERR(ucp_ep_close_nbx(client.ep, &no_fields)));
    }
    if (bed->b != NULL && listens) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    static const case_t agreed[] = {
        {"not given, not given", NOT_GIVEN, NOT_GIVEN},
        {"none, not given", NONE, NOT_GIVEN},
        {"peer, not given", PEER, NOT_GIVEN},
        {"not given, none", NOT_GIVEN, NONE},
        {"none, none", NONE, NONE},
        {"peer, peer", PEER, PEER},
    };
    static const case_t differing[] = {
        {"peer, none", PEER, NONE},
        {"none, peer", NONE, PEER},
        {"not given, peer", NOT_GIVEN, PEER},
    };
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    for (size_t i = 0; i < sizeof(agreed) / sizeof(agreed[0]); i++) {
        agreed_rules(bed, &agreed[i]);
    }
    for (size_t i = 0; i < sizeof(differing) / sizeof(differing[0]); i++) {
        refused_rules(bed, &differing[i]);
    }
    unhandled_rules(bed, 1);
    unhandled_rules(bed, 0);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return listening_main(argc, argv, script);
}
