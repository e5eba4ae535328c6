/*
 * A stopped peer. When it continues, everything sent to it arrives, though the sender only progresses. When an endpoint
 * to it is closed by force, flushes of the worker do not wait for it any more. They wait for operations of other
 * endpoints, and for all of them when there is a new endpoint, or a reply endpoint.
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "check.h"
#include "finish.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANDLER = 3, READER = 4, SECONDS = 6, WORDS = 4096, PUTS = 200, SENDS = 40, EAGER = 4000, LONG = 1 << 20 };

typedef struct {
    size_t   address_length, key_length; /* 0: not there yet */
    uint8_t  address[1024], key[512];
    size_t   received; /* bytes of active messages that the peer has received and found right */
    size_t   back_length; /* of the user's address, once the peer is to request a reply; 0: not yet, or no more */
    uint8_t  back[1024];
    _Alignas(4096) uint64_t words[WORDS]; /* the peer's memory, which both see */
} shared_t;

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  worker;
static pid_t         peer;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    *(ucs_status_t *)arg = status;
}

static void open_worker(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                  .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
}

static void ask(void)
{
    ucp_ep_params_t     params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address    = (const ucp_address_t *)shared->back};
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
    ucp_ep_h            ep;

    if (__atomic_exchange_n(&shared->back_length, 0, __ATOMIC_ACQUIRE) != 0) {
        /* The first one is the remote end of the endpoint that is closed. */
        WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
        WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
        WANT_TRUE(!UCS_PTR_IS_ERR(ucp_am_send_nbx(ep, HANDLER, NULL, 0, "?", 1, &param)));
    }
}

/* Byte `i` of the active messages. */
static uint8_t byte_of(size_t i)
{
    return (uint8_t)(i * 167 >> 3);
}

static ucs_status_t on_bytes(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)param;
    size_t right = 0;
    while (right < length && ((const uint8_t *)data)[right] == byte_of(right)) {
        right++;
    }
    __atomic_fetch_add(&shared->received, right, __ATOMIC_RELEASE);
    return UCS_OK;
}

static void serve(void)
{
    ucp_am_handler_param_t reader = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                     .id = READER, .cb = on_bytes};
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .length     = sizeof(shared->words),
        .address    = shared->words,
    };
    ucp_address_t *address;
    ucp_mem_h      memh;
    void          *packed;
    size_t         length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_worker();
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(worker, &reader));
    WANT(UCS_OK, ucp_mem_map(context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &packed, &length));
    memcpy(shared->key, packed, length);
    shared->key_length = length;
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &length));
    memcpy(shared->address, address, length);
    __atomic_store_n(&shared->address_length, length, __ATOMIC_RELEASE);
    for (;;) {
        ask();
        if (ucp_worker_progress(worker) == 0) {
            usleep(100);
        }
    }
}

typedef struct {
    ucp_ep_h     ep;
    ucp_rkey_h   key;
    ucs_status_t lost;
} way_t;

static void connect_to_peer(way_t *way)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)shared->address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &way->lost},
    };

    way->lost = UCS_OK;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &way->ep));
    WANT(UCS_OK, ucp_ep_rkey_unpack(way->ep, shared->key, &way->key));
}

static void begin(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    peer   = fork();
    if (peer == 0) {
        serve();
    }
    while (__atomic_load_n(&shared->address_length, __ATOMIC_ACQUIRE) == 0) {
        usleep(100);
    }
    open_worker();
}

static void end(void)
{
    kill(peer, SIGKILL);
    waitpid(peer, NULL, 0);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void stop(int number)
{
    int status;

    kill(peer, number);
    if (number == SIGSTOP) {
        waitpid(peer, &status, WUNTRACED);
    }
}

/* UCS_INPROGRESS on timeout. */
static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_on(worker, request, SECONDS);
}

static ucs_status_ptr_t flush_worker(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_worker_flush_nbx(worker, &param);
}

static ucs_status_ptr_t close_by_force(way_t *way)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(way->key);
    return ucp_ep_close_nbx(way->ep, &param);
}

