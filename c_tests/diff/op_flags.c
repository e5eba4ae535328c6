/*
 * Each flag and each field of ucp_request_param_t crossed with each operation: short, middle and long.
 *
 * Common facts of every pair are printed in one form: the status, the bytes that moved, and that the callback was
 * called once with the request and the user data if there was a request and never if there was none.
 * FORCE_IMM_CMPL: sends return no request, and either all has moved or nothing.
 * NO_IMM_CMPL of flushes and closes: flush_requests.c. FAST_CMPL and MULTI_SEND together: rules_request.c.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 500000, ID = 3, TAG = 0x66 };

typedef enum {
    TAG_SEND, TAG_SYNC, TAG_RECEIVE, AM_SEND, AM_RECEIVE, STREAM_SEND, STREAM_RECEIVE, PUT, GET, ATOMIC, FETCH,
    EP_FLUSH, WORKER_FLUSH, CLOSE, OPERATIONS
} operation_t;

typedef enum { IN_WINDOW, IN_SINK, NOWHERE } place_t;

typedef struct {
    const char *name;
    int         at_b;  /* B calls it */
    place_t     place; /* of the bytes afterwards */
} operation_info_t;

static const operation_info_t operations[OPERATIONS] = {
    [TAG_SEND]       = {"tag send", 0, IN_SINK},
    [TAG_SYNC]       = {"synchronous tag send", 0, IN_SINK},
    [TAG_RECEIVE]    = {"tag receive", 1, IN_SINK},
    [AM_SEND]        = {"active message", 0, IN_SINK},
    [AM_RECEIVE]     = {"active message's data", 1, IN_SINK},
    [STREAM_SEND]    = {"stream send", 0, IN_SINK},
    [STREAM_RECEIVE] = {"stream receive", 1, IN_SINK},
    [PUT]            = {"put", 0, IN_WINDOW},
    [GET]            = {"get", 0, IN_SINK},
    [ATOMIC]         = {"atomic", 0, NOWHERE},
    [FETCH]          = {"fetching atomic", 0, NOWHERE},
    [EP_FLUSH]       = {"flush of an endpoint", 0, NOWHERE},
    [WORKER_FLUSH]   = {"flush of a worker", 0, NOWHERE},
    [CLOSE]          = {"close", 0, NOWHERE},
};

static const struct {
    const char       *name;
    uint32_t          mask;
    ucs_memory_type_t memory_type;
} extras[] = {
    {.name = "callback and user data"},
    {.name = "NO_IMM_CMPL", .mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL},
    {.name = "FAST_CMPL", .mask = UCP_OP_ATTR_FLAG_FAST_CMPL},
    {.name = "MULTI_SEND", .mask = UCP_OP_ATTR_FLAG_MULTI_SEND},
    {.name = "FORCE_IMM_CMPL", .mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL},
    {.name = "MEMH", .mask = UCP_OP_ATTR_FIELD_MEMH},
    {.name = "MEMORY_TYPE host", .mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = UCS_MEMORY_TYPE_HOST},
    {.name = "MEMORY_TYPE unknown", .mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = UCS_MEMORY_TYPE_UNKNOWN},
};

static const size_t lengths[] = {8, 20000, LONG};

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static struct {
    unsigned     calls;
    void        *request, *user_data;
    ucs_status_t status;
} called;

/* The memory of this process, its handles if requested, and the data that B's handler has kept. */
static char     *source, *sink;
static ucp_mem_h source_memh, sink_memh;
static uint64_t  operand, reply;
static size_t    got;
static void     *kept;
static size_t    kept_length;
static window_t  window;
static char      address_of_b[BED_ADDRESS_MAX], address_of_a[BED_ADDRESS_MAX];

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    called.calls++;
    called.request   = request;
    called.status    = status;
    called.user_data = user_data;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)info;
    on_sent(request, status, user_data);
}

static void on_bytes(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)length;
    on_sent(request, status, user_data);
}

/* Short messages are copied, long ones kept until the script receives them. */
static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length;
    kept_length = length;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        kept = data;
        return UCS_INPROGRESS;
    }
    memcpy(sink, data, length);
    return UCS_OK;
}

