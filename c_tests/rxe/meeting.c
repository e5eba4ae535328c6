/*
 * Listeners and clients that connect by rdma_cm: which transport is used when one end does not have both, invalid
 * clients of a listener, and ends that die. (Runs in a guest with a RoCE device at 10.77.0.1: c_tests/rxe/run.)
 */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT = 15 /* seconds */ };

/* --- ends --- */

typedef struct {
    ucp_context_h  context;
    ucp_worker_h   worker;
    ucp_listener_h listener;
    ucp_ep_h       ep;
    int            requests, failures;
    ucs_status_t   failure;
} end_t;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    end_t *end = arg;

    (void)ep;
    end->failure = status;
    end->failures++;
}

static void on_request(ucp_conn_request_h request, void *arg)
{
    end_t          *end    = arg;
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .conn_request = request,
        .err_mode     = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler  = {.cb = on_failure, .arg = end},
    };

    end->requests++;
    WANT(UCS_OK, ucp_ep_create(end->worker, &params, &end->ep));
}

static const char *all_devices = "y";

static void begin(end_t *end, const char *ways)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker  = {.field_mask = 0};
    ucp_config_t       *config;

    memset(end, 0, sizeof(*end));
    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    WANT(UCS_OK, ucp_config_modify(config, "SOCKADDR_TLS_PRIORITY", ways));
    WANT(UCS_OK, ucp_config_modify(config, "CM_USE_ALL_DEVICES", all_devices));
    WANT(UCS_OK, ucp_init(&params, config, &end->context));
    ucp_config_release(config);
    WANT(UCS_OK, ucp_worker_create(end->context, &worker, &end->worker));
}

static void finish(end_t *end)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    if (end->ep != NULL) {
        WANT_TRUE(!UCS_PTR_IS_PTR(ucp_ep_close_nbx(end->ep, &force)));
    }
    if (end->listener != NULL) {
        ucp_listener_destroy(end->listener);
    }
    ucp_worker_destroy(end->worker);
    ucp_cleanup(end->context);
}

static struct sockaddr_in device_address(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};

    inet_pton(AF_INET, "10.77.0.1", &address.sin_addr);
    return address;
}

static uint16_t serve(end_t *end)
{
    struct sockaddr_in    address = device_address(0);
    ucp_listener_params_t params  = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {.addr = (struct sockaddr *)&address, .addrlen = sizeof(address)},
        .conn_handler = {.cb = on_request, .arg = end},
    };
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};

    WANT(UCS_OK, ucp_listener_create(end->worker, &params, &end->listener));
    WANT(UCS_OK, ucp_listener_query(end->listener, &attr));
    return ntohs(((struct sockaddr_in *)&attr.sockaddr)->sin_port);
}

static void connect_to(end_t *end, uint16_t port)
{
    struct sockaddr_in address = device_address(port);
    ucp_ep_params_t    params  = {
        .field_mask  = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = (struct sockaddr *)&address, .addrlen = sizeof(address)},
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = end},
    };

    WANT(UCS_OK, ucp_ep_create(end->worker, &params, &end->ep));
}

#define UNTIL(condition, a, b)                                                                                        \
    do {                                                                                                              \
        double until_ = now() + TIMEOUT;                                                                             \
        while (!(condition) && now() < until_) {                                                                      \
            ucp_worker_progress((a)->worker);                                                                         \
            ucp_worker_progress((b)->worker);                                                                         \
        }                                                                                                             \
        WANT_TRUE(condition);                                                                                         \
    } while (0)

/* One message from the client to the server. */
static void send_message(end_t *client, end_t *server)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t            out = 4711, in = 0;
    ucs_status_ptr_t    got  = ucp_tag_recv_nbx(server->worker, &in, sizeof(in), 1, -1, &param);
    ucs_status_ptr_t    sent = ucp_tag_send_nbx(client->ep, &out, sizeof(out), 1, &param);

    UNTIL(ucp_request_check_status(got) != UCS_INPROGRESS || client->failures > 0, client, server);
    WANT(UCS_OK, ucp_request_check_status(got));
    WANT_TRUE(in == 4711);
    UNTIL(!UCS_PTR_IS_PTR(sent) || ucp_request_check_status(sent) != UCS_INPROGRESS, client, server);
    ucp_request_free(got);
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
}

/* Connections requested by rdma_cm until now. */
static long requested(void)
{
    FILE *f     = fopen("/sys/class/infiniband/rxe0/ports/1/cm_rx_msgs/req", "r");
    long  count = -1;

    if (f != NULL) {
        WANT_TRUE(fscanf(f, "%ld", &count) == 1);
        fclose(f);
    }
    return count;
}

