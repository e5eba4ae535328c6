/*
 * Atomic operations by the adapter: each is one post, more than there are edata tags are queued, and one that the
 * interconnect rejects fails its endpoint with the status of the code, and its requests.
 */
#include "check.h"
#include "finish.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS = 20, MANY = 1000, FEW = 100, POSTS_BESIDE = 4 };

static ucp_context_h context;
static ucp_worker_h  worker, peer;
static ucp_ep_h      ep;
static ucp_rkey_h    key;
static ucp_mem_h     memh;
static unsigned      failures;
static ucs_status_t  failure;
static _Alignas(4096) uint64_t words[512];

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg;
    (void)failed;
    failures++;
    failure = status;
}

static void progress(void *arg)
{
    (void)arg;
    ucp_worker_progress(worker);
    ucp_worker_progress(peer);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_with(request, SECONDS, progress, NULL);
}

static ucs_status_t flush(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(ucp_ep_flush_nbx(ep, &param));
}

/* On 4 or 8 bytes; the reply buffer may be NULL. */
static ucs_status_ptr_t change(ucp_atomic_op_t op, uint64_t operand, size_t size, void *reply)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | (reply != NULL ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
        .datatype     = ucp_dt_make_contig(size),
        .reply_buffer = reply,
    };

    return ucp_atomic_op_nbx(ep, op, &operand, 1, (uint64_t)words, key, &param);
}

static ucs_status_ptr_t add(uint64_t operand, uint64_t *reply)
{
    return change(UCP_ATOMIC_OP_ADD, operand, sizeof(*words), reply);
}

static void connect_to_peer(void)
{
    ucp_address_t  *address;
    size_t          length;
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure},
    };
    void *packed;

    WANT(UCS_OK, ucp_worker_get_address(peer, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
    ucp_worker_release_address(peer, address);
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &packed, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep, packed, &key));
    ucp_rkey_buffer_release(packed);
    WANT(UCS_OK, finish(add(0, &words[1])));
}

static void close_ep(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(key);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &param)));
}

static void begin(void)
{
    ucp_params_t         params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features   = UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA};
    ucp_worker_params_t  worker_params = {.field_mask = 0};
    ucp_mem_map_params_t map           = {
                  .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                  .address    = words,
                  .length     = sizeof(words),
    };

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peer));
    WANT(UCS_OK, ucp_mem_map(context, &map, &memh));
    connect_to_peer();
}

static void end(void)
{
    close_ep();
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peer);
    ucp_cleanup(context);
}

static void one_post_each(void)
{
    uint64_t reply;
    unsigned long posts, atomics;

    begin();
    posts   = counter("posts");
    atomics = counter("atomics");
    for (uint64_t i = 0; i < FEW; i++) {
        WANT(UCS_OK, finish(add(1, &reply)));
        WANT_TRUE(reply == i);
    }
    WANT_TRUE(counter("atomics") - atomics == FEW);
    WANT_TRUE(counter("posts") - posts == FEW);
    for (int i = 0; i < FEW; i++) {
        WANT_PTR(UCS_OK, add(1, NULL));
    }
    WANT(UCS_OK, flush());
    WANT_TRUE(words[0] == 2 * FEW);
    WANT_TRUE(counter("atomics") - atomics == 2 * FEW);
    WANT_TRUE(counter("posts") - posts <= 2 * FEW + POSTS_BESIDE);
    end();
}

/* The n-th one executed fetches n: each reply is different. */
static void more_than_tags(void)
{
    static uint64_t         reply[MANY];
    static ucs_status_ptr_t request[MANY];
    static char             seen[2 * MANY];

    begin();
    for (int i = 0; i < MANY; i++) {
        WANT_PTR(UCS_OK, add(1, NULL));
        request[i] = add(1, &reply[i]);
    }
    for (int i = 0; i < MANY; i++) {
        WANT(UCS_OK, finish(request[i]));
        WANT_TRUE(reply[i] < 2 * MANY && seen[reply[i]]++ == 0);
    }
    WANT(UCS_OK, flush());
    WANT_TRUE(words[0] == 2 * MANY);
    end();
}

