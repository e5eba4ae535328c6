/*
 * Listeners and clients that meet by rdma_cm: which way is taken when one end has not both, who else may come to a
 * listener, and ends that die. (Runs in a guest with a RoCE device at 10.77.0.1: c_tests/rxe/run.)
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

enum { PATIENCE = 15 /* seconds */ };

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
        .field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
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
    ucp_params_t        params  = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
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

static void dial(end_t *end, uint16_t port)
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
        double until_ = now() + PATIENCE;                                                                             \
        while (!(condition) && now() < until_) {                                                                      \
            ucp_worker_progress((a)->worker);                                                                         \
            ucp_worker_progress((b)->worker);                                                                         \
        }                                                                                                             \
        WANT_TRUE(condition);                                                                                         \
    } while (0)

/* One message from the client to the server. */
static void talk(end_t *client, end_t *server)
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

/* Connections asked for by rdma_cm until now. */
static long asked(void)
{
    FILE *f     = fopen("/sys/class/infiniband/rxe0/ports/1/cm_rx_msgs/req", "r");
    long  count = -1;

    if (f != NULL) {
        WANT_TRUE(fscanf(f, "%ld", &count) == 1);
        fclose(f);
    }
    return count;
}

/* --- ways --- */

/* How both ends meet, and whether that was by rdma_cm; not in vain at first for longer than it takes to find out. */
static void meets(const char *listeners, const char *clients, int by_rdma)
{
    end_t server, client;

    begin(&server, listeners);
    begin(&client, clients);
    uint16_t port   = serve(&server);
    long     before = asked();
    double   began  = now();
    dial(&client, port);
    talk(&client, &server);
    WANT_TRUE(server.requests == 1 && client.failures == 0);
    WANT_TRUE(by_rdma < 0 || (asked() > before) == by_rdma);
    WANT_TRUE(now() - began < PATIENCE / 2);
    finish(&client);
    finish(&server);
}

static void by_default(void) { meets("rdmacm,tcp,sockcm", "rdmacm,tcp,sockcm", 1); }
static void by_tcp_first(void) { meets("rdmacm,tcp", "tcp,rdmacm", 0); }
static void client_has_tcp(void) { meets("rdmacm,tcp", "tcp", 0); }
static void client_has_rdma(void) { meets("*", "rdmacm", 1); }
static void server_has_tcp(void) { meets("tcp", "rdmacm,tcp", -1); }
static void server_has_rdma(void) { meets("rdmacm", "tcp,rdmacm", 1); }

/* Messages go by the device that they have met through. */
static void by_one_device(void)
{
    all_devices = "n";
    by_default();
}

static void nobody_listens(void)
{
    static const char *ways[] = {"rdmacm", "rdmacm,tcp", "tcp"};

    for (int i = 0; i < 3; i++) {
        end_t client;
        begin(&client, ways[i]);
        dial(&client, 1);
        UNTIL(client.failures > 0, &client, &client);
        WANT(UCS_ERR_NOT_CONNECTED, client.failure);
        finish(&client);
    }
}

/* --- strangers: what librdmacm itself can be made to say --- */

typedef struct {
    struct rdma_event_channel *channel;
    struct rdma_cm_id         *id;
    struct ibv_mr             *mr;
    char                      *memory;
} stranger_t;

enum { MEMORY = 8192 };