/* --- transports --- */

/* Connects both ends, and checks whether that was by rdma_cm; without a fallback that takes as long as its timeout. */
static void want_connected(const char *listeners, const char *clients, int by_rdma)
{
    end_t server, client;

    begin(&server, listeners);
    begin(&client, clients);
    uint16_t port   = serve(&server);
    long     before = requested();
    double   began  = now();
    connect_to(&client, port);
    send_message(&client, &server);
    WANT_TRUE(server.requests == 1 && client.failures == 0);
    WANT_TRUE(by_rdma < 0 || (requested() > before) == by_rdma);
    WANT_TRUE(now() - began < TIMEOUT / 2);
    finish(&client);
    finish(&server);
}

static void by_default(void) { want_connected("rdmacm,tcp,sockcm", "rdmacm,tcp,sockcm", 1); }
static void by_tcp_first(void) { want_connected("rdmacm,tcp", "tcp,rdmacm", 0); }
static void client_has_tcp(void) { want_connected("rdmacm,tcp", "tcp", 0); }
static void client_has_rdma(void) { want_connected("*", "rdmacm", 1); }
static void server_has_tcp(void) { want_connected("tcp", "rdmacm,tcp", -1); }
static void server_has_rdma(void) { want_connected("rdmacm", "tcp,rdmacm", 1); }

/* Messages go over the device of the connection. */
static void by_one_device(void)
{
    all_devices = "n";
    by_default();
}

static void no_listener(void)
{
    static const char *ways[] = {"rdmacm", "rdmacm,tcp", "tcp"};

    for (int i = 0; i < 3; i++) {
        end_t client;
        begin(&client, ways[i]);
        connect_to(&client, 1);
        UNTIL(client.failures > 0, &client, &client);
        WANT(UCS_ERR_NOT_CONNECTED, client.failure);
        finish(&client);
    }
}

/* --- invalid clients, made with librdmacm itself --- */

typedef struct {
    struct rdma_event_channel *channel;
    struct rdma_cm_id         *id;
    struct ibv_mr             *mr;
    char                      *memory;
} invalid_t;

enum { MEMORY = 8192 };

/* The next event of a client, while the listener progresses; -1 if there is none. */
static int next_event(invalid_t *s, end_t *server)
{
    double until = now() + TIMEOUT;
    int    kind  = -1;

    while (kind < 0 && now() < until) {
        struct rdma_cm_event *event;
        ucp_worker_progress(server->worker);
        if (rdma_get_cm_event(s->channel, &event) == 0) {
            kind = event->event;
            rdma_ack_cm_event(event);
        }
    }
    return kind;
}

/* The listener ends the connection: disconnects it, or rejects it before it is established. */
static int is_rejected(invalid_t *s, end_t *server)
{
    int kind = next_event(s, server);

    return kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_REJECTED;
}

/* Connects to the listener with this private data; returns the event. */
static int invalid_connect(invalid_t *s, end_t *server, uint16_t port, const void *said, uint8_t size)
{
    struct sockaddr_in      to   = device_address(port);
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct rdma_conn_param  param = {
        .private_data = said, .private_data_len = size, .retry_count = 3, .rnr_retry_count = 3};

    memset(s, 0, sizeof(*s));
    s->channel = rdma_create_event_channel();
    WANT_TRUE(s->channel != NULL);
    fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK);
    WANT_TRUE(rdma_create_id(s->channel, &s->id, NULL, RDMA_PS_TCP) == 0);
    WANT_TRUE(rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, 2000) == 0);
    WANT_TRUE(next_event(s, server) == RDMA_CM_EVENT_ADDR_RESOLVED);
    WANT_TRUE(rdma_resolve_route(s->id, 2000) == 0);
    WANT_TRUE(next_event(s, server) == RDMA_CM_EVENT_ROUTE_RESOLVED);
    WANT_TRUE(rdma_create_qp(s->id, NULL, &attr) == 0);
    s->memory = calloc(1, MEMORY);
    s->mr     = ibv_reg_mr(s->id->pd, s->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
    WANT_TRUE(rdma_connect(s->id, &param) == 0);
    return next_event(s, server);
}

static void say(invalid_t *s, const void *said, uint32_t size)
{
    struct ibv_sge     sge = {.addr = (uintptr_t)s->memory, .length = size, .lkey = s->mr->lkey};
    struct ibv_send_wr wr  = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    memcpy(s->memory, said, size);
    WANT_TRUE(ibv_post_send(s->id->qp, &wr, &bad) == 0);
}

