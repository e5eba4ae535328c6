/*
 * Forged datagrams to a worker's UD queue pair, which no worker of this library would send. Each is dropped, the worker
 * goes on with its peer, and keeps no state of them. The formats are those of src/wire/address.rs and ib_packet.rs.
 */
#define _GNU_SOURCE
#include "check.h"
#include "finish.h"

#include <endian.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { QKEY = 0x72756370, MTU = 1024, GRH = 40, SLOTS = 64, HELLO_SIZE = 82, PORT_SIZE = 25, HEADER_SIZE = 16 };

/* Two workers of this process that are connected; the first is the target of the forged packets. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker[2];
    ucp_ep_h      ep[2];
    uint64_t      uid, secret;
    uint8_t       port[PORT_SIZE];
    size_t        lost; /* peers of the target */
} pair_t;

/* A UD queue pair with an address handle to the target. */
typedef struct {
    struct ibv_context *context;
    struct ibv_pd      *pd;
    struct ibv_cq      *cq;
    struct ibv_qp      *qp;
    struct ibv_ah      *ah;
    struct ibv_mr      *mr;
    uint8_t             memory[2 * SLOTS][MTU + GRH];
    uint8_t             port[PORT_SIZE];
    uint32_t            target;
    unsigned            sent, received;
} forger_t;

static uint64_t random_state = 88172645463325252u;

static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* --- the target --- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    (*(size_t *)arg)++;
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

/* The section of kind 5 of a worker's address: secret, then ports. */
static void locate(pair_t *pair, const uint8_t *address, size_t length)
{
    memcpy(&pair->uid, address + 4, 8);
    for (size_t at = 12; at + 2 < length - 4; at += 2 + address[at + 1]) {
        if (address[at] == 5) {
            memcpy(&pair->secret, address + at + 2, 8);
            memcpy(pair->port, address + at + 10, PORT_SIZE);
            return;
        }
    }
    WANT_TRUE(!"an address with ports");
}

static void connect_to(pair_t *pair, int from, int to)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &pair->lost},
    };
    ucp_address_t *address;
    size_t         length;

    WANT(UCS_OK, ucp_worker_get_address(pair->worker[to], &address, &length));
    if (to == 0) {
        locate(pair, (const uint8_t *)address, length);
    }
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(pair->worker[from], &params, &pair->ep[from]));
    ucp_worker_release_address(pair->worker[to], address);
}

static ucs_status_t finish(pair_t *pair, ucs_status_ptr_t request)
{
    return finish_with(request, 10, progress_pair, pair);
}

/* A message in each direction, of every size around the packet size. */
static void exchange_all_sizes(pair_t *pair)
{
    static char         out[30000], in[30000];
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (size_t size = 8; size < sizeof(out); size = size * 3 + 1) {
        for (int i = 0; i < 2; i++) {
            memset(out, (int)random_number(), size);
            ucs_status_ptr_t received = ucp_tag_recv_nbx(pair->worker[1 - i], in, size, 7, -1, &param);
            WANT(UCS_OK, finish(pair, ucp_tag_send_nbx(pair->ep[i], out, size, 7, &param)));
            WANT(UCS_OK, finish(pair, received));
            WANT_TRUE(memcmp(in, out, size) == 0);
        }
    }
    WANT_TRUE(pair->lost == 0);
}

static void pair_open(pair_t *pair)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    memset(pair, 0, sizeof(*pair));
    WANT(UCS_OK, ucp_init(&params, NULL, &pair->context));
    for (int i = 0; i < 2; i++) {
        WANT(UCS_OK, ucp_worker_create(pair->context, &worker_params, &pair->worker[i]));
    }
    connect_to(pair, 0, 1);
    connect_to(pair, 1, 0);
    exchange_all_sizes(pair);
}

static void pair_close(pair_t *pair)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    for (int i = 0; i < 2; i++) {
        finish(pair, ucp_ep_close_nbx(pair->ep[i], &force));
    }
    for (int i = 0; i < 2; i++) {
        ucp_worker_destroy(pair->worker[i]);
    }
    ucp_cleanup(pair->context);
}

/* --- the sender of forged packets --- */

static void receive(forger_t *s, unsigned slot)
{
    struct ibv_sge      sge = {.addr = (uintptr_t)s->memory[slot], .length = MTU + GRH, .lkey = s->mr->lkey};
    struct ibv_recv_wr  wr  = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

    WANT_TRUE(ibv_post_recv(s->qp, &wr, &bad) == 0);
}

