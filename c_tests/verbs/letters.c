/*
 * Queue pairs that are connected by TCP because the user excludes ud: nothing has a queue pair for datagrams, two that begin
 * at once are one connection, sockets break and are connected anew, and strangers at the port are sent away with a line in the
 * log. The formats are those of src/wire/address.rs, greeting.rs and packet.rs.
 *
 *   HCACTL: shows what the software HCA has counted
 */
#define _GNU_SOURCE
#include "check.h"

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

enum { GREETING = 48, HELLO = 82, PORT = 25, LETTER = 1 + HELLO + PORT, MOST = 1024, SECONDS = 10 };
enum { TCP = 4, IB = 5, GREETER = 6 };

typedef struct __attribute__((packed)) {
    uint8_t  magic[8];
    uint32_t purpose, losses;
    uint64_t from, to, secret, client_id;
} greeting_t;

typedef struct __attribute__((packed)) {
    uint8_t  far;
    uint8_t  magic[8];
    uint64_t from, to, secret;
    uint32_t losses, number, proof, yours, qpn, psn;
    uint8_t  iface, flags;
    uint64_t back;
    uint32_t packet, window, datagrams, pulse;
    uint8_t  port[PORT];
} letter_t;

_Static_assert(sizeof(greeting_t) == GREETING && sizeof(letter_t) == LETTER, "as in src/wire");