static void close_client(invalid_t *s)
{
    ibv_dereg_mr(s->mr);
    rdma_destroy_qp(s->id);
    rdma_destroy_id(s->id);
    rdma_destroy_event_channel(s->channel);
    free(s->memory);
}

/* Private data of this library's clients. */
#define VERSION "rucp cs\x03"

/* Afterwards the listener serves valid clients, and its handler was called for no other. */
static void still_serves(end_t *server, uint16_t port)
{
    end_t client;

    WANT_TRUE(server->requests == 0);
    begin(&client, "rdmacm");
    connect_to(&client, port);
    send_message(&client, server);
    WANT_TRUE(server->requests == 1 && client.failures == 0);
    finish(&client);
}

static void invalid_private_data(void)
{
    static const struct {
        const char *said;
        uint8_t     size;
    } words[] = {{NULL, 0},          {"rping or so", 11},          {VERSION, 3},
                 {"rucp cs\x01", 8}, {"rucp cs\x04 and more", 17}, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}};
    end_t server;

    begin(&server, "rdmacm");
    uint16_t port = serve(&server);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        invalid_t s;
        WANT_TRUE(invalid_connect(&s, &server, port, words[i].said, words[i].size) == RDMA_CM_EVENT_REJECTED);
        close_client(&s);
    }
    still_serves(&server, port);
    finish(&server);
}