static void forger_open(forger_t *s, const pair_t *pair)
{
    int                  count;
    struct ibv_device  **list = ibv_get_device_list(&count);
    uint16_t             lid;

    memset(s, 0, sizeof(*s));
    WANT_TRUE(count > 0);
    s->context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    s->pd = ibv_alloc_pd(s->context);
    s->cq = ibv_create_cq(s->context, 4 * SLOTS, NULL, NULL, 0);
    s->mr = ibv_reg_mr(s->pd, s->memory, sizeof(s->memory), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD, .send_cq = s->cq, .recv_cq = s->cq, .sq_sig_all = 1,
                                    .cap = {.max_send_wr = SLOTS, .max_recv_wr = SLOTS, .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    s->qp = ibv_create_qp(s->pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    WANT_TRUE(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    WANT_TRUE(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    WANT_TRUE(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        receive(s, SLOTS + i);
    }
    /* The target's address: on the same port, so that its kind of addressing is this process's. */
    memcpy(&lid, pair->port + 3, 2);
    memcpy(&s->target, pair->port + 5, 4);
    struct ibv_ah_attr path = {.dlid = lid, .port_num = 1, .is_global = pair->port[0] & 1};
    for (int i = 0; i < 16; i++) {
        path.grh.dgid.raw[i] = pair->port[24 - i];
    }
    union ibv_gid gid;
    for (int i = 0; path.is_global && ibv_query_gid(s->context, 1, i, &gid) == 0; i++) {
        if (memcmp(&gid, &path.grh.dgid, 16) == 0) {
            path.grh.sgid_index = i; /* the last one has the newer format */
        }
    }
    path.grh.hop_limit = 64;
    s->ah = ibv_create_ah(s->pd, &path);
    WANT_TRUE(s->ah != NULL);
    memcpy(s->port, pair->port, PORT_SIZE);
    memcpy(s->port + 5, &s->qp->qp_num, 4);
}

static void forger_close(forger_t *s)
{
    ibv_destroy_qp(s->qp);
    ibv_destroy_ah(s->ah);
    ibv_dereg_mr(s->mr);
    ibv_destroy_cq(s->cq);
    ibv_dealloc_pd(s->pd);
    ibv_close_device(s->context);
}

/* Drains the receive queue; returns the last wireup message of the target, or NULL. */
static const uint8_t *poll_reply(forger_t *s)
{
    const uint8_t *greeting = NULL;
    struct ibv_wc  wc;

    while (ibv_poll_cq(s->cq, 1, &wc) > 0) {
        if (wc.opcode & IBV_WC_RECV) {
            static uint8_t last[HELLO_SIZE];
            uint8_t       *bytes = s->memory[wc.wr_id] + GRH;

            s->received++;
            if ((bytes[3] & 4) && wc.byte_len >= GRH + HEADER_SIZE + HELLO_SIZE) {
                memcpy(last, bytes + HEADER_SIZE, HELLO_SIZE);
                greeting = last;
            }
            receive(s, (unsigned)wc.wr_id);
        }
    }
    return greeting;
}

static const uint8_t *send_forged(forger_t *s, pair_t *pair, const void *bytes, size_t length)
{
    unsigned            slot = s->sent++ % SLOTS;
    struct ibv_sge      sge  = {.addr = (uintptr_t)s->memory[slot], .length = (uint32_t)length, .lkey = s->mr->lkey};
    struct ibv_send_wr  wr   = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
                                .wr.ud = {.ah = s->ah, .remote_qpn = s->target, .remote_qkey = QKEY}};
    struct ibv_send_wr *bad;

    memcpy(s->memory[slot], bytes, length);
    WANT_TRUE(ibv_post_send(s->qp, &wr, &bad) == 0);
    progress(pair);
    return poll_reply(s);
}

/* Header of a datagram. */
static void put_header(uint8_t *at, uint32_t number, uint8_t flags, uint32_t proof, uint32_t psn, uint32_t ack)
{
    uint32_t words[4] = {number | (uint32_t)flags << 24, proof, psn, ack};

    memcpy(at, words, sizeof(words));
}

typedef struct __attribute__((packed)) {
    uint8_t  magic[8];
    uint64_t from, to, secret;
    uint32_t losses, number, proof, receiver_number, qpn, psn;
    uint8_t  iface, flags;
    uint64_t back;
    uint32_t packet, window, datagrams, keepalive_qpn;
} hello_t;

_Static_assert(sizeof(hello_t) == HELLO_SIZE, "as in src/wire/ib_packet.rs");

static hello_t hello_to(const pair_t *pair)
{
    hello_t hello = {.magic = "rucp-ib", .from = random_number(), .to = pair->uid, .secret = pair->secret,
                     .number = 1, .proof = 2, .receiver_number = 0xffffff, .back = 3, .packet = 8256, .window = 512,
                     .datagrams = 64};

    hello.magic[7] = '4';
    return hello;
}

static const uint8_t *send_hello(forger_t *s, pair_t *pair, const hello_t *hello, size_t length)
{
    uint8_t bytes[HEADER_SIZE + HELLO_SIZE + PORT_SIZE];

    put_header(bytes, 0xffffff, 4, 0, 0, 0);
    memcpy(bytes + HEADER_SIZE, hello, HELLO_SIZE);
    memcpy(bytes + HEADER_SIZE + HELLO_SIZE, s->port, PORT_SIZE);
    return send_forged(s, pair, bytes, length);
}

static long pages_in_use(void)
{
    long  size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    WANT_TRUE(file != NULL && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident;
}

/* --- cases --- */

static void random_packets(void)
{
    pair_t     pair;
    forger_t s;
    uint8_t    bytes[MTU];
    long       before = 0;

    pair_open(&pair);
    forger_open(&s, &pair);
    for (int i = 0; i < 60000; i++) {
        for (size_t at = 0; at < sizeof(bytes); at += 8) {
            uint64_t word = random_number();
            memcpy(bytes + at, &word, 8);
        }
        size_t length = i <= MTU ? (size_t)i : random_number() % (MTU + 1);
        if (i % 3 == 0) {
            put_header(bytes, i % 5, i % 11 == 0 ? 7 : (uint8_t)(i & 3), (uint32_t)random_number(),
                       (uint32_t)random_number() % 64, (uint32_t)random_number() % 64);
        }
        send_forged(&s, &pair, bytes, length);
        if (i == 20000) {
            before = pages_in_use();
        }
    }
    WANT_TRUE(s.received == 0);
    exchange_all_sizes(&pair);
    WANT_TRUE(pages_in_use() - before < 256);
    forger_close(&s);
    pair_close(&pair);
}

/* Wireup messages with one wrong field get no reply. */
static void wrong_hellos(void)
{
    pair_t     pair;
    forger_t s;
    hello_t    right, hello;

    pair_open(&pair);
    forger_open(&s, &pair);
    right = hello_to(&pair);
    for (size_t length = 0; length < HEADER_SIZE + HELLO_SIZE + PORT_SIZE; length++) {
        WANT_TRUE(send_hello(&s, &pair, &right, length) == NULL);
    }
    for (int round = 0; round < 1000; round++) {
        hello = right;
        switch (round % 6) {
        case 0: hello.secret ^= 1ull << round % 64; break;
        case 1: hello.to ^= 1ull << round % 64; break;
        case 2: hello.magic[round % 8] ^= 1; break;
        case 3: hello.qpn = 0x1000000; break;
        case 4: hello.receiver_number = (uint32_t)round % 9; break; /* a connection of another peer, or of none */
        case 5: hello.packet = (uint32_t)round % 256; break;
        }
        WANT_TRUE(send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE) == NULL);
    }
    for (int i = 0; i < 100000; i++) {
        progress(&pair);
        poll_reply(&s);
    }
    WANT_TRUE(s.received == 0);
    exchange_all_sizes(&pair);
    forger_close(&s);
    pair_close(&pair);
}

/* A sender that has the secret becomes a peer, but its packets are still validated. */
static void false_peer(void)
{
    pair_t         pair;
    forger_t     s;
    hello_t        hello, answer;
    const uint8_t *reply = NULL;
    uint8_t        bytes[MTU] = {0};

    pair_open(&pair);
    forger_open(&s, &pair);
    for (int kind = 0; kind < 12; kind++) {
        hello = hello_to(&pair);
        hello.number = (uint32_t)kind;
        hello.flags  = 0;
        reply         = send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE);
        for (time_t end = time(NULL) + 5; reply == NULL && time(NULL) < end; reply = poll_reply(&s)) {
            progress(&pair);
        }
        WANT_TRUE(reply != NULL);
        if (reply == NULL) {
            break;
        }
        memcpy(&answer, reply, HELLO_SIZE);
        WANT_TRUE(answer.from == pair.uid && answer.to == hello.from && answer.secret == hello.back);
        hello.receiver_number = answer.number;
        hello.flags = 3;
        send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE);
        send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE);
        for (int i = 0; i < 2000; i++) {
            uint32_t psn = 0, ack = 0;
            size_t   length = 16 + random_number() % (MTU - 32);
            uint32_t words[4] = {(uint32_t)length - 16, (uint32_t)kind, 0, 0};

            switch (kind) {
            case 0: psn = (uint32_t)i + 1; break;                  /* the first packet never arrives */
            case 1: psn = (uint32_t)random_number(); break;
            case 2: ack = (uint32_t)random_number(); break;
            case 3: psn = (uint32_t)i; length = random_number() % 16; break;
            case 4: psn = (uint32_t)i; words[0] = 0xffffffff; break; /* records without an end */
            case 5: psn = (uint32_t)i; words[1] = 0xff; break;
            case 6: psn = (uint32_t)i; words[0] = i == 0 ? 1 << 20 : 0; words[1] = i == 0 ? 1 : 0xff; break;
            case 7: psn = (uint32_t)i; words[1] = (uint32_t)random_number(); break; /* any kind of message */
            case 8: psn = (uint32_t)i; words[1] = 0xfe; break;
            case 9: psn = (uint32_t)i; words[1] = i == 9 ? 0xfd : 0xfe; break;
            case 10: psn = (uint32_t)(i / 2); words[1] = (uint32_t)i % 64; words[2] = (uint32_t)random_number(); break;
            case 11: psn = (uint32_t)i; words[1] = (uint32_t)i % 40; break;
            }
            put_header(bytes, answer.number, (uint8_t)(random_number() & 3), answer.proof, psn, ack);
            memcpy(bytes + HEADER_SIZE, words, sizeof(words));
            send_forged(&s, &pair, bytes, HEADER_SIZE + length);
        }
        exchange_all_sizes(&pair);
    }
    forger_close(&s);
    pair_close(&pair);
}

/* The same wireup message repeatedly: one connection. */
static void replayed(void)
{
    pair_t     pair;
    forger_t s;
    hello_t    hello;
    long       before = 0;

    pair_open(&pair);
    forger_open(&s, &pair);
    hello = hello_to(&pair);
    for (int i = 0; i < 20000; i++) {
        send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE);
        if (i == 5000) {
            before = pages_in_use();
        }
    }
    WANT_TRUE(pages_in_use() - before < 256);
    exchange_all_sizes(&pair);
    forger_close(&s);
    pair_close(&pair);
}

