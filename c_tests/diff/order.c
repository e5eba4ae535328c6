/*
 * The order of messages of one sender, short and long in turn: eager active messages, replies to them, tags,
 * streams, and accesses to memory (rules.txt 2.4.4). Long and short protocols must not overtake each other.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "layout.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 15, ID = 5, ID_OLD = 6, ID_ANSWER = 7, SHORT = 56, SEEDS = 3 };

/* Long ones: behind the threshold of a rendezvous, over 64 KiB, in many fragments. Multiples of ITEM_BYTES (7). */
static const size_t longs[] = {24584, 65604, 1048579, 5242881};

/* Messages in the order of their arrival, and how many of them had the right bytes. */
typedef struct {
    unsigned count, good, numbers[COUNT];
} arrivals_t;

static arrivals_t arrived, answered;
static size_t     long_length;

/* Chosen so that the first bytes of all messages differ. */
static unsigned seed_of(unsigned number)
{
    return number * SEEDS;
}

static size_t length_of(unsigned number)
{
    return number % 3 == 0 ? long_length : SHORT;
}

/* A message's first byte identifies its number. */
static void arrive(arrivals_t *arrivals, const void *data, size_t length)
{
    for (unsigned number = 0; number < COUNT; number++) {
        if (data_check(data, 1, seed_of(number))[0] == 'g' && arrivals->count < COUNT) {
            arrivals->good += length == length_of(number) && data_check(data, length, seed_of(number))[0] == 'g';
            arrivals->numbers[arrivals->count++] = number;
            return;
        }
    }
}

static void print_arrivals(const side_t *side, const arrivals_t *arrivals, const char *what)
{
    char text[COUNT * 4 + 1] = "";

    for (unsigned i = 0; i < arrivals->count; i++) {
        sprintf(text + strlen(text), " %u", arrivals->numbers[i]);
    }
    rule(side, "2.4.4", "%s, long %zu:%s, good %u", what, long_length, text, arrivals->good);
}

/* The messages of one series, and the requests that send them. */
static layout_t         out[COUNT];
static ucs_status_ptr_t sent[COUNT];
static uint32_t         headers[COUNT];

static void make_all(kind_t kind)
{
    for (unsigned i = 0; i < COUNT; i++) {
        layout_make(&out[i], kind, length_of(i));
        layout_fill(&out[i], seed_of(i));
        sent[i]    = NULL;
        headers[i] = i;
    }
}

static void finish_all(bed_t *bed, const char *what)
{
    unsigned ok = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        ok += bed_wait(bed, sent[i]) == UCS_OK;
        layout_free(&out[i]);
    }
    fact(bed->a, "%s: %u of %d sent", what, ok, COUNT);
}

/* --- active messages --- */

static layout_t         answers[COUNT];
static ucs_status_ptr_t answer_requests[COUNT];
static unsigned         answer_count;
static int              wrong_headers;

static void answer(ucp_ep_h ep, unsigned number)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};

    answer_requests[answer_count++] =
        ucp_am_send_nbx(ep, ID_ANSWER, NULL, 0, answers[number].buffer, length_of(number), &param);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    arrivals_t *arrivals = arg;

    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        return UCS_OK; /* dropped, so that the wait for it fails */
    }
    arrive(arrivals, data, length);
    if (header_length == sizeof(uint32_t)) {
        wrong_headers += *(const uint32_t *)header != arrivals->numbers[arrivals->count - 1];
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        answer(param->reply_ep, arrivals->numbers[arrivals->count - 1]);
    }
    return UCS_OK;
}

static ucs_status_t on_old_message(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    (void)reply_ep, (void)flags;
    arrive(arg, data, length);
    return UCS_OK;
}

static void on_sent(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static void set_handlers(side_t *side)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                  UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                    .id = ID, .cb = on_message, .arg = &arrived};

    must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "handler");
    param.id  = ID_ANSWER;
    param.arg = &answered;
    must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "handler of answers");
    must(side, ucp_worker_set_am_handler(side->worker, ID_OLD, on_old_message, &arrived, UCP_AM_FLAG_WHOLE_MSG),
         "old handler");
}

