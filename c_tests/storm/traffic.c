/* Traffic: see traffic.h. */
#define _GNU_SOURCE
#include "traffic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *kind_names[] = {"tagged send", "active send", "put and get", "add", "stream send",
                                   "wildcard receive", "stream receive", "active data", "close"};

op_t *ops;
int   op_count;

__attribute__((format(printf, 1, 2), noreturn)) void fail(const char *format, ...)
{
    char    what[512];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (!atomic_exchange(&board->failed, 1)) {
        fprintf(stderr, "FAILED in process %d, generation %u (pid %d): %s\n", me, my_generation, getpid(), what);
    }
    _exit(1);
}

uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33) % below;
}

static size_t draw_length(size_t most)
{
    return (draw(1u << 31) & ((1ul << draw(18)) - 1)) % (most + 1);
}

static unsigned char pattern(uint64_t index, uint32_t of)
{
    return (unsigned char)(index * 31 + (index >> 8) * 7 + (index >> 16) * 13 + of * 101 + 5);
}

static void fill(unsigned char *bytes, size_t length, uint64_t from, uint32_t of)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(from + i, of);
    }
}

static void verify(const unsigned char *bytes, size_t length, uint64_t from, uint32_t of, const char *what)
{
    for (size_t i = 0; i < length; i++) {
        CHECK(bytes[i] == pattern(from + i, of), "%s: byte %zu of %zu is wrong", what, i, length);
    }
}

int is_killed(const peer_t *peer)
{
    return atomic_load(&board->slots[peer->slot].killed) >= peer->generation;
}

/* --- operations --- */

op_t *new_op(kind_t kind, peer_t *peer, size_t length)
{
    op_t *op = calloc(1, sizeof(*op));

    op->kind   = kind;
    op->peer   = peer;
    op->since  = clock_now;
    op->length = length;
    op->buffer = length != 0 ? malloc(length) : NULL;
    op->next   = ops;
    ops        = op;
    op_count  += peer != NULL && kind < RECEIVE;
    if (peer != NULL) {
        peer->ops++;
    }
    return op;
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    op_t *op = user_data;

    (void)request;
    CHECK(!op->ended, "%s ended twice", kind_names[op->kind]);
    op->ended  = 1;
    op->status = status;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    op_t *op = user_data;

    op->length = info->length;
    op->value  = info->sender_tag;
    on_sent(request, status, op);
}

static void on_stream(void *request, ucs_status_t status, size_t length, void *user_data)
{
    ((op_t *)user_data)->length = length;
    on_sent(request, status, user_data);
}

ucp_request_param_t param_of(op_t *op)
{
    return (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_sent, .user_data = op};
}

/* The result of a call: the operation has completed, or its request will call back. */
void began(op_t *op, ucs_status_ptr_t returned)
{
    if (UCS_PTR_IS_PTR(returned)) {
        op->request = returned;
    } else {
        on_sent(NULL, UCS_PTR_RAW_STATUS(returned), op);
    }
}

static size_t region_of(uint32_t slot, uint32_t generation)
{
    return (size_t)(slot * REGIONS + generation % REGIONS) * REGION;
}

/* A tag that names its sender. */
static ucp_tag_t tag_of(int slot, unsigned generation, unsigned number)
{
    return (ucp_tag_t)generation << 32 | (ucp_tag_t)slot << 16 | number;
}

static int is_of_killed(ucp_tag_t tag)
{
    return atomic_load(&board->slots[tag >> 16 & 0xFFFF].killed) >= (unsigned)(tag >> 32);
}

static void send_message(peer_t *peer, kind_t kind)
{
    size_t  length = sizeof(head_t) + draw_length(MAX_LENGTH);
    op_t   *op     = new_op(kind, peer, length);
    ucp_request_param_t param = param_of(op);
    ucp_tag_t tag  = tag_of(me, my_generation, draw(1000));

    op->head = (head_t){(uint32_t)me, my_generation, draw(1u << 30), (uint32_t)length};
    memcpy(op->buffer, &op->head, sizeof(op->head));
    fill(op->buffer + sizeof(op->head), length - sizeof(op->head), 0, op->head.seed);
    if (kind == ACTIVE) {
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = draw(4) == 0 ? UCP_AM_SEND_FLAG_RNDV : 0;
        began(op, ucp_am_send_nbx(peer->ep, AM_ID, &op->head, sizeof(op->head), op->buffer, length, &param));
    } else if (draw(8) == 0) {
        began(op, ucp_tag_send_nbx(peer->ep, op->buffer, length, tag, &param));
    } else {
        /* Most are synchronous, so that receivers do not fall behind. */
        began(op, ucp_tag_send_sync_nbx(peer->ep, op->buffer, length, tag, &param));
    }
}

