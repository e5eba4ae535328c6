//! Short-lived clients: each connects to a server in the other process, sends it a request, sends a message when the
//! reply has arrived, and disconnects.
//!
//! ucpbench clients [--listener] [NUMBER]: this many of them in turn, each with a context and a worker of its own. With
//! --listener they know the socket address of a listener, otherwise the address of the server's worker.
//! client_life is the whole life of one, client_close its end: flushing close of the endpoint, destruction of the
//! worker.
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <ucp/api/ucp.h>

enum { ID = 7, BYTES = 8, MESSAGES = 2, MILLION = 1000000, MAX_CLIENTS = 100000, MAX_CLOSED = 4 };

/** Parameters: the number of clients, and whether they connect to a listener. */
struct plan {
    int listener, number;
};

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

/** One end of a connection. */
struct end {
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned char bytes[BYTES];
    int arrived;              /* messages */
    ucs_status_ptr_t answer;  /* of the server, while in flight */
    ucp_ep_h closed_eps[MAX_CLOSED];  /* the server's endpoints whose clients have closed theirs, to be closed */
    int to_close, closed;     /* how many of those there are, and how many have been closed */
};

static void wait_for(struct end *end, ucs_status_ptr_t request, const char *call)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            ucp_worker_progress(end->worker);
        }
        ucp_request_free(request);
    }
    check(status, call);
}

static ucs_status_ptr_t post(struct end *end, ucp_ep_h ep, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    return ucp_am_send_nbx(ep, ID, NULL, 0, end->bytes, BYTES, &param);
}

static ucs_status_t arrive(void *argument, const void *header, size_t header_length, void *data, size_t length,
                           const ucp_am_recv_param_t *param)
{
    struct end *end = argument;

    (void)header, (void)header_length, (void)data, (void)length;
    end->arrived++;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        /* One client at a time: the reply before this one has arrived. */
        if (UCS_PTR_IS_PTR(end->answer)) {
            ucp_request_free(end->answer);
        }
        end->answer = post(end, param->reply_ep, 0);
    }
    return UCS_OK;
}

static void open_end(struct end *end)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = ID,
                                      .cb = arrive,
                                      .arg = end};

    check(ucp_init(&params, NULL, &end->context), "ucp_init");
    check(ucp_worker_create(end->context, &worker, &end->worker), "ucp_worker_create");
    check(ucp_worker_set_am_recv_handler(end->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static void close_end(struct end *end)
{
    ucp_worker_destroy(end->worker);
    ucp_cleanup(end->context);
}

/* --- a listener, and its endpoints --- */

static void on_client_closed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    struct end *end = argument;

    if (status != UCS_ERR_CONNECTION_RESET && status != UCS_ERR_ENDPOINT_TIMEOUT) {
        check(status, "a client");
    }
    if (end->to_close == MAX_CLOSED) {
        die("clients go faster than the server");
    }
    end->closed_eps[end->to_close++] = ep;
}

static void on_server_closed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)argument, (void)ep;
    check(status, "the server");
}

static void accept_client(ucp_conn_request_h request, void *argument)
{
    struct end *end = argument;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .conn_request = request,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_client_closed, .arg = end}};
    ucp_ep_h ep;

    check(ucp_ep_create(end->worker, &params, &ep), "ucp_ep_create of a client that asks");
}

/** Closes the endpoints whose clients have closed. */
static void close_endpoints(struct end *end)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    while (end->to_close > 0) {
        ucs_status_ptr_t request = ucp_ep_close_nbx(end->closed_eps[--end->to_close], &force);
        if (!UCS_PTR_IS_ERR(request)) { /* UCX may return the status of the failure */
            wait_for(end, request, "ucp_ep_close_nbx");
        }
        end->closed++;
    }
}

static ucp_listener_h open_listener(struct end *end, struct sockaddr_in *at)
{
    ucp_listener_params_t params = {.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                  UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr = {.addr = (struct sockaddr *)at, .addrlen = sizeof(*at)},
                                    .conn_handler = {.cb = accept_client, .arg = end}};
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_h listener;

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(ucp_listener_create(end->worker, &params, &listener), "ucp_listener_create");
    check(ucp_listener_query(listener, &attr), "ucp_listener_query");
    memcpy(at, &attr.sockaddr, sizeof(*at));
    return listener;
}