typedef enum { NBX, NBX_HEADER, NBX_REPLY, NB, BOTH_IN_TURN } way_t;

static const char *const way_names[] = {
    "nbx", "nbx with headers", "nbx that asks for answers", "nb", "nbx and nb in turn",
};

static ucs_status_ptr_t am_send(ucp_ep_h ep, unsigned i, way_t way)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE,
                                 .flags = UCP_AM_SEND_FLAG_EAGER | (way == NBX_REPLY ? UCP_AM_SEND_FLAG_REPLY : 0),
                                 .datatype = out[i].type};

    if (way == NB || (way == BOTH_IN_TURN && i % 2 == 0)) {
        return ucp_am_send_nb(ep, ID_OLD, out[i].buffer, out[i].count, out[i].type, on_sent, 0);
    }
    return ucp_am_send_nbx(ep, ID, &headers[i], way == NBX ? 0 : sizeof(headers[i]), out[i].buffer, out[i].count,
                           &param);
}

static void make_answers(void)
{
    for (unsigned i = 0; i < COUNT; i++) {
        layout_make(&answers[i], CONTIG, length_of(i));
        layout_fill(&answers[i], seed_of(i));
    }
    answer_count = 0;
}

static void finish_answers(bed_t *bed)
{
    unsigned ok = 0;

    for (unsigned i = 0; i < answer_count; i++) {
        ok += bed_wait(bed, answer_requests[i]) == UCS_OK;
    }
    fact(bed->b, "%u of %u answers sent", ok, answer_count);
    for (unsigned i = 0; i < COUNT; i++) {
        layout_free(&answers[i]);
    }
}

static void active_messages(bed_t *bed, way_t way, kind_t kind)
{
    arrived = answered = (arrivals_t){.count = 0};
    wrong_headers = 0;
    if (bed->b != NULL && way == NBX_REPLY) {
        make_answers();
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        make_all(kind);
        for (unsigned i = 0; i < COUNT; i++) {
            sent[i] = am_send(bed->a->ep, i, way);
        }
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, arrived.count == COUNT);
        fact(bed->b, "%s of %s, wrong headers %d", way_names[way], kind_names[kind], wrong_headers);
        print_arrivals(bed->b, &arrived, "active messages");
    }
    if (bed->a != NULL) {
        if (way == NBX_REPLY) {
            BED_UNTIL(bed, answered.count == COUNT);
            print_arrivals(bed->a, &answered, "answers");
        }
        finish_all(bed, way_names[way]);
    }
    if (bed->b != NULL && way == NBX_REPLY) {
        finish_answers(bed);
    }
    bed_sync(bed);
}

/* --- tags --- */

/* All the send functions, in turn. */
static ucs_status_ptr_t tag_send(ucp_ep_h ep, unsigned i)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = out[i].type};

    switch (i % 4) {
    case 0: return ucp_tag_send_nb(ep, out[i].buffer, out[i].count, out[i].type, i, on_sent);
    case 1: return ucp_tag_send_nbx(ep, out[i].buffer, out[i].count, i, &param);
    case 2: return ucp_tag_send_sync_nb(ep, out[i].buffer, out[i].count, out[i].type, i, on_sent);
    default: return ucp_tag_send_sync_nbx(ep, out[i].buffer, out[i].count, i, &param);
    }
}