void post_receive(void)
{
    op_t *op = new_op(RECEIVE, NULL, MAX_LENGTH + sizeof(head_t));
    ucp_request_param_t param = param_of(op);

    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = on_received;
    op->since = 1e18;
    began(op, ucp_tag_recv_nbx(worker, op->buffer, op->length, 0, 0, &param));
}

static void check_message(const unsigned char *bytes, size_t length, const char *what)
{
    head_t head;

    CHECK(length >= sizeof(head), "%s of %zu bytes", what, length);
    memcpy(&head, bytes, sizeof(head));
    CHECK(head.length == length && head.from < (uint32_t)board->count, "%s: %zu bytes instead of %u", what, length,
          head.length);
    verify(bytes + sizeof(head), length - sizeof(head), 0, head.seed, what);
}

/* Put, flush, get; then compare. */
static void step_rma(op_t *op)
{
    peer_t  *peer  = op->peer;
    uint64_t where = board->slots[peer->slot].window + region_of((uint32_t)me, my_generation);
    ucp_request_param_t param = param_of(op);

    op->ended = 0;
    switch (op->step++) {
    case 0:
        fill(op->buffer, op->length, 0, op->head.seed);
        return began(op, ucp_put_nbx(peer->ep, op->buffer, op->length, where, peer->key, &param));
    case 1: return began(op, ucp_ep_flush_nbx(peer->ep, &param));
    default:
        memset(op->buffer, 0, op->length);
        return began(op, ucp_get_nbx(peer->ep, op->buffer, op->length, where, peer->key, &param));
    }
}

static void start_rma(peer_t *peer)
{
    op_t *op = new_op(RMA, peer, 1 + draw_length(REGION - 64 - 1));

    op->head.seed  = draw(1u << 30);
    peer->busy_rma = 1;
    step_rma(op);
}

static void start_add(peer_t *peer)
{
    op_t *op = new_op(ADD, peer, 0);
    ucp_request_param_t param = param_of(op);

    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype     = ucp_dt_make_contig(8);
    param.reply_buffer = &op->result;
    op->value          = 1 + draw(100);
    peer->busy_add     = 1;
    /* The last 8 bytes of the region, which puts do not reach. */
    began(op, ucp_atomic_op_nbx(peer->ep, UCP_ATOMIC_OP_ADD, &op->value, 1,
                                board->slots[peer->slot].window + region_of((uint32_t)me, my_generation) + REGION - 8,
                                peer->key, &param));
}

static uint32_t stream_seed(int from, int to, unsigned from_generation, unsigned to_generation)
{
    return (uint32_t)(from * 16 + to) + from_generation * 7919 + to_generation * 104729;
}

static void start_stream(peer_t *peer)
{
    op_t *op = new_op(STREAM, peer, 1 + draw(CHUNK));
    ucp_request_param_t param = param_of(op);

    fill(op->buffer, op->length, peer->sent, stream_seed(me, peer->slot, my_generation, peer->generation));
    peer->sent += op->length;
    peer->busy_stream = 1;
    began(op, ucp_stream_send_nbx(peer->ep, op->buffer, op->length, &param));
}

