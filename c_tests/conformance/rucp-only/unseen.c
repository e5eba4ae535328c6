/*
 * Clients of a listener that is destroyed before its worker progresses: each client gets one rejection, and the
 * server's handler gets none of them. (UCX 1.13.1 crashes here, 1.22 sometimes.)
 */
#define _GNU_SOURCE
#include "check.h"
#include "workers.h"

#include <netinet/in.h>
#include <time.h>

enum { CLIENTS = 3, TIMEOUT = 20 /* seconds */ };

static int seen, failures[CLIENTS];

static void on_request(ucp_conn_request_h request, void *arg)
{
    (void)request;
    (void)arg;
    seen++;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    WANT_TRUE(status == UCS_ERR_REJECTED || status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CONNECTION_RESET ||
              status == UCS_ERR_UNREACHABLE);
    ++*(int *)arg;
}

static ucp_listener_h listen_at_loopback(ucp_worker_h worker, struct sockaddr_in *address)
{
    ucp_listener_params_t params = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {.addr = (struct sockaddr *)address, .addrlen = sizeof(*address)},
        .conn_handler = {.cb = on_request},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_h      listener;

    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    WANT(UCS_OK, ucp_listener_create(worker, &params, &listener));
    WANT(UCS_OK, ucp_listener_query(listener, &attr));
    address->sin_port = ((struct sockaddr_in *)&attr.sockaddr)->sin_port;
    return listener;
}

static ucp_ep_h connect_by_socket(ucp_worker_h worker, const struct sockaddr_in *address, int *failed)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = (const struct sockaddr *)address, .addrlen = sizeof(*address)},
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = failed},
    };
    ucp_ep_h ep;

    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
    return ep;
}

static int all_failed(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (failures[i] == 0) {
            return 0;
        }
    }
    return 1;
}

static void unseen_clients(void)
{
    ucp_context_h       context = new_context(UCP_FEATURE_TAG);
    ucp_worker_h        server  = new_worker(context, UCS_THREAD_MODE_SINGLE);
    ucp_worker_h        client  = new_worker(context, UCS_THREAD_MODE_SINGLE);
    ucp_request_param_t force   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    struct sockaddr_in  address;
    ucp_ep_h            eps[CLIENTS];
    time_t              end = time(NULL) + TIMEOUT;

    ucp_listener_h listener = listen_at_loopback(server, &address);
    for (int i = 0; i < CLIENTS; i++) {
        eps[i] = connect_by_socket(client, &address, &failures[i]);
        /* The first client has not sent its hello; the others have progressed as far as they can without the server. */
        for (int turn = 0; turn < 1000 * i; turn++) {
            ucp_worker_progress(client);
        }
    }
    ucp_listener_destroy(listener);
    while (!all_failed() && time(NULL) < end) {
        ucp_worker_progress(client);
        ucp_worker_progress(server);
    }
    for (int i = 0; i < CLIENTS; i++) {
        WANT_TRUE(failures[i] == 1);
        WANT_TRUE(!UCS_PTR_IS_PTR(ucp_ep_close_nbx(eps[i], &force)));
    }
    WANT_TRUE(seen == 0);
    ucp_worker_destroy(client);
    ucp_worker_destroy(server);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"unseen: clients of a listener that goes", unseen_clients},
};

CHECK_MAIN(cases)