/* Receives of any tag: the i-th gets the i-th message, posted before it arrives or when all have. */
static void tags(bed_t *bed, kind_t kind, int posted_first)
{
    static ucs_status_ptr_t received[COUNT];
    static void            *in[COUNT];
    ucp_request_param_t     param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    arrived = (arrivals_t){.count = 0};
    for (unsigned i = 0; bed->b != NULL && posted_first && i < COUNT; i++) {
        in[i]       = malloc(long_length);
        received[i] = ucp_tag_recv_nbx(bed->b->worker, in[i], long_length, 0, 0, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        make_all(kind);
        for (unsigned i = 0; i < COUNT; i++) {
            sent[i] = tag_send(bed->a->ep, i);
        }
    }
    if (bed->b != NULL && !posted_first) {
        ucp_tag_recv_info_t info;
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, COUNT - 1, (ucp_tag_t)-1, 0, &info) != NULL);
        for (unsigned i = 0; i < COUNT; i++) {
            in[i]       = malloc(long_length);
            received[i] = ucp_tag_recv_nbx(bed->b->worker, in[i], long_length, 0, 0, &param);
        }
    }
    for (unsigned i = 0; bed->b != NULL && i < COUNT; i++) {
        ucp_tag_recv_info_t info = {.length = 0};
        BED_UNTIL(bed, ucp_tag_recv_request_test(received[i], &info) != UCS_INPROGRESS);
        ucp_request_free(received[i]);
        arrive(&arrived, in[i], info.length);
        free(in[i]);
    }
    fact(bed->b, "of %s, posted first %d", kind_names[kind], posted_first);
    print_arrivals(bed->b, &arrived, "tags");
    if (bed->a != NULL) {
        finish_all(bed, "tags");
    }
    bed_sync(bed);
}

/* --- streams --- */

static void streams(bed_t *bed, kind_t kind)
{
    uint8_t            *in    = malloc(long_length);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};

    arrived = (arrivals_t){.count = 0};
    bed_sync(bed);
    if (bed->a != NULL) {
        make_all(kind);
        for (unsigned i = 0; i < COUNT; i++) {
            ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = out[i].type};
            sent[i] = i % 2 == 0 ? ucp_stream_send_nbx(bed->a->ep, out[i].buffer, out[i].count, &send) :
                                   ucp_stream_send_nb(bed->a->ep, out[i].buffer, out[i].count, out[i].type, on_sent, 0);
        }
    }
    for (unsigned i = 0; bed->b != NULL && i < COUNT; i++) {
        size_t           got = 0;
        ucs_status_ptr_t r   = ucp_stream_recv_nbx(bed->b->ep, in, length_of(i), &got, &param);
        if (UCS_PTR_IS_PTR(r)) {
            BED_UNTIL(bed, ucp_stream_recv_request_test(r, &got) != UCS_INPROGRESS);
            ucp_request_free(r);
        }
        arrive(&arrived, in, got);
    }
    fact(bed->b, "of %s", kind_names[kind]);
    print_arrivals(bed->b, &arrived, "stream");
    if (bed->a != NULL) {
        finish_all(bed, "stream");
    }
    bed_sync(bed);
    free(in);
}

/* --- memory --- */

/* A long put, a fence, a short put or an atomic: where the second is visible, the first is. */
static void put_and_flag(bed_t *bed, window_t *window, unsigned round, int atomic)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    void               *data  = data_make(long_length, round);
    uint64_t            flag  = 1;

    if (bed->b != NULL) {
        memset(window->memory, 0, 8 + long_length);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t put = ucp_put_nbx(bed->a->ep, data, long_length, window->remote + 8, window->rkey, &param);
        must(bed->a, ucp_worker_fence(bed->a->worker), "fence");
        ucp_request_param_t add = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
        ucs_status_ptr_t    signal =
            atomic ? ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &flag, 1, window->remote, window->rkey, &add) :
                     ucp_put_nbx(bed->a->ep, &flag, 8, window->remote, window->rkey, &param);
        bed_wait(bed, put);
        bed_wait(bed, signal);
        fact(bed->a, "put and flag: %s", status_name(bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param))));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, __atomic_load_n((uint64_t *)(void *)window->memory, __ATOMIC_ACQUIRE) != 0);
        rule(bed->b, "2.4.4", "put of %zu before a fence and %s: %s", long_length, atomic ? "an atomic" : "a put",
             data_check(window->memory + 8, long_length, round));
    }
    bed_sync(bed);
    free(data);
}