/* The halves of a word are separate 4-byte words. */
static void halves(void)
{
    uint64_t reply = 0;

    begin();
    words[0] = 0x00000001fffffffful;
    WANT(UCS_OK, finish(change(UCP_ATOMIC_OP_ADD, 1, 4, &reply)));
    WANT_TRUE(reply == 0xffffffff && words[0] == 0x0000000100000000ul);
    reply = 7; /* the new value */
    WANT(UCS_OK, finish(change(UCP_ATOMIC_OP_CSWAP, 1, 4, &reply)));
    WANT_TRUE(reply == 0 && words[0] == 0x0000000100000000ul);
    reply = 7;
    WANT(UCS_OK, finish(change(UCP_ATOMIC_OP_CSWAP, 0, 4, &reply)));
    WANT_TRUE(reply == 0 && words[0] == 0x0000000100000007ul);
    WANT(UCS_OK, finish(change(UCP_ATOMIC_OP_XOR, 0x0000000500000002ul, 8, &reply)));
    WANT_TRUE(reply == 0x0000000100000007ul && words[0] == 0x0000000400000005ul);
    end();
}

/* An operation behind a fence sees the puts before it. */
static void behind_a_fence(void)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    begin();
    for (uint64_t i = 0; i < FEW; i++) {
        uint64_t value = i << 32, reply = 0;
        WANT(UCS_OK, finish(ucp_put_nbx(ep, &value, sizeof(value), (uint64_t)words, key, &param)));
        WANT(UCS_OK, ucp_worker_fence(worker));
        WANT(UCS_OK, finish(add(1, &reply)));
        WANT_TRUE(reply == i << 32);
        WANT_PTR(UCS_OK, add(1, NULL));
        WANT(UCS_OK, ucp_worker_fence(worker));
        WANT(UCS_OK, finish(ucp_get_nbx(ep, &reply, sizeof(reply), (uint64_t)words, key, &param)));
        WANT_TRUE(reply == (i << 32) + 2);
    }
    end();
}

static void refused(int code, int fetches, ucs_status_t wanted)
{
    char             what[64];
    uint64_t         reply[FEW];
    ucs_status_ptr_t request[FEW];
    time_t           late;

    begin();
    snprintf(what, sizeof(what), "fail_nth=%d,fail_code=%d", FEW / 2, code);
    fault(what);
    for (int i = 0; i < FEW; i++) {
        request[i] = add(1, fetches ? &reply[i] : NULL);
    }
    for (late = time(NULL) + SECONDS; failures == 0 && time(NULL) < late;) {
        progress(NULL);
    }
    WANT_TRUE(failures == 1);
    WANT_TRUE(failure == wanted);
    for (int i = 0; i < FEW; i++) {
        ucs_status_t status = finish(request[i]);
        WANT_TRUE(status == UCS_OK || status == wanted);
    }
    WANT_TRUE(flush() == wanted);
    WANT_TRUE(words[0] == FEW - 1);
    close_ep();
    connect_to_peer();
    words[0] = 5;
    WANT(UCS_OK, finish(add(1, &reply[0])));
    WANT_TRUE(reply[0] == 5 && words[0] == 6 && failures == 1);
    end();
}

#define REFUSED(name, code, wanted)                                                                                   \
    static void name(void)                                                                                            \
    {                                                                                                                 \
        for (int fetches = 0; fetches < 2; fetches++) {                                                               \
            memset(words, 0, sizeof(words));                                                                          \
            failures = 0;                                                                                             \
            refused(code, fetches, wanted);                                                                           \
        }                                                                                                             \
    }

REFUSED(mrq_other, -192, UCS_ERR_IO_ERROR)
REFUSED(mrq_peer, -193, UCS_ERR_CONNECTION_RESET)
REFUSED(mrq_memory, -195, UCS_ERR_IO_ERROR)
REFUSED(mrq_stadd, -197, UCS_ERR_IO_ERROR)
REFUSED(mrq_length, -199, UCS_ERR_IO_ERROR)
REFUSED(tcq_descriptor, -129, UCS_ERR_IO_ERROR)

static const case_t cases[] = {
    {"amo: one post each", one_post_each},
    {"amo: more than there are tags", more_than_tags},
    {"amo: halves of a word", halves},
    {"amo: behind a fence", behind_a_fence},
    {"amo: refused, MRQ_OTHER", mrq_other},
    {"amo: refused, MRQ_PEER", mrq_peer},
    {"amo: refused, MRQ_RMT_MEMORY", mrq_memory},
    {"amo: refused, MRQ_RMT_STADD", mrq_stadd},
    {"amo: refused, MRQ_RMT_LENGTH", mrq_length},
    {"amo: refused, TCQ_DESC", tcq_descriptor},
};

CHECK_MAIN(cases)
