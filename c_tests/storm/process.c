/* One process of a storm: its traffic, and what it sees of the deaths of others. */
#define _GNU_SOURCE
#include "storm.h"

#include <ucp/api/ucp.h>

#include <dirent.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVES = 8, MAX_OPS = 48, MAX_LENGTH = 150000, REGION = 16 << 10, REGIONS = 8, AM_ID = 3, CHUNK = 4096 };
/* Seconds of running time in which any request ends; between two calls of progress a gap counts as so much at most. */
#define PATIENCE 10.0
#define GAP 0.02

typedef enum { TAGGED, ACTIVE, RMA, ADD, STREAM, RECEIVE, STREAM_RECEIVE, ACTIVE_DATA, CLOSE } kind_t;
static const char *kind_names[] = {"tagged send", "active send", "put and get", "add", "stream send", "wildcard receive",
                                   "stream receive", "active data", "close"};

typedef struct {
    uint32_t from, generation, seed, length;
} head_t;

/* Another process, of one generation. */
typedef struct {
    int           slot;
    unsigned      generation;
    ucp_ep_h      ep; /* NULL: none now */
    ucp_rkey_h    key;
    int           callbacks, busy_rma, busy_add, busy_stream, receives_stream;
    double        killed_at; /* running time at which its death was seen on the board; 0: lives */
    uint64_t      added;     /* what the counter must be; UINT64_MAX: not known */
    uint64_t      sent, received; /* bytes of the streams */
    int           ops;       /* under way, which refer to it */
} peer_t;

typedef struct op {
    kind_t         kind;
    peer_t        *peer; /* NULL for wildcard receives */
    double         since;
    int            step, cancelled, ended;
    ucs_status_t   status;
    size_t         length;
    void          *request;
    head_t         head;
    uint64_t       value, result;
    unsigned char *buffer;
    struct op     *next;
} op_t;

static board_t      *board;
static int           me;
static unsigned      my_generation;
static uint64_t      random_state;
static double        clock_now, clock_last; /* running time */
static ucp_context_h context;
static ucp_worker_h  worker;
static unsigned char *window;
static peer_t       *peers[MAX_SLOTS];
static op_t         *ops;
static int           op_count;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
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

#define CHECK(condition, ...)  \
    do {                       \
        if (!(condition)) {    \
            fail(__VA_ARGS__); \
        }                      \
    } while (0)

static void must(ucs_status_t status, const char *what)
{
    CHECK(status == UCS_OK, "%s: %s", what, ucs_status_string(status));
}

static uint32_t draw(uint32_t below)
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

static int is_killed(const peer_t *peer)
{
    return atomic_load(&board->slots[peer->slot].killed) >= peer->generation;
}

static void tick(void)
{
    double t = now();

    clock_now += t - clock_last < GAP ? t - clock_last : GAP;
    clock_last = t;
}

/* --- operations --- */

static op_t *new_op(kind_t kind, peer_t *peer, size_t length)
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
    ((op_t *)user_data)->length = info->length;
    on_sent(request, status, user_data);
}

static void on_stream(void *request, ucs_status_t status, size_t length, void *user_data)
{
    ((op_t *)user_data)->length = length;
    on_sent(request, status, user_data);
}

static ucp_request_param_t param_of(op_t *op)
{
    return (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.send = on_sent, .user_data = op};
}

/* What a call returned: the operation has ended, or its request will call. */
static void began(op_t *op, ucs_status_ptr_t returned)
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

