/*
 * Client and server: listeners, connection requests, endpoints by socket address, and the failures of each
 * (rules.txt 2.12, and 2.3 for the failures).
 */
#define _GNU_SOURCE
#include "listening.h"

/* --- facts --- */

static void parameter_facts(side_t *side)
{
    server_t              server  = {.side = side};
    address_t             address = loopback(AF_INET, 0);
    ucp_listener_params_t params  = {
        .sockaddr       = {.addr = &address.any, .addrlen = length_of(&address)},
        .accept_handler = {.cb = on_accept, .arg = &server},
        .conn_handler   = {.cb = on_request, .arg = &server},
    };
    const struct {
        const char *what;
        uint64_t    mask;
    } masks[] = {
        {"nothing", 0},
        {"no handler", UCP_LISTENER_PARAM_FIELD_SOCK_ADDR},
        {"no address", UCP_LISTENER_PARAM_FIELD_CONN_HANDLER},
        {"both handlers", UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER |
                              UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER},
    };

    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        params.field_mask = masks[i].mask;
        fact(side, "listen with %s: %s", masks[i].what,
             status_name(ucp_listener_create(side->worker, &params, &server.listener)));
    }
    params.field_mask      = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.conn_handler.cb = NULL;
    rule(side, "C4", "listen without a function for requests: %s",
         status_name(ucp_listener_create(side->worker, &params, &server.listener)));
    params.field_mask        = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER;
    params.accept_handler.cb = NULL;
    rule(side, "C4", "listen without a function for endpoints: %s",
         status_name(ucp_listener_create(side->worker, &params, &server.listener)));
}

/* Addresses that can be listened on, and others that cannot. */
static void address_facts(side_t *side)
{
    server_t            server = {.side = side}, second = {.side = side};
    int                 families[] = {AF_INET, AF_INET6};
    ucp_listener_attr_t attr       = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};

    for (int i = 0; i < 2; i++) {
        address_t    address = loopback(families[i], 0);
        ucs_status_t status  = listen_at(&server, &address, 0);
        fact(side, "listen on %s loopback: %s", family_name(&address), status_name(status));
        if (status != UCS_OK) {
            continue;
        }
        status = ucp_listener_query(server.listener, &attr);
        fact(side, "query: %s, %s, loopback %d, port given %d", status_name(status), family_name(&attr.sockaddr),
             is_loopback(&attr.sockaddr), port_of(&attr.sockaddr) != 0);
        address = loopback(families[i], port_of(&attr.sockaddr));
        fact(side, "the same port again: %s", status_name(listen_at(&second, &address, 0)));
        memset(&attr.sockaddr, 0xa5, sizeof(attr.sockaddr));
        attr.field_mask = 0;
        status          = ucp_listener_query(server.listener, &attr);
        fact(side, "query of nothing: %s, untouched %d", status_name(status),
             data_is(&attr.sockaddr, sizeof(attr.sockaddr), 0xa5));
        attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
        ucp_listener_destroy(server.listener);
        status = listen_at(&server, &address, 0);
        fact(side, "the same port after destroy: %s", status_name(status));
        if (status == UCS_OK) {
            ucp_listener_destroy(server.listener);
        }
    }
    address_t any = {.v4 = {.sin_family = AF_INET}};
    fact(side, "listen on any address: %s", status_name(listen_at(&server, &any, 0)));
    fact(side, "query: %s, port given %d", status_name(ucp_listener_query(server.listener, &attr)),
         port_of(&attr.sockaddr) != 0);
    ucp_listener_destroy(server.listener);
    address_t foreign              = loopback(AF_INET, 0);
    foreign.v4.sin_addr.s_addr     = htonl(0xcb007107); /* 203.0.113.7, of no host */
    fact(side, "listen on a foreign address: %s", status_name(listen_at(&server, &foreign, 0)));
}

/* One message in each direction. */
static void exchange(bed_t *bed, const char *what, ucp_ep_h client, ucp_ep_h server, ucp_worker_h server_worker,
                     size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent[2] = {NULL, NULL}, received[2] = {NULL, NULL};
    char               *out = data_make(size, 3), *to_a = calloc(1, size), *to_b = calloc(1, size);

    if (bed->a != NULL) {
        received[0] = ucp_tag_recv_nbx(bed->a->worker, to_a, size, 0xa, -1, &param);
        sent[0]     = ucp_tag_send_nbx(client, out, size, 0xb, &param);
    }
    if (bed->b != NULL) {
        received[1] = ucp_tag_recv_nbx(server_worker, to_b, size, 0xb, -1, &param);
        sent[1]     = ucp_tag_send_nbx(server, out, size, 0xa, &param);
    }
    if (bed->a != NULL) {
        const char *got = status_name(bed_wait(bed, received[0]));
        fact(bed->a, "%s: received %zu: %s, %s", what, size, got, data_check(to_a, size, 3));
        fact(bed->a, "%s: sent: %s", what, status_name(bed_wait(bed, sent[0])));
    }
    if (bed->b != NULL) {
        const char *got = status_name(bed_wait(bed, received[1]));
        fact(bed->b, "%s: received %zu: %s, %s", what, size, got, data_check(to_b, size, 3));
        fact(bed->b, "%s: sent: %s", what, status_name(bed_wait(bed, sent[1])));
    }
    bed_sync(bed);
    free(out);
    free(to_a);
    free(to_b);
}