/*
 * Many peers that start wireup and never become ready: no more than MAX_HALF_CONNECTED of answer.rs are kept, and
 * existing peers stay.
 */
static void many_peers(void)
{
    pair_t         pair;
    forger_t     s;
    hello_t        hello, answer;
    static uint8_t kept[4096];
    size_t         count = 0;

    pair_open(&pair);
    forger_open(&s, &pair);
    for (int i = 0; i < 2000; i++) {
        hello               = hello_to(&pair);
        hello.number        = (uint32_t)i;
        const uint8_t *reply      = send_hello(&s, &pair, &hello, HEADER_SIZE + HELLO_SIZE + PORT_SIZE);
        for            (int again = 0; again < 20; again++) {
            if (reply != NULL) {
                memcpy(&answer, reply, HELLO_SIZE);
                WANT_TRUE(answer.number < sizeof(kept));
                kept[answer.number % sizeof(kept)] = 1;
            }
            progress(&pair);
            reply = poll_reply(&s);
        }
    }
    for (size_t i = 0; i < sizeof(kept); i++) {
        count += kept[i];
    }
    WANT_TRUE(count >= 200 && count <= 256 + 2);
    exchange_all_sizes(&pair);
    forger_close(&s);
    pair_close(&pair);
}

typedef struct __attribute__((packed)) {
    uint8_t  header[HEADER_SIZE];
    uint8_t  magic[8];
    uint64_t worker, secret;
    uint32_t number, proof;
    uint8_t  port[PORT_SIZE];
} check_t;

