/* One process of a storm: its reaction to the deaths of others, and its end. */
#define _GNU_SOURCE
#include "traffic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

board_t      *board;
int           me;
unsigned      my_generation;
uint64_t      random_state;
double        clock_now;
ucp_context_h context;
ucp_worker_h  worker;

static double         clock_last;
static unsigned char *window;
static peer_t        *peers[MAX_SLOTS];

static void must(ucs_status_t status, const char *what)
{
    CHECK(status == UCS_OK, "%s: %s", what, ucs_status_string(status));
}

static void tick(void)
{
    double t = now();

    clock_now += t - clock_last < GAP ? t - clock_last : GAP;
    clock_last = t;
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
        .field_mask     = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address        = (const ucp_address_t *)address,
        .err_mode       = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler    = {.cb = on_failure, .arg = peer},
    };

    memcpy(address, other->address, sizeof(address));
    memcpy(key, other->key, sizeof(key));
    *peer = (peer_t){.slot = slot, .generation = generation, .added = UINT64_MAX};
    /* Another one may have taken its slot while this was read. */
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
    CHECK(status == UCS_OK || is_killed(peer), "no key of process %d, which lives: %s", slot,
          ucs_status_string(status));
    peers[slot] = peer;
}

/* The endpoint is closed by force; the peer is freed when no operation in flight refers to it. */
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
    CHECK(peer->killed_at == 0 || clock_now - peer->killed_at < board->limit,
          "%.1f s after process %d was killed no handler is called", clock_now - peer->killed_at, slot);
}

/* --- the process --- */

/* Keeps the least resources of a survivor in each third of the storm. */
static void take_sample(void)
{
    int          third = (int)((now() - board->begins) / (board->ends - board->begins) * SAMPLES);
    resources_t *least = &board->least[me][third < SAMPLES ? third : SAMPLES - 1];
    resources_t  held  = resources_in_use();

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
    /* Operations in flight end; then no process sends any more, and the receives are canceled. */
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