/* Clients with a valid version and an invalid message. */
static void invalid_messages(void)
{
    char   hello[31] = VERSION, longest[4000] = VERSION;
    end_t  server;

    begin(&server, "rdmacm");
    uint16_t   port = serve(&server);
    invalid_t s;

    hello[12] = (char)200; /* length of an address, without its bytes */
    WANT_TRUE(invalid_connect(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, "GET / HTTP/1.1\r\n\r\n", 18);
    WANT_TRUE(is_rejected(&s, &server));
    close_client(&s);
    WANT_TRUE(invalid_connect(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, longest, sizeof(longest)); /* longer than allowed */
    WANT_TRUE(is_rejected(&s, &server));
    close_client(&s);
    WANT_TRUE(invalid_connect(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, hello, 5);
    say(&s, hello + 5, 27); /* in fragments, and never whole: the timeout is 5 s */
    WANT_TRUE(is_rejected(&s, &server));
    close_client(&s);
    still_serves(&server, port);
    finish(&server);
}

/* Clients that disconnect in the middle, or send nothing. */
static void disconnecting_or_silent(void)
{
    end_t server;

    begin(&server, "rdmacm");
    uint16_t port = serve(&server);
    for (int i = 0; i < 4; i++) {
        invalid_t s;
        double     began = now();
        WANT_TRUE(invalid_connect(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
        if (i == 3) { /* silent */
            WANT_TRUE(is_rejected(&s, &server));
            WANT_TRUE(now() - began > 4);
        }
        close_client(&s);
    }
    still_serves(&server, port);
    finish(&server);
}

/* --- ends that die --- */

/* Sleeps until an event, for TIMEOUT at most, unless there was one already; or until another
 * descriptor (-1: none) is ready. */
static void nap(end_t *end, int other)
{
    struct pollfd waits[] = {{.events = POLLIN}, {.fd = other, .events = POLLIN}};
    int           known = end->requests + end->failures;

    WANT(UCS_OK, ucp_worker_get_efd(end->worker, &waits[0].fd));
    while (ucp_worker_progress(end->worker) != 0) {
    }
    if (known == end->requests + end->failures && ucp_worker_arm(end->worker) == UCS_OK) {
        WANT_TRUE(poll(waits, 2, TIMEOUT * 1000) >= 1);
    }
}

/* Forks a process before this one has opened anything. It runs until it is killed: a server that sends its port, or
 * a client that receives one. */
static pid_t spawn(int is_client, int sleeps, int *link)
{
    int   ends[2];
    pid_t id;

    WANT_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    id = fork();
    if (id == 0) {
        end_t    end;
        uint16_t port;
        close(ends[0]);
        begin(&end, "rdmacm");
        if (is_client) {
            if (read(ends[1], &port, sizeof(port)) == sizeof(port)) {
                connect_to(&end, port);
            }
        } else {
            port = serve(&end);
            WANT_TRUE(write(ends[1], &port, sizeof(port)) == sizeof(port));
        }
        for (int reported = 0;;) {
            if (end.requests > 0 && !reported++) {
                WANT_TRUE(write(ends[1], &port, sizeof(port)) == sizeof(port));
            }
            if (sleeps) {
                nap(&end, -1);
            } else {
                ucp_worker_progress(end.worker);
            }
        }
    }
    close(ends[1]);
    *link = ends[0];
    return id;
}

static void kill_and_wait(pid_t id)
{
    kill(id, SIGKILL);
    waitpid(id, NULL, 0);
}

/* Nothing was sent yet: only the connection reports the end. */
static void server_is_killed(void)
{
    uint16_t port = 0;
    int      link;
    pid_t    id = spawn(0, 0, &link);
    end_t    client;

    WANT_TRUE(read(link, &port, sizeof(port)) == sizeof(port));
    begin(&client, "rdmacm");
    connect_to(&client, port);
    port = 0;
    UNTIL(port != 0 || recv(link, &port, sizeof(port), MSG_DONTWAIT) > 0, &client, &client);
    WANT_TRUE(client.failures == 0);
    kill_and_wait(id);
    UNTIL(client.failures > 0, &client, &client);
    /* In the last case the server's acknowledgement did not arrive in time. */
    WANT_TRUE(client.failure == UCS_ERR_CONNECTION_RESET || client.failure == UCS_ERR_ENDPOINT_TIMEOUT ||
              client.failure == UCS_ERR_NOT_CONNECTED);
    WANT_TRUE(client.failures == 1);
    finish(&client);
    close(link);
}

static void client_is_killed(void)
{
    end_t    server;
    int      link;
    pid_t    id = spawn(1, 0, &link);
    uint16_t port;

    begin(&server, "rdmacm");
    port = serve(&server);
    WANT_TRUE(write(link, &port, sizeof(port)) == sizeof(port));
    UNTIL(server.requests > 0, &server, &server);
    kill_and_wait(id);
    UNTIL(server.failures > 0, &server, &server);
    WANT_TRUE(server.failure == UCS_ERR_CONNECTION_RESET || server.failure == UCS_ERR_ENDPOINT_TIMEOUT);
    WANT_TRUE(server.failures == 1);
    finish(&server);
    close(link);
}

/* Both ends sleep whenever they can: actions of the other one wake them. */
static void sleepers(void)
{
    end_t    server;
    int      link;
    pid_t    id = spawn(1, 1, &link);
    uint16_t port;
    double   until = now() + TIMEOUT;

    begin(&server, "rdmacm");
    port = serve(&server);
    WANT_TRUE(write(link, &port, sizeof(port)) == sizeof(port));
    while (server.requests == 0 && now() < until) {
        nap(&server, -1);
    }
    WANT_TRUE(server.requests == 1);
    kill_and_wait(id);
    while (server.failures == 0 && now() < until) {
        nap(&server, -1);
    }
    WANT_TRUE(server.failures == 1);
    finish(&server);
    close(link);
}

/* The only event is the timeout. */
static void sleeper_times_out(void)
{
    end_t      server;
    invalid_t s;
    int        disconnected  = 0;
    double     began = now();

    begin(&server, "rdmacm");
    WANT_TRUE(invalid_connect(&s, &server, serve(&server), VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    while (!disconnected && now() - began < TIMEOUT) {
        struct rdma_cm_event *event;
        nap(&server, s.channel->fd);
        if (rdma_get_cm_event(s.channel, &event) == 0) {
            disconnected = event->event == RDMA_CM_EVENT_DISCONNECTED;
            rdma_ack_cm_event(event);
        }
    }
    WANT_TRUE(disconnected);
    WANT_TRUE(now() - began < 10);
    close_client(&s);
    finish(&server);
}

static const case_t cases[] = {
    {"transports: as they come", by_default},
    {"transports: the client prefers tcp", by_tcp_first},
    {"transports: the client has tcp only", client_has_tcp},
    {"transports: the client has rdma_cm only", client_has_rdma},
    {"transports: the listener has tcp only", server_has_tcp},
    {"transports: the listener has rdma_cm only", server_has_rdma},
    {"transports: by one device", by_one_device},
    {"transports: no listener", no_listener},
    {"invalid clients: private data", invalid_private_data},
    {"invalid clients: messages", invalid_messages},
    {"invalid clients: disconnect or silence", disconnecting_or_silent},
    {"ends: a server is killed", server_is_killed},
    {"ends: a client is killed", client_is_killed},
    {"sleepers: each step wakes them", sleepers},
    {"sleepers: a silent client is rejected", sleeper_times_out},
};

CHECK_MAIN(cases)