/* The socket addresses of both ends as each reports them; they are exchanged. */
static void socket_facts(bed_t *bed, ucp_ep_h client, ucp_ep_h server, uint16_t port)
{
    uint16_t ports[2] = {0, 0}, theirs[2] = {0, 0};
    side_t  *sides[]  = {bed->a, bed->b};
    ucp_ep_h eps[]    = {client, server};

    for (int i = 0; i < 2; i++) {
        ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};
        if (sides[i] == NULL) {
            continue;
        }
        ucs_status_t status = ucp_ep_query(eps[i], &attr);
        fact(sides[i], "ep_query: %s, local %s %d, remote %s %d", status_name(status),
             family_name(&attr.local_sockaddr), is_loopback(&attr.local_sockaddr), family_name(&attr.remote_sockaddr),
             is_loopback(&attr.remote_sockaddr));
        ports[0] = port_of(&attr.local_sockaddr);
        ports[1] = port_of(&attr.remote_sockaddr);
        if (i == 0) {
            fact(sides[i], "the remote port is the listener's: %d", ports[1] == port);
            bed_transfer(bed, bed->a, ports, sizeof(ports), theirs, sizeof(ports));
        }
    }
    if (bed->b != NULL && bed->a == NULL) {
        bed_transfer(bed, NULL, NULL, 0, theirs, sizeof(theirs));
    }
    fact(bed->b, "the local port is the listener's: %d, the remote one the client's local one: %d", ports[0] == port,
         ports[1] == theirs[0]);
    bed_sync(bed);
}