static ucp_request_param_t param_of(operation_t operation, int extra)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | extras[extra].mask,
        .cb.send      = on_sent,
        .user_data    = &called,
        .memory_type  = extras[extra].memory_type,
        .memh         = operations[operation].at_b || operation == GET ? sink_memh : source_memh,
    };

    switch (operation) {
    case TAG_RECEIVE: param.cb.recv = on_received; break;
    case AM_RECEIVE: param.cb.recv_am = on_bytes; break;
    case STREAM_RECEIVE: param.cb.recv_stream = on_bytes; break;
    case FETCH:
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.reply_buffer  = &reply; /* falls through */
    case ATOMIC:
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype      = ucp_dt_make_contig(8);
        break;
    default: break;
    }
    return param;
}

static ucs_status_ptr_t receive_stream(side_t *side, size_t length, ucp_request_param_t param)
{
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags         = UCP_STREAM_RECV_FLAG_WAITALL;
    return ucp_stream_recv_nbx(side->ep, sink, length, &got, &param);
}

static ucs_status_ptr_t begin(side_t *side, operation_t operation, ucp_ep_h ep, size_t length,
                              const ucp_request_param_t *param)
{
    switch (operation) {
    case TAG_SEND: return ucp_tag_send_nbx(ep, source, length, TAG, param);
    case TAG_SYNC: return ucp_tag_send_sync_nbx(ep, source, length, TAG, param);
    case TAG_RECEIVE: return ucp_tag_recv_nbx(side->worker, sink, length, TAG, -1, param);
    case AM_SEND: return ucp_am_send_nbx(ep, ID, NULL, 0, source, length, param);
    case AM_RECEIVE: return ucp_am_recv_data_nbx(side->worker, kept, sink, length, param);
    case STREAM_SEND: return ucp_stream_send_nbx(ep, source, length, param);
    case STREAM_RECEIVE: return receive_stream(side, length, *param);
    case PUT: return ucp_put_nbx(ep, source, length, window.remote, window.rkey, param);
    case GET: return ucp_get_nbx(ep, sink, length, window.remote, window.rkey, param);
    case ATOMIC:
    case FETCH: return ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &operand, 1, window.remote, window.rkey, param);
    case EP_FLUSH: return ucp_ep_flush_nbx(ep, param);
    case WORKER_FLUSH: return ucp_worker_flush_nbx(side->worker, param);
    default: return ucp_ep_close_nbx(ep, param);
    }
}

/* The other side's part of an operation: before it, so that a receive is posted; or afterwards. */
static ucs_status_ptr_t meet(bed_t *bed, operation_t operation, size_t length)
{
    ucp_request_param_t rendezvous = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_RNDV};
    side_t             *other      = operations[operation].at_b ? bed->a : bed->b;

    if (other == NULL) {
        return NULL;
    }
    switch (operation) {
    case TAG_SEND:
    case TAG_SYNC: return begin(other, TAG_RECEIVE, NULL, length, &plain);
    case TAG_RECEIVE: return begin(other, TAG_SEND, other->ep, length, &plain);
    case AM_RECEIVE: return begin(other, AM_SEND, other->ep, length, &rendezvous);
    case STREAM_SEND: return begin(other, STREAM_RECEIVE, NULL, length, &plain);
    case STREAM_RECEIVE: return begin(other, STREAM_SEND, other->ep, length, &plain);
    default: return NULL;
    }
}

/* B receives A's active message. */
static void take_message(bed_t *bed)
{
    if (bed->b != NULL) {
        BED_UNTIL(bed, kept_length != 0);
        if (kept != NULL) {
            must(bed->b, bed_wait(bed, ucp_am_recv_data_nbx(bed->b->worker, kept, sink, kept_length, &plain)),
                 "ucp_am_recv_data_nbx");
        }
    }
}