/* Word `i` of the peer's becomes `value`; the request is not waited for. */
static void put(way_t *way, unsigned i, uint64_t value)
{
    static uint64_t     values[WORDS];
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    request;

    values[i] = value;
    request   = ucp_put_nbx(way->ep, &values[i], sizeof(value), (uintptr_t)&shared->words[i], way->key, &param);
    WANT_TRUE(!UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void add(way_t *way, unsigned i)
{
    static uint64_t     one   = 1;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    ucs_status_ptr_t    request =
        ucp_atomic_op_nbx(way->ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)&shared->words[i], way->key, &param);

    WANT_TRUE(!UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void meet(way_t *way)
{
    connect_to_peer(way);
    put(way, 0, 1);
    add(way, 1);
    WANT(UCS_OK, finish(flush_worker()));
    WANT_TRUE(shared->words[0] == 1 && shared->words[1] == 1);
}

/* As much of every operation as stays in flight: requests that cannot complete while the peer is stopped. */
static unsigned fill_queues(way_t *way, ucs_status_ptr_t *requests)
{
    static uint8_t      data[LONG], got[64 << 10];
    ucp_request_param_t param = {.op_attr_mask = 0};
    unsigned            n     = 0;

    for (unsigned i = 0; i < PUTS; i++) {
        put(way, 2 + i % 100, i);
        add(way, 1);
    }
    for (unsigned i = 0; i < SENDS; i++) {
        requests[n++] = ucp_tag_send_nbx(way->ep, data, EAGER, i, &param);
    }
    requests[n++] = ucp_get_nbx(way->ep, got, WORDS * 8, (uintptr_t)shared->words, way->key, &param);
    requests[n++] = ucp_get_nbx(way->ep, got, 8, (uintptr_t)shared->words, way->key, &param);
    requests[n++] = ucp_tag_send_sync_nbx(way->ep, data, 8, 1, &param);
    return n;
}

static void ends_of(ucs_status_ptr_t *requests, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        ucs_status_t status = finish(requests[i]);
        WANT_TRUE(status == UCS_OK || status == UCS_ERR_CANCELED);
    }
}

/* Progresses until there has been nothing to do for a while. */
static void rest(void)
{
    time_t until = time(NULL) + SECONDS;

    for (unsigned idle = 0; idle < 10000 && time(NULL) < until; idle++) {
        if (ucp_worker_progress(worker) != 0) {
            idle = 0;
        }
    }
}

/* Operations that were accepted while there was no room are sent when there is. */
static void continued(void)
{
    static const size_t sizes[] = {1, 100, 900, 1500, 3000, 6000};
    static uint8_t      data[6000];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    size_t              sent  = 0;
    way_t               way;

    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = byte_of(i);
    }
    begin();
    meet(&way);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !check_failed(); i++) {
        time_t until = time(NULL) + SECONDS;

        stop(SIGSTOP);
        ucs_status_ptr_t request = ucp_am_send_nbx(way.ep, READER, NULL, 0, data, sizes[i], &param);
        rest();
        stop(SIGCONT);
        sent += sizes[i];
        while (__atomic_load_n(&shared->received, __ATOMIC_ACQUIRE) != sent && time(NULL) < until) {
            ucp_worker_progress(worker);
        }
        WANT_TRUE(shared->received == sent);
        WANT(UCS_OK, finish(request));
    }
    WANT(UCS_OK, finish(close_by_force(&way)));
    end();
}

/*
 * Closed by force: its operations are not waited for. All operations of a new endpoint, to a peer that runs again, are
 * flushed.
 */
static void stopped(void)
{
    static ucs_status_ptr_t requests[SENDS + 8];
    way_t                   way, again;

    begin();
    meet(&way);
    stop(SIGSTOP);
    unsigned n = fill_queues(&way, requests);
    WANT(UCS_OK, finish(close_by_force(&way)));
    WANT(UCS_OK, finish(flush_worker()));
    ends_of(requests, n);
    stop(SIGCONT);
    connect_to_peer(&again);
    for (unsigned i = 0; i < 1000; i++) {
        put(&again, 1000 + i, i + 7);
    }
    WANT(UCS_OK, finish(flush_worker()));
    for (unsigned i = 0; i < 1000 && !check_failed(); i++) {
        WANT_TRUE(shared->words[1000 + i] == i + 7);
    }
    WANT(UCS_OK, finish(close_by_force(&again)));
    end();
}

/* A flush that has begun before ends with the close, too. */
static void begun_before(void)
{
    static ucs_status_ptr_t requests[SENDS + 8];
    way_t                   way;

    begin();
    meet(&way);
    stop(SIGSTOP);
    unsigned         n     = fill_queues(&way, requests);
    ucs_status_ptr_t flush = flush_worker();
    WANT(UCS_OK, finish(close_by_force(&way)));
    WANT(UCS_OK, finish(flush));
    ends_of(requests, n);
    stop(SIGCONT);
    end();
}