static void send_message(peer_t *peer, kind_t kind)
{
    size_t  length = sizeof(head_t) + draw_length(MAX_LENGTH);
    op_t   *op     = new_op(kind, peer, length);
    ucp_request_param_t param = param_of(op);
    ucp_tag_t tag  = draw(1000);

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

static void post_receive(void)
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
    CHECK(head.length == length && head.from < (uint32_t)board->count, "%s: %zu bytes instead of %u", what, length, head.length);
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

static ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
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

/* --- the ends of operations --- */

static void check_end(op_t *op)
{
    peer_t *peer = op->peer;

    if (op->status != UCS_OK) {
        int is_excused = op->kind == RECEIVE || op->kind == ACTIVE_DATA || op->kind == CLOSE ||
                         (peer != NULL && is_killed(peer)) || atomic_load(&board->over);

        CHECK(is_excused, "%s to process %d, which lives: %s", kind_names[op->kind], peer != NULL ? peer->slot : -1,
              ucs_status_string(op->status));
        CHECK(op->kind != RECEIVE || op->status != UCS_ERR_CANCELED || op->cancelled, "a receive was cancelled by nobody");
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
        verify(op->buffer, op->length, peer->received, stream_seed(peer->slot, me, peer->generation, my_generation), "stream");
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

/* Ends what has ended; nothing waits for too long. */
static void look_at_ops(int posts)
{
    op_t *all = ops, *op;

    ops = NULL;
    while ((op = all) != NULL) {
        all = op->next;
        if (!op->ended) {
            CHECK(clock_now - op->since < PATIENCE, "%s (step %d, process %d%s, cancelled %d) does not end",
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

static void cancel_receive(unsigned which)
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

/* --- peers --- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    peer_t *peer = arg;

    CHECK(peer->ep == ep, "a handler is called for a closed endpoint to process %d", peer->slot);
    CHECK(++peer->callbacks == 1, "a handler is called %d times for process %d", peer->callbacks, peer->slot);
    CHECK(is_killed(peer) || atomic_load(&board->over), "process %d, generation %u, lives, and its endpoint failed: %s",
          peer->slot, peer->generation, ucs_status_string(status));
    atomic_fetch_add(&board->failures, 1);
}

static void connect_to(int slot, unsigned generation)
{
    slot_t         *other  = &board->slots[slot];
    peer_t         *peer   = calloc(1, sizeof(*peer));
    unsigned char   address[BLOB], key[BLOB];
    ucp_ep_params_t params = {
        .field_mask     = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address        = (const ucp_address_t *)address,
        .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler    = {.cb = on_failure, .arg = peer},
    };

    memcpy(address, other->address, sizeof(address));
    memcpy(key, other->key, sizeof(key));
    *peer = (peer_t){.slot = slot, .generation = generation, .added = UINT64_MAX};
    /* Another one may have taken its place while this was read. */
    if (atomic_load(&other->generation) != generation || is_killed(peer)) {
        free(peer);
        return;
    }
    ucs_status_t status = ucp_ep_create(worker, &params, &peer->ep);
    if (status != UCS_OK) {
        CHECK(is_killed(peer), "no endpoint to process %d, which lives: %s", slot, ucs_status_string(status));
        free(peer);
        return;
    }
    status = ucp_ep_rkey_unpack(peer->ep, key, &peer->key);
    CHECK(status == UCS_OK || is_killed(peer), "no key of process %d, which lives: %s", slot, ucs_status_string(status));
    peers[slot] = peer;
}

/* The endpoint is closed by force; the peer is freed when nothing under way refers to it. */
static void disconnect(peer_t *peer)
{
    op_t *op = new_op(CLOSE, peer, 0);
    ucp_request_param_t param = param_of(op);

    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    if (peer->key != NULL) {
        ucp_rkey_destroy(peer->key);
    }
    ucs_status_ptr_t returned = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    began(op, returned);
}

static void look_at_peer(int slot)
{
    peer_t  *peer       = peers[slot];
    unsigned generation = atomic_load(&board->slots[slot].generation);

    if (peer == NULL) {
        if (generation != 0 && generation > atomic_load(&board->slots[slot].killed)) {
            connect_to(slot, generation);
        }
        return;
    }
    if (peer->ep == NULL) {
        if (peer->ops == 0) {
            free(peer);
            peers[slot] = NULL;
        }
        return;
    }
    if (is_killed(peer) && peer->killed_at == 0) {
        peer->killed_at = clock_now;
    }
    if (peer->callbacks != 0) {
        long us = peer->killed_at != 0 ? (long)((clock_now - peer->killed_at) * 1e6) : 0;
        long before = atomic_load(&board->slowest_us);

        while (us > before && !atomic_compare_exchange_weak(&board->slowest_us, &before, us)) {
        }
        disconnect(peer);
        return;
    }
    CHECK(peer->killed_at == 0 || clock_now - peer->killed_at < board->limit, "%.1f s after process %d was killed no handler is called",
          clock_now - peer->killed_at, slot);
}

static void act_on(peer_t *peer)
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

/* --- the process --- */

static long entries(const char *directory)
{
    DIR *opened = opendir(directory);
    long count  = 0;

    while (readdir(opened) != NULL) {
        count++;
    }
    closedir(opened);
    return count;
}

/* Keeps the least that a survivor holds in each third of the storm. */
static void take_sample(void)
{
    int     third = (int)((now() - board->begins) / (board->ends - board->begins) * SAMPLES);
    held_t *least = &board->least[me][third < SAMPLES ? third : SAMPLES - 1];
    held_t  held  = {.descriptors = entries("/proc/self/fd"), .bytes = (long)mallinfo2().uordblks};
    FILE   *maps  = fopen("/proc/self/maps", "r");

    for (int c; (c = fgetc(maps)) != EOF;) {
        held.mappings += c == '\n';
    }
    fclose(maps);
    if (least->descriptors == 0) {
        *least = held;
    }
    least->descriptors = held.descriptors < least->descriptors ? held.descriptors : least->descriptors;
    least->mappings    = held.mappings < least->mappings ? held.mappings : least->mappings;
    least->bytes       = held.bytes < least->bytes ? held.bytes : least->bytes;
}

static void open_process(void)
{
    size_t size = (size_t)MAX_SLOTS * REGIONS * REGION;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM |
                           UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_STREAM};
    ucp_worker_params_t how = {.field_mask = 0};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID, .cb = on_active};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .length = size};
    slot_t        *own = &board->slots[me];
    ucp_address_t *address;
    ucp_mem_h      memory;
    void          *key;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &how, &worker), "ucp_worker_create");
    must(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    window = calloc(1, size);
    map.address = window;
    must(ucp_mem_map(context, &map, &memory), "ucp_mem_map");
    must(ucp_worker_get_address(worker, &address, &own->address_length), "ucp_worker_get_address");
    must(ucp_rkey_pack(context, memory, &key, &own->key_length), "ucp_rkey_pack");
    CHECK(own->address_length <= BLOB && own->key_length <= BLOB, "a long address or key");
    memcpy(own->address, address, own->address_length);
    memcpy(own->key, key, own->key_length);
    own->window = (uint64_t)(uintptr_t)window;
    atomic_store(&own->generation, my_generation);
    ucp_worker_release_address(worker, address);
    ucp_rkey_buffer_release(key);
}

static void turn(int posts)
{
    unsigned did = 0;

    for (int i = 0; i < 8; i++) {
        did += ucp_worker_progress(worker);
    }
    tick();
    look_at_ops(posts);
    if (did == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    if (atomic_load(&board->failed)) {
        _exit(0);
    }
}

static void wait_for_all(atomic_int *mine, size_t offset)
{
    atomic_store(mine, 1);
    for (int i = 0; i < board->count; i++) {
        while (!atomic_load((atomic_int *)((char *)&board->slots[i] + offset))) {
            turn(1);
        }
    }
}

void run_process(board_t *shared, int slot, unsigned generation)
{
    double sampled = 0;

    board         = shared;
    me            = slot;
    my_generation = generation;
    random_state  = board->seed * 1000003ull + (unsigned)slot * 65537ull + generation;
    clock_last    = now();
    open_process();
    for (int i = 0; i < RECEIVES; i++) {
        post_receive();
    }
    while (!atomic_load(&board->over)) {
        for (int i = 0; i < board->count; i++) {
            if (i != me) {
                look_at_peer(i);
            }
        }
        act_on(peers[draw((uint32_t)board->count)]);
        if (draw(64) == 0) {
            cancel_receive(draw(RECEIVES));
        }
        turn(1);
        if (me < SURVIVORS && now() - sampled > 0.25) {
            sampled = now();
            take_sample();
        }
    }
    /* What is under way ends; then nobody sends any more, and the receives are cancelled. */
    while (op_count > 0) {
        turn(1);
    }
    wait_for_all(&board->slots[me].drained, offsetof(slot_t, drained));
    for (int i = 0; i < board->count; i++) {
        if (peers[i] != NULL && peers[i]->ep != NULL) {
            disconnect(peers[i]);
        }
    }
    for (int i = 0; i < RECEIVES; i++) {
        cancel_receive(0);
    }
    while (ops != NULL) {
        turn(0);
    }
    wait_for_all(&board->slots[me].closed, offsetof(slot_t, closed));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    exit(0);
}
