/*
 * The server's information about a client before it accepts (rules.txt 2.12), and the address that the client uses.
 */
#include "listening.h"

#include <stdio.h>
#include <unistd.h>

/*
 * The client's id: that of its worker (`given`), if the client requests that it is sent (`sent`). A server
 * that queries it otherwise gets 0.
 */
static void client_id_facts(bed_t *bed, uint64_t id, int given, int sent, const char *what)
{
    static server_t server;
    client_t        client = {.ep = NULL};
    ucp_worker_h    worker = NULL;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t           address = loopback(AF_INET, server.port);
        ucp_worker_params_t params  = {.field_mask = given ? UCP_WORKER_PARAM_FIELD_CLIENT_ID : 0u, .client_id = id};
        unsigned            flags   = sent ? UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID : 0u;
        must(bed->a, ucp_worker_create(bed->a->context, &params, &worker), "ucp_worker_create");
        must(bed->a, connect_to_server_with(worker, &client, &address, flags), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, ((worker != NULL ? ucp_worker_progress(worker) : 0), server.count > 0));
        ucp_conn_request_attr_t attr = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID |
                                                      UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
        attr.client_id      = 5;
        ucs_status_t status = ucp_conn_request_query(server.requests[0], &attr);
        rule(bed->b, "C3", "%s: query: %s, client id %lu, from %s", what, status_name(status),
             (unsigned long)attr.client_id, family_name(&attr.client_address));
        attr.field_mask = 0;
        attr.client_id  = 5;
        status          = ucp_conn_request_query(server.requests[0], &attr);
        fact(bed->b, "%s: query of nothing: %s, untouched %d", what, status_name(status), attr.client_id == 5);
        ucp_listener_reject(server.listener, server.requests[0]);
        ucp_listener_destroy(server.listener);
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, (ucp_worker_progress(worker), client.failures > 0));
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
        ucs_status_ptr_t    close = ucp_ep_close_nbx(client.ep, &param);
        BED_UNTIL(bed, (ucp_worker_progress(worker),
                        !UCS_PTR_IS_PTR(close) || ucp_request_check_status(close) != UCS_INPROGRESS));
        bed_wait(bed, close);
        ucp_worker_destroy(worker);
    }
    bed_sync(bed);
}

/* --- UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR --- */

/* The server's. */
static address_t local_address(uint16_t port)
{
    return loopback(AF_INET, port);
}

/* A port of the local address that nothing is bound to. */
static uint16_t free_port(void)
{
    address_t address = local_address(0);
    socklen_t length  = sizeof(address.v4);
    int       s       = socket(AF_INET, SOCK_STREAM, 0);
    int       good    = bind(s, &address.any, length) == 0 && getsockname(s, &address.any, &length) == 0;

    close(s);
    return good ? port_of(&address) : 0;
}

static int same_host(const void *address, const address_t *other)
{
    const address_t *a = address;

    return a->any.sa_family == AF_INET && a->v4.sin_addr.s_addr == other->v4.sin_addr.s_addr;
}

static ucs_status_t connect_to_server_from(ucp_worker_h worker, client_t *client, uint16_t to, const address_t *from)
{
    address_t       address = loopback(AF_INET, to);
    ucp_ep_params_t params  = {
        .field_mask     = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags          = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr       = {.addr = &address.any, .addrlen = length_of(&address)},
        .local_sockaddr = {.addr = &from->any, .addrlen = length_of(from)},
        .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler    = {.cb = on_client_failure, .arg = client},
    };

    memset(client, 0, sizeof(*client));
    return ucp_ep_create(worker, &params, &client->ep);
}