/* Operations of another endpoint to the same peer are flushed all the same. */
static void beside(void)
{
    static ucs_status_ptr_t requests[SENDS + 8];
    way_t                   way, other;

    begin();
    meet(&way);
    connect_to_peer(&other);
    for (unsigned round = 0; round < 20 && !check_failed(); round++) {
        stop(SIGSTOP);
        unsigned n = fill_queues(&way, requests);
        for (unsigned i = 0; i < 300; i++) {
            put(&other, 1000 + i, round * 1000 + i);
        }
        WANT(UCS_OK, finish(close_by_force(&way)));
        ucs_status_ptr_t flush = flush_worker();
        stop(SIGCONT);
        WANT(UCS_OK, finish(flush));
        for (unsigned i = 0; i < 300 && !check_failed(); i++) {
            WANT_TRUE(shared->words[1000 + i] == round * 1000 + i);
        }
        ends_of(requests, n);
        connect_to_peer(&way);
    }
    WANT(UCS_OK, finish(close_by_force(&way)));
    WANT(UCS_OK, finish(close_by_force(&other)));
    end();
}

/*
 * Memory that a device may still write to must not be reused before the flush has ended, though its request has
 * completed.
 */
static void in_flight(void)
{
    static uint64_t     got[WORDS], then[WORDS];
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    request;
    way_t               way, again;

    begin();
    meet(&way);
    stop(SIGSTOP);
    memset(shared->words, 0xa5, sizeof(shared->words));
    request = ucp_get_nbx(way.ep, got, sizeof(got), (uintptr_t)shared->words, way.key, &param);
    WANT_TRUE(!UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    SURVIVE(finish(close_by_force(&way)));
    if (!transport_has("cancel")) {
        stop(SIGCONT);
    }
    WANT(UCS_OK, finish(flush_worker()));
    memcpy(then, got, sizeof(got));
    stop(SIGCONT);
    /* A later operation shows that this one has been executed, if it is executed at all. */
    connect_to_peer(&again);
    put(&again, 1, 1);
    WANT(UCS_OK, finish(flush_worker()));
    WANT_TRUE(memcmp(then, got, sizeof(got)) == 0);
    WANT(UCS_OK, finish(close_by_force(&again)));
    end();
}

static ucs_status_t on_question(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length;
    WANT_TRUE(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP);
    *(ucp_ep_h *)arg = param->reply_ep;
    return UCS_OK;
}

/*
 * Operations of a reply endpoint, which the user has not created, are flushed, though the endpoint created by the user
 * is closed.
 */
static void answered(void)
{
    static uint64_t         words[WORDS];
    way_t                   way, reply = {.ep = NULL};
    ucp_am_handler_param_t  handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                     UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                       .id = HANDLER, .cb = on_question, .arg = &reply.ep};
    ucp_request_param_t     param = {.op_attr_mask = 0};
    ucs_status_ptr_t        request, flush;
    ucp_address_t          *own;
    size_t                  length;
    time_t                  until = time(NULL) + SECONDS;

    begin();
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(worker, &handler));
    meet(&way);
    WANT(UCS_OK, finish(close_by_force(&way)));
    WANT(UCS_OK, ucp_worker_get_address(worker, &own, &length));
    memcpy(shared->back, own, length);
    ucp_worker_release_address(worker, own);
    __atomic_store_n(&shared->back_length, length, __ATOMIC_RELEASE);
    while (reply.ep == NULL && time(NULL) < until) {
        ucp_worker_progress(worker);
    }
    WANT_TRUE(reply.ep != NULL);
    WANT(UCS_OK, ucp_ep_rkey_unpack(reply.ep, shared->key, &reply.key));
    memset(words, 0x5a, sizeof(words));
    stop(SIGSTOP);
    request = ucp_put_nbx(reply.ep, words, sizeof(words), (uintptr_t)shared->words, reply.key, &param);
    WANT_TRUE(!UCS_PTR_IS_ERR(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    flush = flush_worker();
    stop(SIGCONT);
    WANT(UCS_OK, finish(flush));
    WANT_TRUE(memcmp(words, shared->words, sizeof(words)) == 0);
    ucp_rkey_destroy(reply.key);
    end();
}

static const case_t cases[] = {
    {"stopped: what was sent", continued},
    {"stopped: a flush after a forced close", stopped},
    {"stopped: a flush before a forced close", begun_before},
    {"stopped: another endpoint", beside},
    {"stopped: what a device works on", in_flight},
    {"stopped: an endpoint to answer on", answered},
};

CHECK_MAIN(cases)