/* --- the server --- */

static void progress(void *argument)
{
    struct end *end = argument;

    ucp_worker_progress(end->worker);
    close_endpoints(end);
}

static void publish_address(struct place place, const struct end *end)
{
    ucp_address_t *address;
    size_t length;
    char nothing;

    check(ucp_worker_get_address(end->worker, &address, &length), "ucp_worker_get_address");
    exchange(place, address, length, &nothing, sizeof(nothing));
    ucp_worker_release_address(end->worker, address);
}

static void serve(struct place place, const struct plan *plan)
{
    struct end end = {.answer = NULL};
    ucp_listener_h listener = NULL;
    struct sockaddr_in at;
    char nothing;

    open_end(&end);
    if (plan->listener) {
        listener = open_listener(&end, &at);
        exchange(place, &at, sizeof(at), &nothing, sizeof(nothing));
    } else {
        publish_address(place, &end);
    }
    meet(place, progress, &end);
    while (end.arrived < MESSAGES * plan->number || (plan->listener && end.closed < plan->number)) {
        progress(&end);
    }
    meet(place, NULL, NULL);
    if (listener != NULL) {
        ucp_listener_destroy(listener);
    }
    close_end(&end);
}

/* --- a client --- */

static ucp_ep_h connect_to(struct end *end, const struct plan *plan, const void *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_ep_h ep;

    if (plan->listener) {
        params = (ucp_ep_params_t){.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                                 UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                   .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                                   .sockaddr = {.addr = address, .addrlen = sizeof(struct sockaddr_in)},
                                   .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                   .err_handler = {.cb = on_server_closed}};
    }
    check(ucp_ep_create(end->worker, &params, &ep), "ucp_ep_create");
    return ep;
}

/** Seconds of the whole life and of its end. */
static void live(const struct plan *plan, const void *address, double *life, double *closing)
{
    struct end end = {.answer = NULL};
    double begin = now(), close;
    ucp_ep_h ep;

    open_end(&end);
    ep = connect_to(&end, plan, address);
    wait_for(&end, post(&end, ep, UCP_AM_SEND_FLAG_REPLY), "ucp_am_send_nbx");
    while (end.arrived == 0) {
        ucp_worker_progress(end.worker);
    }
    /* No reply could acknowledge it. */
    wait_for(&end, post(&end, ep, 0), "ucp_am_send_nbx");
    close = now();
    wait_for(&end, ucp_ep_close_nbx(ep, &plain), "ucp_ep_close_nbx");
    ucp_worker_destroy(end.worker);
    *closing = now() - close;
    ucp_cleanup(end.context);
    *life = now() - begin;
}

static void play(struct place place, void *argument)
{
    const struct plan *plan = argument;
    int number = plan->number;
    double *life, *closing;
    static unsigned char address[MAIL_ROOM];

    if (place.index == 1) {
        serve(place, plan);
        return;
    }
    life = calloc((size_t)number, sizeof(*life));
    closing = calloc((size_t)number, sizeof(*closing));
    exchange(place, "", 1, address, sizeof(address));
    for (int i = 0; i < number; i++) {
        live(plan, address, &life[i], &closing[i]);
    }
    meet(place, NULL, NULL);
    meet(place, NULL, NULL);
    figure("client_life", -1, median(life, number) * MILLION, "us");
    figure("client_close", -1, median(closing, number) * MILLION, "us");
    figure("client_close_longest", -1, closing[number - 1] * MILLION, "us");
    free(life);
    free(closing);
}

int run_clients(const struct effort *effort, int argc, char **argv)
{
    struct plan plan = {.listener = argc > 1 && strcmp(argv[1], "--listener") == 0};
    int next = 1 + plan.listener;

    plan.number = argc > next ? atoi(argv[next]) : effort->quick ? 20 : 200;
    if (plan.number < 1 || plan.number > MAX_CLIENTS) {
        die("usage: clients [--listener] [NUMBER] (at most %d)", MAX_CLIENTS);
    }
    return start_pair(play, &plan);
}