/* The server sees the address that was given to the client, in the request and by its endpoint; so does the client. */
static void local_address_rules(bed_t *bed, int with_port)
{
    static server_t     server;
    client_t            client = {.ep = NULL};
    ucp_ep_h            ep     = NULL;
    ucp_request_param_t none   = {.op_attr_mask = 0};
    const char         *what   = with_port ? "local address and port" : "local address";
    uint64_t            out = 4711, in = 0;
    uint16_t            port = 0;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        port           = with_port ? free_port() : 0;
        address_t from = local_address(port);
        rule(bed->a, "F4", "%s: connect: %s", what,
             status_name(connect_to_server_from(bed->a->worker, &client, server.port, &from)));
    }
    bed_transfer(bed, bed->a, &port, sizeof(port), &port, sizeof(port));
    address_t wanted = local_address(port);
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        ucp_conn_request_attr_t attr   = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
        ucs_status_t            status = ucp_conn_request_query(server.requests[0], &attr);
        rule(bed->b, "F4", "%s: request: %s, from it %d, port %d", what, status_name(status),
             same_host(&attr.client_address, &wanted),
             with_port ? port_of(&attr.client_address) == port : port_of(&attr.client_address) != 0);
        must(bed->b, accept_request(&server, bed->b->worker, server.requests[0], &ep), "ucp_ep_create");
    }
    bed_sync(bed);
    ucs_status_ptr_t received = bed->b == NULL ? NULL : ucp_tag_recv_nbx(bed->b->worker, &in, sizeof(in), 1, -1, &none);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_tag_send_nbx(client.ep, &out, sizeof(out), 1, &none));
    }
    ucs_status_t status = bed_wait(bed, received);
    rule(bed->b, "F4", "%s: received %s, %d", what, status_name(status), (int)in);
    bed_sync(bed);
    for (int i = 0; i < 2; i++) {
        side_t       *side = i == 0 ? bed->a : bed->b;
        ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR};
        if (side == NULL) {
            continue;
        }
        status = ucp_ep_query(i == 0 ? client.ep : ep, &attr);
        const void *seen = i == 0 ? &attr.local_sockaddr : &attr.remote_sockaddr;
        rule(side, "F4", "%s: query: %s, it %d, port %d", what, status_name(status), same_host(seen, &wanted),
             with_port ? port_of(seen) == port : port_of(seen) != 0);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        force_close(bed, client.ep);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.failures > 0);
        force_close(bed, ep);
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* An address that is not this machine's, one of another family than the server's, and another socket's port. */
static void wrong_local_address_rules(bed_t *bed)
{
    static const char *const whats[] = {"foreign local address", "of another family", "port in use"};
    static server_t          server;
    address_t                froms[3] = {loopback(AF_INET, 0), loopback(AF_INET6, 0)};

    serve(bed, &server, AF_INET, 0);
    froms[0].v4.sin_addr.s_addr = htonl(0xcb007107); /* 203.0.113.7, of no machine */
    froms[2]                    = local_address(server.port);
    for (int i = 0; bed->a != NULL && i < 3; i++) {
        client_t     client = {.ep = NULL};
        ucs_status_t status = connect_to_server_from(bed->a->worker, &client, server.port, &froms[i]);
        rule(bed->a, "C6", "%s: connect: %s", whats[i], status_name(status));
        if (status == UCS_OK) {
            BED_UNTIL(bed, client.failures > 0);
            rule(bed->a, "C6", "%s: %s", whats[i], status_name(client.failure));
            force_close(bed, client.ep);
        }
    }
    bed_sync(bed);
    rule(bed->b, "C6", "wrong local addresses: requests %d", server.count);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

/* From another address of the loopback interface than the server's. */
static void other_loopback_rules(bed_t *bed)
{
    static const departure_t connected = {.name = "C6", .on_rucp = "1 requests",
                                          .why  = "such a client neither connects nor fails on UCX"};
    static server_t          server;
    client_t                 client = {.ep = NULL};
    address_t                from   = loopback(AF_INET, 0);
    char                     text[32];
    uint8_t                  requests = 0;

    from.v4.sin_addr.s_addr = htonl(0x7f000002);
    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL && on_rucp()) {
        must(bed->a, connect_to_server_from(bed->a->worker, &client, server.port, &from), "ucp_ep_create");
    }
    if (bed->b != NULL && on_rucp()) {
        BED_UNTIL(bed, server.count > 0);
        ucp_listener_reject(server.listener, server.requests[0]);
        requests = (uint8_t)server.count;
    }
    bed_transfer(bed, bed->b, &requests, 1, &requests, 1);
    snprintf(text, sizeof(text), "%d requests", requests);
    rule_departs(bed->a, &connected, text);
    if (client.ep != NULL) {
        BED_UNTIL(bed, client.failures > 0);
        force_close(bed, client.ep);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open_unconnected(bed, &params);
    bed_sync(bed);
    client_id_facts(bed, 77, 1, 1, "77");
    client_id_facts(bed, 0x8000000000000001, 1, 1, "a large number");
    client_id_facts(bed, 0, 1, 1, "0");
    client_id_facts(bed, 77, 1, 0, "not sent");
    client_id_facts(bed, 77, 0, 1, "not given");
    local_address_rules(bed, 0);
    local_address_rules(bed, 1);
    wrong_local_address_rules(bed);
    if (getenv("ONE_ADDRESS") == NULL) { /* of the interface that clients and servers use */
        other_loopback_rules(bed);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    setenv("UCX_TLS", "tcp,self,sm", getenv("LISTEN_AT") == NULL);
    return bed_main(argc, argv, script);
}