/* Two workers of this process, and what the address of the first says. */
typedef struct {
    ucp_context_h    context;
    ucp_worker_h     worker[2];
    ucp_ep_h         ep[2];
    uint8_t          address[2][MOST];
    size_t           length[2], lost;
    ucs_status_t     why;
    uint64_t         uid, secret, greeter_secret;
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

/* Where greetings are taken: port, secret, network, addresses. */
static uint8_t *greeter(pair_t *pair, int i)
{
    uint8_t *own = section(pair, i, GREETER);

    return own != NULL ? own : section(pair, i, TCP);
}

static void locate(pair_t *pair)
{
    uint8_t *ib = section(pair, 0, IB), *at = greeter(pair, 0);
    uint16_t number;

    WANT_TRUE(ib != NULL && at != NULL);
    memcpy(&pair->uid, pair->address[0] + 4, 8);
    memcpy(&pair->secret, ib, 8);
    memcpy(pair->port, ib + 8, PORT);
    WANT_TRUE(memcmp(pair->port + 5, "\0\0\0\0", 4) == 0); /* no queue pair for datagrams */
    memcpy(&number, at, 2);
    memcpy(&pair->greeter_secret, at + 2, 8);
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

/* Letters for this worker are to be brought to another port. */
static void divert(pair_t *pair, int i, uint16_t number)
{
    size_t   covered = pair->length[i] - 4;
    uint32_t crc;

    memcpy(greeter(pair, i), &number, 2);
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

static void progress(pair_t *pair)
{
    ucp_worker_progress(pair->worker[0]);
    ucp_worker_progress(pair->worker[1]);
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
    time_t end = time(NULL) + SECONDS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end) {
        progress(pair);
    }
    ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

/* A message there and one back at the same time, of all sizes that packets are cut from. */
static void goes_on(pair_t *pair)
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

/* Progresses as long as `going` says, at most some seconds. */
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

/* Both say something before either has heard of the other. */
static void both_at_once(void)
{
    pair_t pair;

    long queues = counted("rc_queues");
    open_both(&pair);
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    goes_on(&pair);
    put_and_get(&pair);
    WANT_TRUE(counted("rc_queues") == queues + 2); /* one connection, whoever has begun it */
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

/* --- a port between a worker and its peer --- */

/* What becomes of the n-th connection. */
static const enum { DROP, TEAR, SWALLOW, ANSWER, FAITHFUL } fate[] = {DROP, TEAR, SWALLOW, ANSWER, DROP, FAITHFUL};

typedef struct {
    pair_t  *pair;
    int      listener, near, far, passed;
    unsigned count;
    size_t   there, back;
    uint8_t  got;
} middle_t;

static uint16_t listen_somewhere(int *listener)
{
    struct sockaddr_in6 at     = {.sin6_family = AF_INET6};
    socklen_t           length = sizeof(at);

    *listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    WANT_TRUE(bind(*listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(*listener, 64) == 0);
    WANT_TRUE(getsockname(*listener, (struct sockaddr *)&at, &length) == 0);
    return ntohs(at.sin6_port);
}

static void hang_up(middle_t *m)
{
    close(m->near);
    close(m->far);
    m->near = m->far = -1;
    m->there = m->back = 0;
}

/* Moves bytes on. -1 at their end. */
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

/* One connection after the other, until the message is there. */
static int between(void *arg)
{
    middle_t *m = arg;
    uint8_t   bytes[GREETING + LETTER];
    ssize_t   n;

    if (m->near < 0) {
        m->near = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (m->near < 0) {
            return !m->got;
        }
        int what = fate[m->count < sizeof(fate) / sizeof(fate[0]) ? m->count : sizeof(fate) / sizeof(fate[0]) - 1];
        m->count++;
        m->passed = what;
        if (what == DROP) {
            hang_up(m);
        } else {
            m->far = socket(m->pair->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            WANT_TRUE(connect(m->far, (struct sockaddr *)&m->pair->at, sizeof(m->pair->at)) == 0);
        }
        return !m->got;
    }
    if (m->passed == TEAR || m->passed == SWALLOW) {
        size_t wanted = m->passed == TEAR ? GREETING + LETTER / 2 : GREETING + LETTER;

        n = recv(m->near, bytes, wanted - m->there, MSG_DONTWAIT);
        if (n > 0 && m->passed == TEAR) {
            WANT_TRUE(send(m->far, bytes, (size_t)n, MSG_NOSIGNAL) == n);
        }
        m->there += n > 0 ? (size_t)n : 0;
        if (m->there == wanted) {
            hang_up(m);
        }
        return !m->got;
    }
    n = carry(m->near, m->far);
    ssize_t answer = n < 0 ? -1 : carry(m->far, m->near);
    m->back += answer > 0 ? (size_t)answer : 0;
    if (n < 0 || answer < 0 || (m->passed == ANSWER && m->back > 0)) {
        hang_up(m);
    }
    return !m->got;
}

/* A socket that breaks before both are ready is connected anew, and what was said by it is known. */
static void broken(void)
{
    pair_t              pair;
    middle_t            middle = {.pair = &pair, .near = -1, .far = -1};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    uint8_t             one    = 1;

    setenv("UCX_UD_TIMEOUT", "8s", 1);
    long queues = counted("rc_queues");
    open_both(&pair);
    divert(&pair, 0, listen_somewhere(&middle.listener));
    connect_to(&pair, 1, 0);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(pair.worker[0], &middle.got, 1, 7, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(pair.ep[1], &one, 1, 7, &param);
    WANT_TRUE(until(&pair, between, &middle));
    /* what was answered may be all that is needed */
    WANT_TRUE(middle.count >= 4 && pair.lost == 0);
    if (middle.near >= 0) {
        hang_up(&middle);
    }
    close(middle.listener);
    WANT(UCS_OK, finish(&pair, sent));
    WANT(UCS_OK, finish(&pair, received));
    connect_to(&pair, 0, 1);
    goes_on(&pair);
    WANT_TRUE(counted("rc_queues") == queues + 2 && counted("ud_queues") == 0);
    close_both(&pair);
}

static int still_open(void *arg)
{
    return open_sockets() != *(int *)arg;
}

/* When both are ready no socket is left but those that listen. */
static void settled(void)
{
    pair_t pair;
    int    listening;

    open_both(&pair);
    listening = open_sockets();
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    goes_on(&pair);
    WANT_TRUE(until(&pair, still_open, &listening));
    goes_on(&pair);
    close_both(&pair);
}

static int not_lost(void *arg)
{
    return ((pair_t *)arg)->lost == 0;
}

/* Nobody is where the address says; somebody is there who says nothing. */
static void nobody(void)
{
    for (int silent = 0; silent < 2; silent++) {
        pair_t              pair;
        int                 listener;
        ucp_request_param_t param = {.op_attr_mask = 0};
        char                data  = 0;

        open_both(&pair);
        divert(&pair, 0, listen_somewhere(&listener));
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

/* --- strangers --- */

static int knock(const pair_t *pair, const void *bytes, size_t length)
{
    int fd = socket(pair->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    WANT_TRUE(connect(fd, (const struct sockaddr *)&pair->at, sizeof(pair->at)) == 0);
    WANT_TRUE(send(fd, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
    WANT_TRUE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    return fd;
}

/* Until the other end has closed; what it says before is taken. */
static int at_door(void *arg)
{
    char    bytes[512];
    ssize_t n = recv(*(int *)arg, bytes, sizeof(bytes), MSG_DONTWAIT);

    return n > 0 || (n < 0 && errno == EAGAIN);
}

static greeting_t greeting_to(const pair_t *pair)
{
    greeting_t g = {.purpose = 2, .from = 99, .to = pair->uid, .secret = pair->greeter_secret};

    memcpy(g.magic, "rucptcp\x01", 8);
    return g;
}

static letter_t letter_to(const pair_t *pair, uint64_t from)
{
    letter_t l = {.from = from, .to = pair->uid, .secret = pair->secret, .number = 1, .proof = 2, .yours = 0xffffff,
                  .qpn = 5, .psn = 6, .back = 3, .packet = 8256, .window = 512, .datagrams = 64};

    memcpy(l.magic, "rucp-ib4", 8);
    memcpy(l.port, pair->port, PORT);
    return l;
}

/* Lines of the log about connections that were closed for this reason, of any if it is none. */
static int lines_of(const char *path, const char *why)
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

static void sent_away(pair_t *pair, const char *log, const char *why, const void *bytes, size_t length, int ends)
{
    int all = lines_of(log, ""), before = lines_of(log, why), fd = knock(pair, bytes, length);

    if (ends) {
        shutdown(fd, SHUT_WR);
    }
    WANT_TRUE(until(pair, at_door, &fd));
    WANT_TRUE(lines_of(log, why) == before + 1 && lines_of(log, "") == all + 1);
    close(fd);
}

static void strangers(void)
{
    struct __attribute__((packed)) {
        greeting_t greeting;
        letter_t   letter[20];
    } bytes;
    pair_t pair;
    char   log[] = "/tmp/letters.XXXXXX";

    close(mkstemp(log));
    setenv("UCX_LOG_LEVEL", "diag", 1);
    setenv("UCX_LOG_FILE", log, 1);
    open_both(&pair);
    connect_to(&pair, 0, 1);
    connect_to(&pair, 1, 0);
    goes_on(&pair);

#define FRESH()                                                                                                       \
    do {                                                                                                              \
        bytes.greeting = greeting_to(&pair);                                                                          \
        for (int i = 0; i < 20; i++)                                                                                  \
            bytes.letter[i] = letter_to(&pair, 99);                                                                   \
    } while (0)
#define AWAY(why, length, ends) sent_away(&pair, log, why, &bytes, length, ends)
    enum { ONE = GREETING + LETTER };
    const char *const ELSE = "it speaks something else", *const SECRET = "it does not know the secret";

    sent_away(&pair, log, ELSE, "GET / HTTP/1.1\r\n\r\n", 18, 0);
    for (size_t length = 0; length < ONE; length += 13) {
        FRESH();
        AWAY("it went without a word", length, 1); /* truncated */
    }
    FRESH();
    bytes.greeting.secret ^= 1;
    AWAY(SECRET, GREETING, 0);
    FRESH();
    bytes.greeting.to ^= 1;
    AWAY(SECRET, ONE, 0);
    FRESH();
    bytes.greeting.purpose = 3;
    AWAY(ELSE, ONE, 0);
    FRESH();
    bytes.letter[0].magic[7]++;
    AWAY(ELSE, ONE, 0);
    AWAY(ELSE, GREETING + 9, 0); /* the magic number is enough to see it */
    FRESH();
    bytes.letter[0].secret ^= 1;
    AWAY(SECRET, ONE, 0);
    FRESH();
    bytes.letter[0].to ^= 1;
    AWAY("it is for another worker", ONE, 0);
    FRESH();
    bytes.letter[0].qpn = 1 << 24;
    AWAY("it names no queue pair", ONE, 0);
    FRESH();
    bytes.letter[0].packet = 1;
    AWAY(ELSE, ONE, 0);
    FRESH();
    bytes.letter[0].yours = 12345;
    AWAY("it is out of date", ONE, 0);
    FRESH();
    AWAY("it does not come to an end", sizeof(bytes), 0); /* without end */
    FRESH();
    memset(&bytes.letter[1], 0xff, LETTER);
    AWAY(ELSE, GREETING + 2 * LETTER, 0); /* something else behind a letter */
    WANT_TRUE(counted("ud_queues") == 0);
    goes_on(&pair);
    close_both(&pair);
    unlink(log);
}

typedef struct {
    pair_t *pair;
    char    got;
} guest_t;

static int nothing_yet(void *arg)
{
    return !((guest_t *)arg)->got;
}

/* More than a worker lets in at a time, half of them in the middle of a letter: who comes then has to wait, not for ever. */
static void crowd(void)
{
    enum { CROWD = 600 };
    static int          fd[CROWD];
    struct rlimit       many;
    pair_t              pair;
    guest_t             guest;
    long                queues;
    ucp_request_param_t param = {.op_attr_mask = 0};
    char                one   = 1;
    struct __attribute__((packed)) {
        greeting_t greeting;
        letter_t   letter;
    } bytes;

    WANT_TRUE(getrlimit(RLIMIT_NOFILE, &many) == 0);
    many.rlim_cur = many.rlim_max < 4096 ? many.rlim_max : 4096;
    WANT_TRUE(setrlimit(RLIMIT_NOFILE, &many) == 0);
    setenv("UCX_UD_TIMEOUT", "1s", 1);
    open_both(&pair);
    queues = counted("rc_queues");
    guest  = (guest_t){.pair = &pair};
    for (int i = 0; i < CROWD; i++) {
        bytes.greeting = greeting_to(&pair);
        bytes.letter   = letter_to(&pair, 1000 + (uint64_t)i);
        fd[i]          = knock(&pair, &bytes, i % 2 ? sizeof(bytes) : GREETING + 40);
        progress(&pair);
    }
    connect_as(&pair, 1, 0, UCP_ERR_HANDLING_MODE_NONE);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(pair.worker[0], &guest.got, 1, 7, -1, &param);
    ucs_status_ptr_t sent     = ucp_tag_send_nbx(pair.ep[1], &one, 1, 7, &param);
    WANT_TRUE(until(&pair, nothing_yet, &guest));
    WANT(UCS_OK, finish(&pair, sent));
    WANT(UCS_OK, finish(&pair, received));
    for (int i = 0; i < CROWD; i++) {
        close(fd[i]);
    }
    connect_as(&pair, 0, 1, UCP_ERR_HANDLING_MODE_NONE);
    goes_on(&pair);
    /* queue pairs were made for those who were let in, and no more */
    long made = counted("rc_queues") - queues;
    WANT_TRUE(made > 200 && made <= 256 + 2);
    close_both(&pair);
}

static const case_t cases[] = {
    {"letters: both at once", both_at_once},
    {"letters: no socket is left", settled},
    {"letters: sockets that break", broken},
    {"letters: nobody answers", nobody},
    {"letters: strangers", strangers},
    {"letters: a crowd", crowd},
};

CHECK_MAIN(cases)
