/*
 * RC queue pairs whose wireup runs over TCP because UCX_TLS excludes ud: no UD queue pair exists, simultaneous connects
 * end in one connection, broken sockets are connected again, and unknown clients of the port are rejected with a line
 * in the log. The formats are those of src/wire.
 *
 *   HCACTL: prints the counters of the software HCA
 */
#define _GNU_SOURCE
#include "check.h"
#include "finish.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TCP_HELLO = 48, HELLO = 82, PORT = 25, WIREUP = 1 + HELLO + PORT, MOST = 1024, SECONDS = 10 };
enum { TCP = 4, IB = 5, LISTENER = 6 };

typedef struct __attribute__((packed)) {
    uint8_t  magic[8];
    uint32_t purpose, losses;
    uint64_t from, to, secret, client_id;
} tcp_hello_t;

typedef struct __attribute__((packed)) {
    uint8_t  far;
    uint8_t  magic[8];
    uint64_t from, to, secret;
    uint32_t losses, number, proof, receiver_number, qpn, psn;
    uint8_t  iface, flags;
    uint64_t back;
    uint32_t packet, window, datagrams, keepalive_qpn;
    uint8_t  port[PORT];
} wireup_t;

_Static_assert(sizeof(tcp_hello_t) == TCP_HELLO && sizeof(wireup_t) == WIREUP, "as in src/wire");

/* Two workers of this process, and the fields of the first one's address. */
typedef struct {
    ucp_context_h    context;
    ucp_worker_h     worker[2];
    ucp_ep_h         ep[2];
    uint8_t          address[2][MOST];
    size_t           length[2], lost;
    ucs_status_t     why;
    uint64_t         uid, secret, listener_secret;
    uint8_t          port[PORT];
    struct sockaddr_storage at;
} pair_t;

/* --- addresses --- */

static uint8_t *section(pair_t *pair, int i, int kind)
{
    for (size_t at = 12; at + 2 < pair->length[i] - 4; at += 2 + pair->address[i][at + 1]) {
        if (pair->address[i][at] == kind) {
            return pair->address[i] + at + 2;
        }
    }
    return NULL;
}

/* The section of the wireup listener: port, secret, network, addresses. */
static uint8_t *listener_section(pair_t *pair, int i)
{
    uint8_t *own = section(pair, i, LISTENER);

    return own != NULL ? own : section(pair, i, TCP);
}

static void locate(pair_t *pair)
{
    uint8_t *ib = section(pair, 0, IB), *at = listener_section(pair, 0);
    uint16_t number;

    WANT_TRUE(ib != NULL && at != NULL);
    memcpy(&pair->uid, pair->address[0] + 4, 8);
    memcpy(&pair->secret, ib, 8);
    memcpy(pair->port, ib + 8, PORT);
    WANT_TRUE(memcmp(pair->port + 5, "\0\0\0\0", 4) == 0); /* no UD queue pair */
    memcpy(&number, at, 2);
    memcpy(&pair->listener_secret, at + 2, 8);
    if (at[14] == 4) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&pair->at;
        *v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(number)};
        memcpy(&v4->sin_addr, at + 16, 4);
    } else {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&pair->at;
        *v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(number)};
        memcpy(&v6->sin6_addr, at + 16, 16);
    }
}

static uint32_t crc32_of(const uint8_t *bytes, size_t length)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        }
    }
    return ~crc;
}

/* Directs the wireup of this worker to another port. */
static void redirect(pair_t *pair, int i, uint16_t number)
{
    size_t   covered = pair->length[i] - 4;
    uint32_t crc;

    memcpy(listener_section(pair, i), &number, 2);
    crc = crc32_of(pair->address[i], covered);
    memcpy(pair->address[i] + covered, &crc, 4);
}