/* The callback as the header documents it: once for a request, never without one. */
static const char *callback_check(ucs_status_ptr_t result, ucs_status_t status)
{
    if (!UCS_PTR_IS_PTR(result)) {
        return called.calls == 0 ? "" : ", called without a request";
    }
    return called.calls == 1 && called.request == result && called.status == status && called.user_data == &called ?
               "" : ", not called as promised";
}

static void fill(bed_t *bed, operation_t operation, size_t length, unsigned seed)
{
    data_fill(source, length, seed);
    if (bed->b != NULL && operation == GET) {
        data_fill(window.memory, length, seed);
    }
}

static void prepare(bed_t *bed, operation_t operation, size_t length, unsigned seed)
{
    bed_sync(bed);
    memset(&called, 0, sizeof(called));
    memset(sink, 0, length);
    if (bed->b != NULL) {
        memset(window.memory, 0, length);
    }
    fill(bed, operation, length, seed);
    kept        = NULL;
    kept_length = 0;
    operand     = 5;
    reply       = 7;
    bed_sync(bed);
}

/* The final contents; an atomic's word is at B. */
static const char *moved(const bed_t *bed, operation_t operation, size_t length, unsigned seed)
{
    const side_t *here = operation == GET ? bed->a : bed->b;

    if (here == NULL || (operations[operation].place == NOWHERE && operation != ATOMIC && operation != FETCH)) {
        return "";
    }
    switch (operations[operation].place) {
    case IN_SINK: return data_check(sink, length, seed);
    case IN_WINDOW: return data_check(window.memory, length, seed);
    default: return *(uint64_t *)window.memory == 5 ? "good" : "bad";
    }
}

/*
 * The result of the operation, as far as it is common to every library. Every library returns a request, FORCE_IMM_CMPL
 * or not, for a fetching atomic that the peer executes, and UCX for a close over TCP.
 */
static void ended(char *text, size_t size, operation_t operation, int extra, ucs_status_ptr_t result,
                  ucs_status_t status, const char *called)
{
    const char *imm = "";

    if (extras[extra].mask == UCP_OP_ATTR_FLAG_NO_IMM_CMPL && !UCS_PTR_IS_PTR(result)) {
        imm = ", no request";
    }
    if (extras[extra].mask == UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) {
        imm    = UCS_PTR_IS_PTR(result) && operation < FETCH ? ", a request" : "";
        status = status == UCS_ERR_NO_RESOURCE ? UCS_OK
                                               : status; /* the library may reject operations that it cannot complete */
    }
    snprintf(text + strlen(text), size - strlen(text), " %s%s%s", status_name(status), imm, called);
}

/*
 * One operation with one flag or field. A rejected operation had no effect: it is started again with other bytes, and
 * these have to arrive.
 */
static void cell(bed_t *bed, operation_t operation, int extra, size_t length, char *outcome, char *bytes)
{
    ucp_request_param_t param   = param_of(operation, extra), bare = param_of(operation, 0);
    side_t             *actor   = operations[operation].at_b ? bed->b : bed->a;
    int                 posts   = operations[operation].at_b && operation != AM_RECEIVE;
    ucp_ep_h            ep      = actor == NULL ? NULL : actor->ep;
    ucs_status_ptr_t    result  = NULL, met = NULL, anew = NULL;
    unsigned            seed    = 1 + extra;
    char                refused = 0;

    prepare(bed, operation, length, seed);
    if (operation == CLOSE && bed->a != NULL) {
        ep = bed_connect(bed->a, address_of_b);
    }
    met = posts ? NULL : meet(bed, operation, length);
    bed_sync(bed);
    if (operation == AM_RECEIVE && bed->b != NULL) {
        BED_UNTIL(bed, kept != NULL);
    }
    if (actor != NULL) {
        result  = begin(actor, operation, ep, length, &param);
        refused = UCS_PTR_IS_ERR(result);
    }
    bed_transfer(bed, actor, &refused, 1, &refused, 1);
    if (refused && called.calls == 0) {
        fill(bed, operation, length, ++seed);
        bed_sync(bed);
        anew = actor == NULL ? NULL : begin(actor, operation, ep, length, &bare);
    }
    met = posts ? meet(bed, operation, length) : met;
    if (operation == AM_SEND) {
        take_message(bed);
    }
    if (actor != NULL) {
        ucs_status_t status = bed_wait(bed, result);
        ended(outcome, 256, operation, extra, result, status,
              refused ? "" : callback_check(result, status));
        bed_wait(bed, anew);
    }
    bed_wait(bed, met);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &plain));
    }
    bed_sync(bed);
    snprintf(bytes + strlen(bytes), 256 - strlen(bytes), " %s", moved(bed, operation, length, seed));
}