/* The usual sequence: connect, accept, messages, close. */
static void connection_facts(bed_t *bed, int family, int inside, const char *what)
{
    static server_t server;
    client_t        client = {.ep = NULL};
    ucp_ep_h        ep     = NULL;

    serve(bed, &server, family, 0);
    server.accept_inside = inside;
    if (bed->a != NULL) {
        address_t address = loopback(family, server.port);
        fact(bed->a, "%s: connect: %s", what, status_name(connect_to_server(bed->a->worker, &client, &address)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        ucp_conn_request_attr_t attr = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
        if (inside) {
            fact(bed->b, "%s: accepted in the handler: %s", what, status_name(server.inside_status));
            ep = server.accepted;
        } else {
            ucs_status_t status = ucp_conn_request_query(server.requests[0], &attr);
            fact(bed->b, "%s: request: %s, from %s, loopback %d, port %d", what, status_name(status),
                 family_name(&attr.client_address), is_loopback(&attr.client_address),
                 port_of(&attr.client_address) != 0);
            fact(bed->b, "%s: accept: %s", what,
                 status_name(accept_request(&server, bed->b->worker, server.requests[0], &ep)));
        }
        fact(bed->b, "%s: requests %d, in create %d", what, server.count, server.called_in_call);
    }
    bed_sync(bed);
    exchange(bed, what, client.ep, ep, bed->b != NULL ? bed->b->worker : NULL, 8);
    exchange(bed, what, client.ep, ep, bed->b != NULL ? bed->b->worker : NULL, 300000);
    socket_facts(bed, client.ep, ep, server.port);
    fact(bed->a, "%s: failures %d", what, client.failures);
    if (bed->a != NULL) {
        fact(bed->a, "%s: close: %s", what, status_name(bed_disconnect(bed, client.ep)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
        fact(bed->b, "%s: the client's closing: %d times %s", what, server.failures, status_name(server.failure));
        fact(bed->b, "%s: forced close: %s", what, status_name(force_close(bed, ep)));
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* The old handler gets an endpoint, without error handling of its own. */
static void accept_handler_facts(bed_t *bed)
{
    static server_t server;
    client_t        client = {.ep = NULL};

    serve(bed, &server, AF_INET, 1);
    if (bed->a != NULL) {
        address_t       address = loopback(AF_INET, server.port);
        ucp_ep_params_t params  = {
            .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
            .flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
            .sockaddr   = {.addr = &address.any, .addrlen = length_of(&address)},
        };
        fact(bed->a, "accept handler: connect: %s", status_name(ucp_ep_create(bed->a->worker, &params, &client.ep)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        fact(bed->b, "accept handler: calls %d, endpoint %d", server.count, server.accepted != NULL);
    }
    bed_sync(bed);
    exchange(bed, "accept handler", client.ep, server.accepted, bed->b != NULL ? bed->b->worker : NULL, 8);
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucs_status_ptr_t    closes[2] = {NULL, NULL};
    if (bed->a != NULL) {
        closes[0] = ucp_ep_close_nbx(client.ep, &param);
    }
    if (bed->b != NULL) {
        closes[1] = ucp_ep_close_nbx(server.accepted, &param);
    }
    /*
     * Two processes do not close at the same time: one may have detected the other's close. listener_close.c has more.
     */
    ucs_status_t statuses[] = {bed_wait(bed, closes[0]), bed_wait(bed, closes[1])};
    fact(bed->a, "accept handler: closed, one of the statuses: %d", statuses[0] == UCS_OK || is_end(statuses[0]));
    fact(bed->b, "accept handler: closed, one of the statuses: %d", statuses[1] == UCS_OK || is_end(statuses[1]));
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
}

static void wait_failure(bed_t *bed, client_t *client, const char *what)
{
    if (bed->a == NULL) {
        return;
    }
    BED_UNTIL(bed, client->failures > 0);
    uint64_t            value = 1;
    ucp_request_param_t param = {.op_attr_mask = 0};
    fact(bed->a, "%s: %d times %s", what, client->failures, status_name(client->failure));
    /* UCX 1.13.1 returns ENDPOINT_TIMEOUT, 1.22 the status passed to the handler */
    fact(bed->a, "%s: sending afterwards fails: %d", what,
         UCS_PTR_IS_ERR(ucp_tag_send_nbx(client->ep, &value, sizeof(value), 1, &param)));
    fact(bed->a, "%s: forced close: %s", what, status_name(force_close(bed, client->ep)));
}

static void refusal_facts(bed_t *bed)
{
    static server_t server;
    client_t        client;

    /* There is no listener at a port that was just released. */
    serve(bed, &server, AF_INET, 0);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        fact(bed->a, "no listener: connect: %s", status_name(connect_to_server(bed->a->worker, &client, &address)));
        BED_UNTIL(bed, client.failures > 0);
        /* NOT_CONNECTED mostly; UCX names others when it is slow. */
        fact(bed->a, "no listener: one of the statuses: %d",
             client.failure == UCS_ERR_NOT_CONNECTED || client.failure == UCS_ERR_UNREACHABLE ||
                 is_end(client.failure));
        force_close(bed, client.ep);
    }
    bed_sync(bed);
    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        fact(bed->a, "rejected: connect: %s", status_name(connect_to_server(bed->a->worker, &client, &address)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        fact(bed->b, "reject: %s", status_name(ucp_listener_reject(server.listener, server.requests[0])));
    }
    wait_failure(bed, &client, "rejected");
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
}

/* Messages sent before the connection exists wait for it, in order, and fail with it. */
static void early_facts(bed_t *bed)
{
    enum { MESSAGES = 50 };
    static server_t     server;
    client_t            client = {.ep = NULL};
    ucp_ep_h            ep     = NULL;
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent[MESSAGES];
    uint64_t            out[MESSAGES], in[MESSAGES];
    int                 good = 0;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &client, &address), "ucp_ep_create");
        for (int i = 0; i < MESSAGES; i++) {
            out[i]  = (uint64_t)i * 7;
            sent[i] = ucp_tag_send_nbx(client.ep, &out[i], sizeof(out[i]), 0xe, &param);
        }
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, accept_request(&server, bed->b->worker, server.requests[0], &ep), "ucp_ep_create");
        for (int i = 0; i < MESSAGES; i++) {
            ucs_status_ptr_t r = ucp_tag_recv_nbx(bed->b->worker, &in[i], sizeof(in[i]), 0xe, -1, &param);
            good += bed_wait(bed, r) == UCS_OK && in[i] == (uint64_t)i * 7;
        }
        fact(bed->b, "sent before accepted: %d good, in order", good);
    }
    good = 0;
    for (int i = 0; bed->a != NULL && i < MESSAGES; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK;
    }
    fact(bed->a, "sent before accepted: %d", good);
    bed_sync(bed);
    if (bed->a != NULL) {
        fact(bed->a, "early: forced close: %s", status_name(force_close(bed, client.ep)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
        fact(bed->b, "early: the client's forced closing: %d", is_end(server.failure));
        force_close(bed, ep);
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* A request that is accepted on another worker of the context. */
static void other_worker_facts(bed_t *bed)
{
    static server_t     server;
    client_t            client = {.ep = NULL};
    ucp_ep_h            ep     = NULL;
    ucp_worker_h        worker = NULL;
    ucp_worker_params_t params = {.field_mask = 0};
    uint64_t            out = 4711, in = 0;
    ucp_request_param_t param = {.op_attr_mask = 0};

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &client, &address), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        must(bed->b, ucp_worker_create(bed->b->context, &params, &worker), "ucp_worker_create");
        BED_UNTIL(bed, server.count > 0);
        fact(bed->b, "accept on another worker: %s",
             status_name(accept_request(&server, worker, server.requests[0], &ep)));
        ucs_status_ptr_t r = ucp_tag_recv_nbx(worker, &in, sizeof(in), 0xf, -1, &param);
        if (bed->a != NULL) {
            bed_wait(bed, NULL);
        }
        ucs_status_ptr_t sent =
            bed->a != NULL ? ucp_tag_send_nbx(client.ep, &out, sizeof(out), 0xf, &param) : NULL;
        BED_UNTIL(bed, (ucp_worker_progress(worker), ucp_request_check_status(r) != UCS_INPROGRESS));
        fact(bed->b, "on another worker: received, good %d", in == 4711);
        ucp_request_free(r);
        bed_wait(bed, sent);
    } else {
        bed_wait(bed, ucp_tag_send_nbx(client.ep, &out, sizeof(out), 0xf, &param));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t close = ucp_ep_close_nbx(client.ep, &param);
        BED_UNTIL(bed, (worker != NULL ? ucp_worker_progress(worker) : 0,
                        !UCS_PTR_IS_PTR(close) || ucp_request_check_status(close) != UCS_INPROGRESS));
        fact(bed->a, "close to another worker: %s", status_name(bed_wait(bed, close)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, (ucp_worker_progress(worker), server.failures > 0));
        fact(bed->b, "on another worker: the client's closing: %s", status_name(server.failure));
        force_close(bed, ep);
        ucp_listener_destroy(server.listener);
        ucp_worker_destroy(worker);
    }
    bed_sync(bed);
}

/* Several clients that were not answered when the listener is destroyed. */
static void backlog_facts(bed_t *bed)
{
    enum { CLIENTS = 3 };
    static server_t server;
    client_t        clients[CLIENTS];

    serve(bed, &server, AF_INET, 0);
    for (int i = 0; bed->a != NULL && i < CLIENTS; i++) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &clients[i], &address), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count == CLIENTS);
        for (int i = 0; i < CLIENTS; i++) {
            ucp_listener_reject(server.listener, server.requests[i]);
        }
        ucp_listener_destroy(server.listener);
    }
    for (int i = 0; bed->a != NULL && i < CLIENTS; i++) {
        wait_failure(bed, &clients[i], "behind a listener that goes");
    }
    bed_sync(bed);
}

/* Requests outlive their listener: they can be accepted after it is destroyed. */
static void orphan_facts(bed_t *bed)
{
    static server_t server;
    client_t        client = {.ep = NULL};
    ucp_ep_h        ep     = NULL;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &client, &address), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count == 1);
        ucp_listener_destroy(server.listener);
        fact(bed->b, "orphan: accept: %s",
             status_name(accept_request(&server, bed->b->worker, server.requests[0], &ep)));
    }
    exchange(bed, "orphan", client.ep, ep, bed->b != NULL ? bed->b->worker : NULL, 8);
    fact(bed->a, "orphan: failures: %d", client.failures);
    if (bed->a != NULL) {
        force_close(bed, client.ep);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
        force_close(bed, ep);
    }
    bed_sync(bed);
}

/* The client has closed before its request is accepted. */
static void closed_client_facts(bed_t *bed)
{
    static server_t server;
    client_t        client;
    ucp_ep_h        ep = NULL;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &client, &address), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        fact(bed->a, "closed client: forced close: %s", status_name(force_close(bed, client.ep)));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        for (int i = 0; i < 20000; i++) {
            bed_progress(bed);
        }
        ucs_status_t status = accept_request(&server, bed->b->worker, server.requests[0], &ep);
        if (status == UCS_OK) { /* UCX 1.13.1: the endpoint fails instead */
            BED_UNTIL(bed, server.failures > 0);
            status = server.failure;
            force_close(bed, ep);
        }
        fact(bed->b, "closed client: accepting fails: %s", status_name(status));
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    if (bed->b != NULL) {
        parameter_facts(bed->b);
        address_facts(bed->b);
    }
    bed_sync(bed);
    connection_facts(bed, AF_INET, 0, "IPv4"); /* UCX accepts over IPv6 only on hosts whose every device has it */
    connection_facts(bed, AF_INET, 1, "inside");
    accept_handler_facts(bed);
    refusal_facts(bed);
    early_facts(bed);
    other_worker_facts(bed);
    backlog_facts(bed);
    orphan_facts(bed);
    closed_client_facts(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    setenv("UCX_TLS", "tcp,self,sm", getenv("LISTEN_AT") == NULL);
    return bed_main(argc, argv, script);
}