/* What happens to a stranger next, while the listener does its work; -1 if nothing does. */
static int happens(stranger_t *s, end_t *server)
{
    double until = now() + PATIENCE;
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

/* The listener ends the connection: rejects it, if it has not seen yet that there is one. */
static int is_sent_away(stranger_t *s, end_t *server)
{
    int kind = happens(s, server);

    return kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_REJECTED;
}

/* Asks the listener for a connection, and says so much; what comes of it. */
static int knock(stranger_t *s, end_t *server, uint16_t port, const void *said, uint8_t size)
{
    struct sockaddr_in      to   = device_address(port);
    struct ibv_qp_init_attr attr = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct rdma_conn_param  param = {.private_data = said, .private_data_len = size, .retry_count = 3, .rnr_retry_count = 3};

    memset(s, 0, sizeof(*s));
    s->channel = rdma_create_event_channel();
    WANT_TRUE(s->channel != NULL);
    fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK);
    WANT_TRUE(rdma_create_id(s->channel, &s->id, NULL, RDMA_PS_TCP) == 0);
    WANT_TRUE(rdma_resolve_addr(s->id, NULL, (struct sockaddr *)&to, 2000) == 0);
    WANT_TRUE(happens(s, server) == RDMA_CM_EVENT_ADDR_RESOLVED);
    WANT_TRUE(rdma_resolve_route(s->id, 2000) == 0);
    WANT_TRUE(happens(s, server) == RDMA_CM_EVENT_ROUTE_RESOLVED);
    WANT_TRUE(rdma_create_qp(s->id, NULL, &attr) == 0);
    s->memory = calloc(1, MEMORY);
    s->mr     = ibv_reg_mr(s->id->pd, s->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
    WANT_TRUE(rdma_connect(s->id, &param) == 0);
    return happens(s, server);
}

static void say(stranger_t *s, const void *said, uint32_t size)
{
    struct ibv_sge     sge = {.addr = (uintptr_t)s->memory, .length = size, .lkey = s->mr->lkey};
    struct ibv_send_wr wr  = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;

    memcpy(s->memory, said, size);
    WANT_TRUE(ibv_post_send(s->id->qp, &wr, &bad) == 0);
}

static void leave(stranger_t *s)
{
    ibv_dereg_mr(s->mr);
    rdma_destroy_qp(s->id);
    rdma_destroy_id(s->id);
    rdma_destroy_event_channel(s->channel);
    free(s->memory);
}

/* What our clients say of themselves first. */
#define VERSION "rucp cs\x03"

/* After all of them the listener serves its own clients as ever, and nobody else was shown to its program. */
static void still_serves(end_t *server, uint16_t port)
{
    end_t client;

    WANT_TRUE(server->requests == 0);
    begin(&client, "rdmacm");
    dial(&client, port);
    talk(&client, server);
    WANT_TRUE(server->requests == 1 && client.failures == 0);
    finish(&client);
}

static void strangers_knock(void)
{
    static const struct {
        const char *said;
        uint8_t     size;
    } words[] = {{NULL, 0}, {"rping or so", 11}, {VERSION, 3}, {"rucp cs\x01", 8}, {"rucp cs\x04 and more", 17}, {"\xff\xff\xff\xff\xff\xff\xff\xff", 8}};
    end_t server;

    begin(&server, "rdmacm");
    uint16_t port = serve(&server);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        stranger_t s;
        WANT_TRUE(knock(&s, &server, port, words[i].said, words[i].size) == RDMA_CM_EVENT_REJECTED);
        leave(&s);
    }
    still_serves(&server, port);
    finish(&server);
}