enum { GET_MAX = 32 << 20 };

/* In c_tests/diff/run, where UCX uses TCP, too; the reference of c_tests/conformance/transports is shared memory. */
static int by_tcp(void)
{
    const char *transports = getenv("UCX_TLS");

    return transports != NULL && strcmp(transports, "tcp") == 0 && getenv("TRANSPORT_LACKS") == NULL;
}

/*
 * A get followed at once by a put to the same address: over TCP the get fetches the previous contents. Open MPI's
 * MPI_Get_accumulate does so. Not tested elsewhere: through shared memory both UCX releases let some puts overtake.
 */
static void get_and_put(bed_t *bed, window_t *window, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    void               *data  = data_make(length, 2);
    uint8_t            *in    = malloc(length);

    if (bed->b != NULL) {
        data_fill(window->memory, length, 1);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t get = ucp_get_nbx(bed->a->ep, in, length, window->remote, window->rkey, &param);
        ucs_status_ptr_t put = ucp_put_nbx(bed->a->ep, data, length, window->remote, window->rkey, &param);
        bed_wait(bed, get);
        bed_wait(bed, put);
        bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        if (length < GET_MAX) {
            rule(bed->a, "2.4.4", "a get of %zu before a put: %s", length, data_check(in, length, 1));
        } else {
            static const departure_t departure = {
                .name = "2.4.4",
                .why =
                    "a get, longer than what the kernels keep of a connection, before a put: UCX fetches what was put",
                .on_rucp = "good"};

            rule_departs(bed->a, &departure, data_check(in, length, 1));
        }
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "2.4.4", "the put behind it: %s", data_check(window->memory, length, 2));
    }
    bed_sync(bed);
    free(in);
    free(data);
}

static void accesses(bed_t *bed)
{
    /* More than the kernels buffer for a connection: the rest of the reply waits at the target when the put arrives. */
    static const size_t gets[] = {8, 4000, 24584, 65604, 1048579, GET_MAX};
    window_t            window;

    for (int kind = WINDOW_ALLOCATED; kind <= WINDOW_MALLOCED; kind++) {
        window_open(bed, &window, (window_kind_t)kind, GET_MAX);
        for (size_t i = 0; i < sizeof(longs) / sizeof(longs[0]); i++) {
            long_length = longs[i];
            put_and_flag(bed, &window, (unsigned)i, 0);
            put_and_flag(bed, &window, (unsigned)i, 1);
        }
        for (int i = 0; by_tcp() && i < 6; i++) {
            get_and_put(bed, &window, gets[i]);
        }
        window_close(bed, &window);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_AM | UCP_FEATURE_TAG | UCP_FEATURE_STREAM | UCP_FEATURE_RMA |
                                       UCP_FEATURE_AMO64};

    bed_open(bed, &params);
    if (bed->a != NULL) {
        set_handlers(bed->a);
    }
    if (bed->b != NULL && bed->b->worker != (bed->a != NULL ? bed->a->worker : NULL)) {
        set_handlers(bed->b);
    }
    for (size_t i = 0; i < sizeof(longs) / sizeof(longs[0]); i++) {
        long_length = longs[i];
        for (kind_t kind = CONTIG; kind < KINDS; kind++) {
            /* Bytes and elements use the same code; of the longest, one series is enough for the other kinds. */
            if (kind == CONTIG_ELEMENTS) {
                continue;
            }
            for (way_t way = NBX; way <= (kind == CONTIG || i < 3 ? BOTH_IN_TURN : NBX); way++) {
                active_messages(bed, way, kind);
            }
            if (kind == CONTIG || i < 3) {
                tags(bed, kind, 0);
                tags(bed, kind, 1);
                streams(bed, kind);
            }
        }
    }
    accesses(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