/* --- the pair --- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    pair_t *pair = arg;

    (void)ep;
    pair->lost++;
    pair->why = status;
}

static void progress_pair(void *arg)
{
    pair_t *pair = arg;

    ucp_worker_progress(pair->worker[0]);
    ucp_worker_progress(pair->worker[1]);
}

static void progress(pair_t *pair)
{
    progress_pair(pair);
}

static void open_both(pair_t *pair)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_address_t      *address;

    memset(pair, 0, sizeof(*pair));
    WANT(UCS_OK, ucp_init(&params, NULL, &pair->context));
    for (int i = 0; i < 2; i++) {
        WANT(UCS_OK, ucp_worker_create(pair->context, &worker_params, &pair->worker[i]));
        WANT(UCS_OK, ucp_worker_get_address(pair->worker[i], &address, &pair->length[i]));
        WANT_TRUE(pair->length[i] <= MOST);
        memcpy(pair->address[i], address, pair->length[i]);
        ucp_worker_release_address(pair->worker[i], address);
    }
    locate(pair);
}

static void connect_as(pair_t *pair, int from, int to, ucp_err_handling_mode_t mode)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)pair->address[to],
        .err_mode    = mode,
        .err_handler = {.cb = on_failure, .arg = pair},
    };

    WANT(UCS_OK, ucp_ep_create(pair->worker[from], &params, &pair->ep[from]));
}

static void connect_to(pair_t *pair, int from, int to)
{
    connect_as(pair, from, to, UCP_ERR_HANDLING_MODE_PEER);
}

static ucs_status_t finish(pair_t *pair, ucs_status_ptr_t request)
{
    return finish_with(request, SECONDS, progress_pair, pair);
}

/* A message in each direction at the same time, of every size around the packet size. */
static void exchange_all_sizes(pair_t *pair)
{
    static char         out[2][300000], in[2][300000];
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent[2], received[2];

    for (size_t size = 8; size < sizeof(out[0]); size = size * 3 + 1) {
        for (int i = 0; i < 2; i++) {
            memset(out[i], (int)size + i, size);
            memset(in[i], 0, size);
            received[i] = ucp_tag_recv_nbx(pair->worker[1 - i], in[i], size, 7, -1, &param);
        }
        for (int i = 0; i < 2; i++) {
            sent[i] = ucp_tag_send_nbx(pair->ep[i], out[i], size, 7, &param);
        }
        for (int i = 0; i < 2; i++) {
            WANT(UCS_OK, finish(pair, sent[i]));
            WANT(UCS_OK, finish(pair, received[i]));
            WANT_TRUE(memcmp(in[i], out[i], size) == 0);
        }
    }
    WANT_TRUE(pair->lost == 0);
}

static void close_both(pair_t *pair)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    for (int i = 0; i < 2; i++) {
        if (pair->ep[i] != NULL) {
            finish(pair, ucp_ep_close_nbx(pair->ep[i], &force));
        }
    }
    for (int i = 0; i < 2; i++) {
        ucp_worker_destroy(pair->worker[i]);
    }
    ucp_cleanup(pair->context);
}

/* Progresses while `going` returns non-zero, for some seconds at most. */
static int until(pair_t *pair, int (*going)(void *), void *arg)
{
    time_t end = time(NULL) + SECONDS;

    while (going(arg) && time(NULL) < end) {
        progress(pair);
    }
    return !going(arg);
}

static long counted(const char *name)
{
    char  line[128], wanted[32];
    long  count   = -1;
    FILE *counter = popen(getenv("HCACTL"), "r");

    WANT_TRUE(counter != NULL);
    snprintf(wanted, sizeof(wanted), "%s=%%ld", name);
    while (fgets(line, sizeof(line), counter) != NULL) {
        sscanf(line, wanted, &count);
    }
    pclose(counter);
    return count;
}

/* --- cases --- */