static void receive_stream(peer_t *peer)
{
    op_t *op = new_op(STREAM_RECEIVE, peer, CHUNK);
    ucp_request_param_t param = param_of(op);
    size_t length = 0;

    op->since = 1e18;
    param.cb.recv_stream  = on_stream;
    peer->receives_stream = 1;
    ucs_status_ptr_t returned = ucp_stream_recv_nbx(peer->ep, op->buffer, CHUNK, &length, &param);
    if (!UCS_PTR_IS_PTR(returned)) {
        op->length = length;
    }
    began(op, returned);
}

ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *info)
{
    head_t head;

    (void)arg;
    CHECK(header_length == sizeof(head), "a header of %zu bytes", header_length);
    memcpy(&head, header, sizeof(head));
    if (!(info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        CHECK(length < sizeof(head) || memcmp(data, &head, sizeof(head)) == 0, "the head of an active message");
        check_message(data, length, "active message");
        return UCS_OK;
    }
    op_t *op = new_op(ACTIVE_DATA, NULL, length);
    ucp_request_param_t param = param_of(op);

    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv_am = on_stream;
    op->head = head;
    began(op, ucp_am_recv_data_nbx(worker, data, op->buffer, length, &param));
    return UCS_INPROGRESS;
}

/* --- completions --- */

static void check_end(op_t *op)
{
    peer_t *peer = op->peer;

    if (op->status != UCS_OK) {
        int is_excused = op->kind == RECEIVE || op->kind == ACTIVE_DATA || op->kind == CLOSE ||
                         (peer != NULL && is_killed(peer)) || atomic_load(&board->over);

        CHECK(is_excused, "%s to process %d, which lives: %s", kind_names[op->kind], peer != NULL ? peer->slot : -1,
              ucs_status_string(op->status));
        /* A message that was announced by a process that was killed then. */
        int is_lost = op->kind == RECEIVE && is_of_killed(op->value);

        CHECK(op->kind != RECEIVE || op->status != UCS_ERR_CANCELED || op->cancelled || is_lost,
              "a receive was canceled without a call");
        return;
    }
    switch (op->kind) {
    case RECEIVE: check_message(op->buffer, op->length, "tagged message"); break;
    case ACTIVE_DATA: check_message(op->buffer, op->length, "active data"); break;
    case RMA: verify(op->buffer, op->length, 0, op->head.seed, "put and get"); break;
    case ADD:
        CHECK(peer->added == UINT64_MAX || peer->added == op->result, "a counter is %lu, should be %lu",
              (unsigned long)op->result, (unsigned long)peer->added);
        peer->added = op->result + op->value;
        break;
    case STREAM_RECEIVE:
        verify(op->buffer, op->length, peer->received,
               stream_seed(peer->slot, me, peer->generation, my_generation), "stream");
        peer->received += op->length;
        break;
    default: break;
    }
    if (op->kind <= STREAM) {
        atomic_fetch_add_explicit(&board->done[op->kind], 1, memory_order_relaxed);
    }
}

static void end_op(op_t *op)
{
    peer_t *peer = op->peer;

    check_end(op);
    if (op->kind == RECEIVE) {
        atomic_fetch_add(&board->cancels, op->cancelled);
    }
    op_count -= peer != NULL && op->kind < RECEIVE;
    if (peer != NULL) {
        peer->ops--;
        peer->busy_rma        -= op->kind == RMA;
        peer->busy_add        -= op->kind == ADD;
        peer->busy_stream     -= op->kind == STREAM;
        peer->receives_stream -= op->kind == STREAM_RECEIVE;
    }
    free(op->buffer);
    free(op);
}

/* Completes operations; fails if one takes too long. */
void look_at_ops(int posts)
{
    op_t *all = ops, *op;

    ops = NULL;
    while ((op = all) != NULL) {
        all = op->next;
        if (!op->ended) {
            CHECK(clock_now - op->since < LIMIT_SECONDS, "%s (step %d, process %d%s, cancelled %d) does not end",
                  kind_names[op->kind], op->step, op->peer != NULL ? op->peer->slot : -1,
                  op->peer != NULL && is_killed(op->peer) ? ", killed" : "", op->cancelled);
            op->next = ops;
            ops      = op;
            continue;
        }
        if (op->request != NULL) {
            ucp_request_free(op->request);
            op->request = NULL;
        }
        if (op->kind == RMA && op->status == UCS_OK && op->step < 3 && op->peer->ep != NULL) {
            op->next = ops;
            ops      = op;
            step_rma(op);
            continue;
        }
        if (op->kind == RMA && op->step < 3) {
            op->status = op->status == UCS_OK ? UCS_ERR_CANCELED : op->status;
        }
        int again = op->kind == RECEIVE && posts;
        end_op(op);
        if (again) {
            post_receive();
        }
    }
}

void cancel_receive(unsigned which)
{
    for (op_t *op = ops; op != NULL; op = op->next) {
        if (op->kind == RECEIVE && !op->ended && !op->cancelled && which-- == 0) {
            op->cancelled = 1;
            op->since     = clock_now;
            ucp_request_cancel(worker, op->request);
            return;
        }
    }
}

void act_on(peer_t *peer)
{
    if (peer == NULL || peer->ep == NULL || peer->callbacks != 0 || op_count >= MAX_OPS) {
        return;
    }
    if (!peer->receives_stream) {
        receive_stream(peer);
    }
    switch (draw(8)) {
    case 0: if (!peer->busy_rma && peer->key != NULL) start_rma(peer); break;
    case 1: if (!peer->busy_add && peer->key != NULL) start_add(peer); break;
    case 2: if (!peer->busy_stream) start_stream(peer); break;
    case 3: case 4: send_message(peer, ACTIVE); break;
    default: send_message(peer, TAGGED);
    }
}
