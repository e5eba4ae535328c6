/*
 * Servers that listen at the loopback interface, and clients that connect to them: shared by the tests of listeners.
 */
#ifndef DIFF_LISTENING_H
#define DIFF_LISTENING_H

#include "bed.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* --- addresses --- */

typedef union {
    struct sockaddr         any;
    struct sockaddr_in      v4;
    struct sockaddr_in6     v6;
    struct sockaddr_storage storage;
} address_t;

/* The loopback address, or the value of LISTEN_AT and LISTEN_AT6: addresses of a device of this machine. */
static inline address_t loopback(int family, uint16_t port)
{
    const char *named   = getenv(family == AF_INET ? "LISTEN_AT" : "LISTEN_AT6");
    address_t   address = {.any = {.sa_family = (sa_family_t)family}};

    if (family == AF_INET) {
        inet_pton(family, named != NULL ? named : "127.0.0.1", &address.v4.sin_addr);
        address.v4.sin_port = htons(port);
    } else {
        inet_pton(family, named != NULL ? named : "::1", &address.v6.sin6_addr);
        address.v6.sin6_port = htons(port);
    }
    return address;
}

static inline uint16_t port_of(const void *address)
{
    const address_t *a = address;

    return ntohs(a->any.sa_family == AF_INET ? a->v4.sin_port : a->v6.sin6_port);
}

static inline socklen_t length_of(const address_t *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

static inline int is_loopback(const void *address)
{
    const address_t *a    = address;
    address_t        here = loopback(a->any.sa_family, 0);

    return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == here.v4.sin_addr.s_addr
                                       : IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &here.v6.sin6_addr);
}

static inline const char *family_name(const void *address)
{
    int family = ((const address_t *)address)->any.sa_family;

    return family == AF_INET ? "IPv4" : family == AF_INET6 ? "IPv6" : "no family";
}

/* --- the server --- */

#define MAX_REQUESTS 16

typedef struct server {
    side_t            *side;
    ucp_listener_h     listener;
    uint16_t           port;
    ucp_conn_request_h requests[MAX_REQUESTS];
    int                count;
    ucp_ep_h           accepted; /* set by the accept handler */
    int                accept_inside;
    ucs_status_t       inside_status;
    int                in_call; /* create is running: handlers run from progress only */
    int                called_in_call;
    ucs_status_t       failure;
    int                failures;
} server_t;

static inline void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    server_t *server = arg;

    (void)ep;
    server->failure = status;
    server->failures++;
}

static inline ucs_status_t accept_request(server_t *server, ucp_worker_h worker, ucp_conn_request_h request,
                                          ucp_ep_h *ep)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .conn_request = request,
        .err_mode     = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler  = {.cb = on_failure, .arg = server},
    };

    return ucp_ep_create(worker, &params, ep);
}

static inline void on_request(ucp_conn_request_h request, void *arg)
{
    server_t *server = arg;

    server->called_in_call |= server->in_call;
    if (server->accept_inside) {
        server->inside_status = accept_request(server, server->side->worker, request, &server->accepted);
    }
    if (server->count < MAX_REQUESTS) {
        server->requests[server->count++] = request;
    }
}

static inline void on_accept(ucp_ep_h ep, void *arg)
{
    server_t *server = arg;

    server->accepted = ep;
    server->count++;
}

static inline ucs_status_t listen_at(server_t *server, const address_t *address, int by_accept)
{
    ucp_listener_params_t params = {
        .field_mask     = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                          (by_accept ? (uint64_t)UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER
                                     : (uint64_t)UCP_LISTENER_PARAM_FIELD_CONN_HANDLER),
        .sockaddr       = {.addr = &address->any, .addrlen = length_of(address)},
        .accept_handler = {.cb = on_accept, .arg = server},
        .conn_handler   = {.cb = on_request, .arg = server},
    };

    server->in_call     = 1;
    ucs_status_t status = ucp_listener_create(server->side->worker, &params, &server->listener);
    server->in_call     = 0;
    return status;
}

static inline uint16_t listener_port(const server_t *server)
{
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};

    return ucp_listener_query(server->listener, &attr) == UCS_OK ? port_of(&attr.sockaddr) : 0;
}

/* B listens on an ephemeral port; A receives it. */
static inline void serve(bed_t *bed, server_t *server, int family, int by_accept)
{
    uint16_t port = 0;

    memset(server, 0, sizeof(*server));
    if (bed->b != NULL) {
        address_t address = loopback(family, 0);
        server->side      = bed->b;
        must(bed->b, listen_at(server, &address, by_accept), "ucp_listener_create");
        port = listener_port(server);
    }
    bed_transfer(bed, bed->b, &port, sizeof(port), &server->port, sizeof(port));
    if (bed->b != NULL) {
        server->port = port;
    }
}

/* --- the client --- */

typedef struct client {
    ucp_ep_h     ep;
    ucs_status_t failure;
    int          failures;
} client_t;

static inline void on_client_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    client_t *client = arg;

    (void)ep;
    client->failure = status;
    client->failures++;
}

/* `flags`: whether the client sends the id of its worker. */
static inline ucs_status_t connect_to_server_with(ucp_worker_h worker, client_t *client, const address_t *address,
                                               unsigned flags)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | flags,
        .sockaddr    = {.addr = &address->any, .addrlen = length_of(address)},
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_client_failure, .arg = client},
    };

    memset(client, 0, sizeof(*client));
    return ucp_ep_create(worker, &params, &client->ep);
}

static inline ucs_status_t connect_to_server(ucp_worker_h worker, client_t *client, const address_t *address)
{
    return connect_to_server_with(worker, client, address, UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID);
}

/* A disconnected peer: UCX returns one or the other. */
static inline int is_end(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
}

static inline ucs_status_t force_close(bed_t *bed, ucp_ep_h ep)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    return bed_wait(bed, ucp_ep_close_nbx(ep, &param));
}

/* --- only one side progresses, and the other does not meanwhile, where the two have workers of their own --- */

static inline void wait_without_progress(bed_t *bed)
{
    char byte;

    if (bed->link >= 0 && recv(bed->link, &byte, 1, 0) != 1) {
        abort();
    }
}

static inline void go_on(bed_t *bed)
{
    if (bed->link >= 0 && send(bed->link, "g", 1, MSG_NOSIGNAL) != 1) {
        abort();
    }
}

/* A barrier. The end that is not `acts` makes no progress call any more when the other one has passed it. */
static inline void stand_still(bed_t *bed, const side_t *acts)
{
    if (acts != NULL) {
        bed_sync(bed);
    } else {
        go_on(bed);
        wait_without_progress(bed);
    }
}

/* --- the program --- */

/*
 * Like bed_main. Where only shared memory is selected, TCP is, too: UCX has no way to connect clients by shared memory.
 */
static inline int listening_main(int argc, char **argv, void (*script)(bed_t *bed))
{
    const char *transports = getenv("UCX_TLS");

    if (transports != NULL && strcmp(transports, "self,sm") == 0) {
        setenv("UCX_TLS", "tcp,self,sm", 1);
    }
    return bed_main(argc, argv, script);
}

#endif