/* A check of a connection is replied to if it has the secret. A false reply loses no peer. */
static void checks(void)
{
    enum { CHECK = 32, GONE = 64 };
    pair_t   pair;
    forger_t s;

    pair_open(&pair);
    forger_open(&s, &pair);
    check_t right = {.magic = "rucp-is", .worker = pair.uid, .secret = pair.secret, .number = 3, .proof = 4};
    right.magic[7] = '?';
    put_header(right.header, 100, CHECK, 5, 0, 0);
    memcpy(right.port, s.port, PORT_SIZE);
    for (int round = 0; round < 400; round++) {
        check_t check  = right;
        size_t  length = sizeof(check);
        switch (round % 4) {
        case 0: check.secret ^= 1ull << round % 64; break;
        case 1: check.worker ^= 1ull << round % 64; break;
        case 2: check.magic[round % 8] ^= 1; break;
        case 3: length = (size_t)round % sizeof(check); break;
        }
        send_forged(&s, &pair, &check, length);
        put_header(check.header, (uint32_t)round % 5, GONE, (uint32_t)random_number(), 0, 0);
        send_forged(&s, &pair, &check, HEADER_SIZE);
    }
    WANT_TRUE(s.received == 0);
    send_forged(&s, &pair, &right, sizeof(right));
    for (time_t end = time(NULL) + 5; s.received == 0 && time(NULL) < end; poll_reply(&s)) {
        progress(&pair);
    }
    WANT_TRUE(s.received == 1);
    exchange_all_sizes(&pair);
    forger_close(&s);
    pair_close(&pair);
}

static const case_t cases[] = {
    {"forged: noise", random_packets},
    {"forged: checks", checks},
    {"forged: wrong hellos", wrong_hellos},
    {"forged: a false peer", false_peer},
    {"forged: a replayed hello", replayed},
    {"forged: many peers", many_peers},
};

CHECK_MAIN(cases)