/* Pairs that the libraries treat differently. */
typedef struct {
    operation_t operation;
    uint32_t    mask;
    int         tested; /* tested on UCX, too; its answer is ignored */
    departure_t departure;
} exception_t;

static const exception_t exceptions[] = {
    {TAG_SYNC, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL, 1,
     {.name = "F1", .why = "UCX ignores it in synchronous sends, against its header", .on_rucp = " OK OK OK"}},
    {STREAM_SEND, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, 0,
     {.name = "F1", .why = "UCX 1.22 loses eight bytes that are sent so", .on_rucp = " OK OK OK"}},
};

static const exception_t *exception_of(operation_t operation, int extra)
{
    for (size_t i = 0; i < sizeof(exceptions) / sizeof(exceptions[0]); i++) {
        if (exceptions[i].operation == operation && exceptions[i].mask == extras[extra].mask) {
            return &exceptions[i];
        }
    }
    return NULL;
}

static void row(bed_t *bed, operation_t operation, int extra)
{
    const exception_t *exception = exception_of(operation, extra);
    char               outcome[256] = "", bytes[256] = "";
    const char        *name  = operations[operation].name;
    side_t            *actor = operations[operation].at_b ? bed->b : bed->a;
    side_t            *at    = operation == GET ? bed->a : bed->b;

    if (exception != NULL && !exception->tested && !on_rucp()) {
        snprintf(bytes, sizeof(bytes), " good good good");
    } else {
        for (int i = 0; i < (operation < ATOMIC ? 3 : 1); i++) {
            cell(bed, operation, extra, lengths[i], outcome, bytes);
        }
    }
    if (actor != NULL && exception != NULL) {
        rule_departs(actor, &exception->departure, outcome);
    } else {
        rule(actor, "F1", "%s, %s:%s", name, extras[extra].name, outcome);
    }
    if (operation < EP_FLUSH) {
        rule(at, "F1", "%s, %s, bytes:%s", name, extras[extra].name, bytes);
    }
}

static ucp_mem_h map(const side_t *side, void *memory)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = memory,
        .length     = LONG,
    };
    ucp_mem_h memh = NULL;

    must(side, ucp_mem_map(side->context, &params, &memh), "ucp_mem_map");
    return memh;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA |
                                       UCP_FEATURE_AMO64};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
        .id         = ID,
        .cb         = on_message,
    };

    source = malloc(LONG);
    sink   = malloc(LONG);
    bed_open(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    window_open(bed, &window, WINDOW_MALLOCED, LONG);
    side_t *side = bed->a != NULL ? bed->a : bed->b;
    source_memh  = map(side, source);
    sink_memh    = map(side, sink);
    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "ucp_worker_set_am_recv_handler");
    }
    bed_sync(bed);
    for (int operation = 0; operation < OPERATIONS; operation++) {
        if (operation == CLOSE && bed->topology == TOPOLOGY_SELF) {
            continue; /* UCX 1.22 crashes when a worker closes an endpoint to itself with NO_IMM_CMPL */
        }
        for (size_t extra = 0; extra < sizeof(extras) / sizeof(extras[0]); extra++) {
            if (operation < EP_FLUSH || extras[extra].mask != UCP_OP_ATTR_FLAG_NO_IMM_CMPL) {
                row(bed, (operation_t)operation, (int)extra);
            }
        }
    }
    bed_sync(bed);
    ucp_mem_unmap(side->context, source_memh);
    ucp_mem_unmap(side->context, sink_memh);
    window_close(bed, &window);
    bed_close(bed);
    free(source);
    free(sink);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
