/* Client and server: the server listens at an IP address and answers each client's stream, until a client sends "quit".
 *
 *   client_server                       both in two processes of this host, at a free port
 *   client_server server PORT
 *   client_server client ADDRESS PORT [TEXT]      TEXT "quit" ends the server
 */
#include "example.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

enum { LENGTH = 64 };

/* One for each connection request, in the order in which they came. */
typedef struct requests {
    ucp_conn_request_h request;
    struct requests   *next;
} requests_t;

static const ucp_request_param_t plain;
static const ucp_request_param_t by_force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

/* Called by ucp_worker_progress: the endpoint is made outside of the callback. */
static void on_request(ucp_conn_request_h request, void *arg)
{
    requests_t *entry = malloc(sizeof(*entry)), **end = arg;

    expect(entry != NULL, "malloc");
    *entry = (requests_t){.request = request};
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = entry;
}

/* The other end has closed the connection, or has failed. Operations in flight end with the same status. */
static void on_error(void *is_closed, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    if (status != UCS_ERR_CONNECTION_RESET) {
        fprintf(stderr, "connection: %s\n", ucs_status_string(status));
    }
    *(int *)is_closed = 1;
}

/* `is_closed` is set when the connection ends, and outlives the endpoint. */
static ucp_ep_h connect_by(ucp_worker_h worker, ucp_ep_params_t params, int *is_closed)
{
    ucp_ep_h ep;

    *is_closed = 0;
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode        = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb  = on_error;
    params.err_handler.arg = is_closed;
    MUST(ucp_ep_create(worker, &params, &ep));
    return ep;
}

/* Receives `LENGTH` bytes, all of them. */
static void receive(ucp_worker_h worker, ucp_ep_h ep, char *text)
{
    const ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    size_t                    length;

    wait_for(worker, ucp_stream_recv_nbx(ep, text, LENGTH, &length, &all));
}

/* Serves until a client sends "quit". `ready`: gets the port, or -1. */
static int serve(uint16_t port, int ready)
{
    struct sockaddr_in      any     = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
    requests_t             *waiting = NULL;
    ucp_listener_params_t   params  = {
               .field_mask       = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
               .sockaddr         = {.addr = (struct sockaddr *)&any, .addrlen = sizeof(any)},
               .conn_handler.cb  = on_request,
               .conn_handler.arg = &waiting};
    ucp_listener_attr_t     attr    = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_context_h           context;
    ucp_worker_h            worker;
    ucp_listener_h          listener;
    char                    text[LENGTH] = "";

    set_up(UCP_FEATURE_STREAM, &context, &worker);
    MUST(ucp_listener_create(worker, &params, &listener));
    MUST(ucp_listener_query(listener, &attr));
    port = ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port);
    if (ready >= 0) {
        expect(write(ready, &port, sizeof(port)) == sizeof(port), "write");
    }
    while (strcmp(text, "quit") != 0) {
        requests_t *first;
        ucp_ep_h    ep;
        int         is_closed;

        while ((first = waiting) == NULL) {
            ucp_worker_progress(worker);
        }
        waiting = first->next;
        ep      = connect_by(worker, (ucp_ep_params_t){.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                                       .conn_request = first->request},
                             &is_closed);
        free(first);
        receive(worker, ep, text);
        text[LENGTH - 1] = 0;
        printf("a client says: %s\n", text);
        wait_for(worker, ucp_stream_send_nbx(ep, text, LENGTH, &plain));
        /* The client closes when it has the reply. */
        while (!is_closed) {
            ucp_worker_progress(worker);
        }
        wait_for(worker, ucp_ep_close_nbx(ep, &by_force));
    }
    ucp_listener_destroy(listener);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

/* Sends a text, and receives the reply. */
static int ask(const char *address, uint16_t port, const char *says)
{
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(port)};
    ucp_context_h      context;
    ucp_worker_h       worker;
    ucp_ep_h           ep;
    char               text[LENGTH] = "", back[LENGTH];
    int                is_closed;

    expect(inet_pton(AF_INET, address, &server.sin_addr) == 1, "an IPv4 address");
    strncpy(text, says, LENGTH - 1);
    set_up(UCP_FEATURE_STREAM, &context, &worker);
    ep = connect_by(worker, (ucp_ep_params_t){
                                    .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                                    .flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                                    .sockaddr = {.addr = (struct sockaddr *)&server, .addrlen = sizeof(server)}},
                    &is_closed);
    wait_for(worker, ucp_stream_send_nbx(ep, text, LENGTH, &plain));
    receive(worker, ep, back);
    expect(strcmp(text, back) == 0, "what was said");
    printf("the server has answered: %s\n", back);
    wait_for(worker, ucp_ep_close_nbx(ep, &plain));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}

static int both(void)
{
    int      ends[2], status;
    uint16_t port;
    pid_t    server;

    expect(pipe(ends) == 0, "pipe");
    server = fork_child();
    if (server == 0) {
        return serve(0, ends[1]);
    }
    expect(read(ends[0], &port, sizeof(port)) == sizeof(port), "the server's port");
    ask("127.0.0.1", port, "hello");
    ask("127.0.0.1", port, "quit");
    expect(waitpid(server, &status, 0) == server && status == 0, "the server");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return both();
    }
    if (argc == 3 && strcmp(argv[1], "server") == 0) {
        return serve(atoi(argv[2]), -1);
    }
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "client") == 0) {
        return ask(argv[2], atoi(argv[3]), argc == 5 ? argv[4] : "hello");
    }
    fprintf(stderr, "usage: %s [server PORT | client ADDRESS PORT [TEXT]]\n", argv[0]);
    return 2;
}