static void put_and_get(pair_t *pair)
{
    static uint64_t      there[512], here[512];
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = there,
                                   .length     = sizeof(there)};
    ucp_request_param_t  param  = {.op_attr_mask = 0};
    ucp_mem_h            memh;
    ucp_rkey_h           rkey;
    void                *packed;
    size_t               length;

    WANT(UCS_OK, ucp_mem_map(pair->context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(pair->context, memh, &packed, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(pair->ep[0], packed, &rkey));
    ucp_rkey_buffer_release(packed);
    for (size_t i = 0; i < 512; i++) {
        here[i] = i * i;
    }
    WANT(UCS_OK, finish(pair, ucp_put_nbx(pair->ep[0], here, sizeof(here), (uintptr_t)there, rkey, &param)));
    WANT(UCS_OK, finish(pair, ucp_ep_flush_nbx(pair->ep[0], &param)));
    WANT_TRUE(memcmp(here, there, sizeof(here)) == 0);
    there[7] = 1234567;
    WANT(UCS_OK, finish(pair, ucp_get_nbx(pair->ep[0], here, sizeof(here), (uintptr_t)there, rkey, &param)));
    WANT_TRUE(here[7] == 1234567);
    ucp_rkey_destroy(rkey);
    WANT(UCS_OK, ucp_mem_unmap(pair->context, memh));
}

/* Both ends send before either has received anything. */
static void both_at_once(void)
{
    pair_t pair;

    long queues = counted("rc_queues");
    open_both(&pair);
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    exchange_all_sizes(&pair);
    put_and_get(&pair);
    WANT_TRUE(counted("rc_queues") == queues + 2); /* one connection, whichever end started it */
    WANT_TRUE(counted("ud_queues") == 0);
    close_both(&pair);
}

static int open_sockets(void)
{
    int count = 0;

    for (int fd = 3; fd < 512; fd++) {
        int       type;
        socklen_t length = sizeof(type);
        count += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
    }
    return count;
}

/* --- a proxy proxy_step a worker and its peer --- */

/* What the proxy does with the n-th connection. */
static const enum { DROP, TEAR, SWALLOW, ANSWER, FORWARD } action[] = {DROP, TEAR, SWALLOW, ANSWER, DROP, FORWARD};

typedef struct {
    pair_t  *pair;
    int      listener, near, far, passed;
    unsigned count;
    size_t   there, back;
    uint8_t  got;
} proxy_t;

static uint16_t listen_somewhere(int *listener)
{
    struct sockaddr_in6 at     = {.sin6_family = AF_INET6};
    socklen_t           length = sizeof(at);

    *listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    WANT_TRUE(bind(*listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(*listener, 64) == 0);
    WANT_TRUE(getsockname(*listener, (struct sockaddr *)&at, &length) == 0);
    return ntohs(at.sin6_port);
}

static void close_both_ends(proxy_t *m)
{
    close(m->near);
    close(m->far);
    m->near = m->far = -1;
    m->there = m->back = 0;
}

/* Forwards bytes. Returns -1 at end of file. */
static ssize_t carry(int from, int to)
{
    uint8_t bytes[512];
    ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n <= 0) {
        return n < 0 && errno == EAGAIN ? 0 : -1;
    }
    WANT_TRUE(send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n || to < 0);
    return n;
}

/* Accepts one connection after the other until the message has arrived. */
static int proxy_step(void *arg)
{
    proxy_t *m = arg;
    uint8_t  bytes[TCP_HELLO + WIREUP];
    ssize_t  n;

    if (m->near < 0) {
        m->near = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (m->near < 0) {
            return !m->got;
        }
        int what =
            action[m->count < sizeof(action) / sizeof(action[0]) ? m->count : sizeof(action) / sizeof(action[0]) - 1];
        m->count++;
        m->passed = what;
        if (what == DROP) {
            close_both_ends(m);
        } else {
            m->far = socket(m->pair->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            WANT_TRUE(connect(m->far, (struct sockaddr *)&m->pair->at, sizeof(m->pair->at)) == 0);
        }
        return !m->got;
    }
    if (m->passed == TEAR || m->passed == SWALLOW) {
        size_t wanted = m->passed == TEAR ? TCP_HELLO + WIREUP / 2 : TCP_HELLO + WIREUP;

        n = recv(m->near, bytes, wanted - m->there, MSG_DONTWAIT);
        if (n > 0 && m->passed == TEAR) {
            WANT_TRUE(send(m->far, bytes, (size_t)n, MSG_NOSIGNAL) == n);
        }
        m->there += n > 0 ? (size_t)n : 0;
        if (m->there == wanted) {
            close_both_ends(m);
        }
        return !m->got;
    }
    n = carry(m->near, m->far);
    ssize_t answer = n < 0 ? -1 : carry(m->far, m->near);
    m->back += answer > 0 ? (size_t)answer : 0;
    if (n < 0 || answer < 0 || (m->passed == ANSWER && m->back > 0)) {
        close_both_ends(m);
    }
    return !m->got;
}

/* A socket that breaks before both ends are ready is connected again, and the state exchanged by it is kept. */
static void broken(void)
{
    pair_t              pair;
    proxy_t            proxy = {.pair = &pair, .near = -1, .far = -1};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    uint8_t             one    = 1;

    setenv("UCX_UD_TIMEOUT", "8s", 1);
    long queues = counted("rc_queues");
    open_both(&pair);
    redirect(&pair, 0, listen_somewhere(&proxy.listener));
    connect_to(&pair, 1, 0);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(pair.worker[0], &proxy.got, 1, 7, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(pair.ep[1], &one, 1, 7, &param);
    WANT_TRUE(until(&pair, proxy_step, &proxy));
    /* the reply may already be all that is needed */
    WANT_TRUE(proxy.count >= 4 && pair.lost == 0);
    if (proxy.near >= 0) {
        close_both_ends(&proxy);
    }
    close(proxy.listener);
    WANT(UCS_OK, finish(&pair, sent));
    WANT(UCS_OK, finish(&pair, received));
    connect_to(&pair, 0, 1);
    exchange_all_sizes(&pair);
    WANT_TRUE(counted("rc_queues") == queues + 2 && counted("ud_queues") == 0);
    close_both(&pair);
}

static int still_open(void *arg)
{
    return open_sockets() != *(int *)arg;
}

/* When both ends are ready, only the listening sockets are left. */
static void no_socket_left(void)
{
    pair_t pair;
    int    listening;

    open_both(&pair);
    listening = open_sockets();
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    exchange_all_sizes(&pair);
    WANT_TRUE(until(&pair, still_open, &listening));
    exchange_all_sizes(&pair);
    close_both(&pair);
}

static int not_lost(void *arg)
{
    return ((pair_t *)arg)->lost == 0;
}

/* No process listens at the address; then a listener accepts and never replies. */
static void no_listener(void)
{
    for (int silent = 0; silent < 2; silent++) {
        pair_t              pair;
        int                 listener;
        ucp_request_param_t param = {.op_attr_mask = 0};
        char                data  = 0;

        open_both(&pair);
        redirect(&pair, 0, listen_somewhere(&listener));
        if (!silent) {
            close(listener);
        }
        connect_to(&pair, 1, 0);
        ucs_status_ptr_t sent = ucp_tag_send_nbx(pair.ep[1], &data, 1, 7, &param);
        WANT_TRUE(until(&pair, not_lost, &pair));
        WANT_TRUE(pair.lost == 1 && pair.why == UCS_ERR_ENDPOINT_TIMEOUT);
        WANT(UCS_ERR_ENDPOINT_TIMEOUT, finish(&pair, sent));
        if (silent) {
            close(listener);
        }
        close_both(&pair);
    }
}

/* --- clients that are no workers --- */

static int connect_and_send(const pair_t *pair, const void *bytes, size_t length)
{
    int fd = socket(pair->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    WANT_TRUE(connect(fd, (const struct sockaddr *)&pair->at, sizeof(pair->at)) == 0);
    WANT_TRUE(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
    WANT_TRUE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

/* Receives until the other end has closed the socket. */
static int not_closed(void *arg)
{
    char    bytes[512];
    ssize_t n = recv(*(int *)arg, bytes, sizeof(bytes), MSG_DONTWAIT);

    return n > 0 || (n < 0 && errno == EAGAIN);
}

static tcp_hello_t tcp_hello_to(const pair_t *pair)
{
    tcp_hello_t g = {.purpose = 2, .from = 99, .to = pair->uid, .secret = pair->listener_secret};

    memcpy(g.magic, "rucptcp\x01", 8);
    return g;
}

static wireup_t wireup_to(const pair_t *pair, uint64_t from)
{
    wireup_t l = {.from = from, .to = pair->uid, .secret = pair->secret, .number = 1, .proof = 2,
                  .receiver_number = 0xffffff, .qpn = 5, .psn = 6, .back = 3, .packet = 8256, .window = 512,
                  .datagrams = 64};

    memcpy(l.magic, "rucp-ib4", 8);
    memcpy(l.port, pair->port, PORT);
    return l;
}

/* Counts the lines of the log about connections closed for this reason, or for any reason if it is empty. */
static int count_log_lines(const char *path, const char *why)
{
    char  line[1024];
    int   count = 0;
    FILE *log   = fopen(path, "r");

    while (log != NULL && fgets(line, sizeof(line), log) != NULL) {
        count += strstr(line, "connection from") != NULL && strstr(line, why) != NULL;
    }
    if (log != NULL) {
        fclose(log);
    }
    return count;
}

static void want_rejected(pair_t *pair, const char *log, const char *why, const void *bytes, size_t length, int ends)
{
    int all = count_log_lines(log, ""), before = count_log_lines(log, why), fd = connect_and_send(pair, bytes, length);

    if (ends) {
        shutdown(fd, SHUT_WR);
    }
    WANT_TRUE(until(pair, not_closed, &fd));
    WANT_TRUE(count_log_lines(log, why) == before + 1 && count_log_lines(log, "") == all + 1);
    close(fd);
}

static void unknown_clients(void)
{
    struct __attribute__((packed)) {
        tcp_hello_t hello;
        wireup_t    wireup[20];
    } bytes;
    pair_t pair;
    char   log[] = "/tmp/oob_wireup.XXXXXX";

    close(mkstemp(log));
    setenv("UCX_LOG_LEVEL", "diag", 1);
    setenv("UCX_LOG_FILE", log, 1);
    open_both(&pair);
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    exchange_all_sizes(&pair);

#define FRESH()                                                                                                       \
    do {                                                                                                              \
        bytes.hello = tcp_hello_to(&pair);                                                                          \
        for (int i = 0; i < 20; i++)                                                                                  \
            bytes.wireup[i] = wireup_to(&pair, 99);                                                                   \
    } while (0)
#define REJECTED(why, length, ends) want_rejected(&pair, log, why, &bytes, length, ends)
    enum { ONE = TCP_HELLO + WIREUP };
    const char *const ELSE = "unknown protocol", *const SECRET = "wrong secret";

    want_rejected(&pair, log, ELSE, "GET / HTTP/1.1\r\n\r\n", 18, 0);
    for (size_t length = 0; length < ONE; length += 13) {
        FRESH();
        REJECTED("closed before the hello", length, 1); /* truncated */
    }
    FRESH();
    bytes.hello.secret ^= 1;
    REJECTED(SECRET, TCP_HELLO, 0);
    FRESH();
    bytes.hello.to ^= 1;
    REJECTED(SECRET, ONE, 0);
    FRESH();
    bytes.hello.purpose = 3;
    REJECTED(ELSE, ONE, 0);
    FRESH();
    bytes.wireup[0].magic[7]++;
    REJECTED(ELSE, ONE, 0);
    REJECTED(ELSE, TCP_HELLO + 9, 0); /* the wrong magic number suffices */
    FRESH();
    bytes.wireup[0].secret ^= 1;
    REJECTED(SECRET, ONE, 0);
    FRESH();
    bytes.wireup[0].to ^= 1;
    REJECTED("it is for another worker", ONE, 0);
    FRESH();
    bytes.wireup[0].qpn = 1 << 24;
    REJECTED("it names no queue pair", ONE, 0);
    FRESH();
    bytes.wireup[0].packet = 1;
    REJECTED(ELSE, ONE, 0);
    FRESH();
    bytes.wireup[0].receiver_number = 12345;
    REJECTED("it is out of date", ONE, 0);
    FRESH();
    REJECTED("too many wireup messages", sizeof(bytes), 0); /* without end */
    FRESH();
    memset(&bytes.wireup[1], 0xff, WIREUP);
    REJECTED(ELSE, TCP_HELLO + 2 * WIREUP, 0); /* unknown bytes behind a wireup message */
    WANT_TRUE(counted("ud_queues") == 0);
    exchange_all_sizes(&pair);
    close_both(&pair);
    unlink(log);
}

typedef struct {
    pair_t *pair;
    char    got;
} receive_t;

static int not_received(void *arg)
{
    return !((receive_t *)arg)->got;
}

/*
 * More clients than a worker accepts at a time, half of them in the proxy of a message: a later peer waits, but not for
 * ever.
 */
static void many_clients(void)
{
    enum { CLIENTS = 600 };
    static int          fd[CLIENTS];
    struct rlimit       many;
    pair_t              pair;
    receive_t           waiting;
    long                queues;
    ucp_request_param_t param = {.op_attr_mask = 0};
    char                one   = 1;
    struct __attribute__((packed)) {
        tcp_hello_t hello;
        wireup_t    wireup;
    } bytes;

    WANT_TRUE(getrlimit(RLIMIT_NOFILE, &many) == 0);
    many.rlim_cur = many.rlim_max < 4096 ? many.rlim_max : 4096;
    WANT_TRUE(setrlimit(RLIMIT_NOFILE, &many) == 0);
    setenv("UCX_UD_TIMEOUT", "1s", 1);
    open_both(&pair);
    queues = counted("rc_queues");
    waiting  = (receive_t){.pair = &pair};
    for (int i = 0; i < CLIENTS; i++) {
        bytes.hello = tcp_hello_to(&pair);
        bytes.wireup   = wireup_to(&pair, 1000 + (uint64_t)i);
        fd[i]          = connect_and_send(&pair, &bytes, i % 2 ? sizeof(bytes) : TCP_HELLO + 40);
        progress(&pair);
    }
    connect_as(&pair, 1, 0, UCP_ERR_HANDLING_MODE_NONE);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(pair.worker[0], &waiting.got, 1, 7, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(pair.ep[1], &one, 1, 7, &param);
    WANT_TRUE(until(&pair, not_received, &waiting));
    WANT(UCS_OK, finish(&pair, sent));
    WANT(UCS_OK, finish(&pair, received));
    for (int i = 0; i < CLIENTS; i++) {
        close(fd[i]);
    }
    connect_as(&pair, 0, 1, UCP_ERR_HANDLING_MODE_NONE);
    exchange_all_sizes(&pair);
    /* queue pairs were made for the accepted clients, and no more */
    long made = counted("rc_queues") - queues;
    WANT_TRUE(made > 200 && made <= 256 + 2);
    close_both(&pair);
}

static const case_t cases[] = {
    {"oob wireup: simultaneous connect", both_at_once},
    {"oob wireup: no socket is left", no_socket_left},
    {"oob wireup: broken sockets", broken},
    {"oob wireup: no reply", no_listener},
    {"oob wireup: unknown clients", unknown_clients},
    {"oob wireup: many clients", many_clients},
};

CHECK_MAIN(cases)