/* They know how to knock, and then say what makes no sense. */
static void strangers_talk(void)
{
    char   hello[31] = VERSION, longest[4000] = VERSION;
    end_t  server;

    begin(&server, "rdmacm");
    uint16_t   port = serve(&server);
    stranger_t s;

    hello[12] = (char)200; /* bytes of an address, of which none follow */
    WANT_TRUE(knock(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, "GET / HTTP/1.1\r\n\r\n", 18);
    WANT_TRUE(is_sent_away(&s, &server));
    leave(&s);
    WANT_TRUE(knock(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, longest, sizeof(longest)); /* more than fits */
    WANT_TRUE(is_sent_away(&s, &server));
    leave(&s);
    WANT_TRUE(knock(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    say(&s, hello, 5);
    say(&s, hello + 5, 27); /* in pieces, and never whole: it has 5 s */
    WANT_TRUE(is_sent_away(&s, &server));
    leave(&s);
    still_serves(&server, port);
    finish(&server);
}

/* They go in the middle, or say nothing. */
static void strangers_vanish(void)
{
    end_t server;

    begin(&server, "rdmacm");
    uint16_t port = serve(&server);
    for (int i = 0; i < 4; i++) {
        stranger_t s;
        double     began = now();
        WANT_TRUE(knock(&s, &server, port, VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
        if (i == 3) { /* silent */
            WANT_TRUE(is_sent_away(&s, &server));
            WANT_TRUE(now() - began > 4);
        }
        leave(&s);
    }
    still_serves(&server, port);
    finish(&server);
}

/* --- ends that die --- */

/* Sleeps until something wakes it, as long as it may, unless something has just happened; or until another
 * descriptor (-1: none) is ready. */
static void nap(end_t *end, int other)
{
    struct pollfd waits[] = {{.events = POLLIN}, {.fd = other, .events = POLLIN}};
    int           known = end->requests + end->failures;

    WANT(UCS_OK, ucp_worker_get_efd(end->worker, &waits[0].fd));
    while (ucp_worker_progress(end->worker) != 0) {
    }
    if (known == end->requests + end->failures && ucp_worker_arm(end->worker) == UCS_OK) {
        WANT_TRUE(poll(waits, 2, PATIENCE * 1000) >= 1);
    }
}

/* Another process, begun before this one has opened anything. It runs until it is killed: a server that tells its port, or
 * a client that is told one. */
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
                dial(&end, port);
            }
        } else {
            port = serve(&end);
            WANT_TRUE(write(ends[1], &port, sizeof(port)) == sizeof(port));
        }
        for (int told = 0;;) {
            if (end.requests > 0 && !told++) {
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

/* Nothing was sent yet: only the connection tells of the end. */
static void server_is_killed(void)
{
    uint16_t port = 0;
    int      link;
    pid_t    id = spawn(0, 0, &link);
    end_t    client;

    WANT_TRUE(read(link, &port, sizeof(port)) == sizeof(port));
    begin(&client, "rdmacm");
    dial(&client, port);
    port = 0;
    UNTIL(port != 0 || recv(link, &port, sizeof(port), MSG_DONTWAIT) > 0, &client, &client);
    WANT_TRUE(client.failures == 0);
    kill_and_wait(id);
    UNTIL(client.failures > 0, &client, &client);
    /* The last where the answer of who has accepted did not come in time. */
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

/* Both ends sleep whenever they can: what the other one does wakes them. */
static void sleepers(void)
{
    end_t    server;
    int      link;
    pid_t    id = spawn(1, 1, &link);
    uint16_t port;
    double   until = now() + PATIENCE;

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

/* Nothing happens but that the time is up. */
static void sleeper_has_a_guest(void)
{
    end_t      server;
    stranger_t s;
    int        gone  = 0;
    double     began = now();

    begin(&server, "rdmacm");
    WANT_TRUE(knock(&s, &server, serve(&server), VERSION, 8) == RDMA_CM_EVENT_ESTABLISHED);
    while (!gone && now() - began < PATIENCE) {
        struct rdma_cm_event *event;
        nap(&server, s.channel->fd);
        if (rdma_get_cm_event(s.channel, &event) == 0) {
            gone = event->event == RDMA_CM_EVENT_DISCONNECTED;
            rdma_ack_cm_event(event);
        }
    }
    WANT_TRUE(gone);
    WANT_TRUE(now() - began < 10);
    leave(&s);
    finish(&server);
}

static const case_t cases[] = {
    {"ways: as they come", by_default},
    {"ways: the client prefers tcp", by_tcp_first},
    {"ways: the client has tcp only", client_has_tcp},
    {"ways: the client has rdma_cm only", client_has_rdma},
    {"ways: the listener has tcp only", server_has_tcp},
    {"ways: the listener has rdma_cm only", server_has_rdma},
    {"ways: by one device", by_one_device},
    {"ways: nobody listens", nobody_listens},
    {"strangers: who knock", strangers_knock},
    {"strangers: who talk nonsense", strangers_talk},
    {"strangers: who vanish or are silent", strangers_vanish},
    {"ends: a server is killed", server_is_killed},
    {"ends: a client is killed", client_is_killed},
    {"sleepers: each step wakes them", sleepers},
    {"sleepers: who is silent is sent away", sleeper_has_a_guest},
};

CHECK_MAIN(cases)
