/*
 * Remote memory access: rank 1 exposes a window; rank 0 writes text into it, reads it back, and adds to a counter in
 * it.
 */
#include "example.h"

#include <stddef.h>
#include <string.h>

enum { ADDITIONS = 1000 };

typedef struct {
    uint64_t counter;
    char     text[56];
} window_t;

static const char                text[] = "written by rank 0";
static const ucp_request_param_t plain;

/* Adds one to a counter of the other process, and returns its previous value. */
static uint64_t fetch_add(ucp_worker_h worker, ucp_ep_h ep, uint64_t counter, ucp_rkey_h rkey)
{
    const uint64_t            one = 1;
    uint64_t                  before;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                       .datatype     = ucp_dt_make_contig(sizeof(one)),
                                       .reply_buffer = &before};

    wait_for(worker, ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, counter, rkey, &param));
    return before;
}

/* Rank 0. */
static void access_window(const pair_t *pair, ucp_worker_h worker, ucp_ep_h ep)
{
    uint64_t  *address = pair_receive(pair);
    void      *key     = pair_receive(pair);
    char       back[sizeof(text)];
    ucp_rkey_h rkey;

    MUST(ucp_ep_rkey_unpack(ep, key, &rkey));
    wait_for(worker, ucp_put_nbx(ep, text, sizeof(text), *address + offsetof(window_t, text), rkey, &plain));
    /* A put is complete when its buffer can be used again. After a flush the data has arrived. */
    wait_for(worker, ucp_ep_flush_nbx(ep, &plain));
    wait_for(worker, ucp_get_nbx(ep, back, sizeof(back), *address + offsetof(window_t, text), rkey, &plain));
    expect(strcmp(text, back) == 0, "the text that was written");
    for (uint64_t i = 0; i < ADDITIONS; i++) {
        expect(fetch_add(worker, ep, *address + offsetof(window_t, counter), rkey) == i, "the counter");
    }
    ucp_rkey_destroy(rkey);
    pair_send(pair, "done", sizeof("done"));
    free(address);
    free(key);
}

/* Rank 1. */
static void expose_window(const pair_t *pair, ucp_context_h context, ucp_worker_h worker)
{
    /* UCP chooses memory that its transports reach best. Memory of the program's own can be mapped as well. */
    ucp_mem_map_params_t map  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                 .length     = sizeof(window_t),
                                 .flags      = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h            memh;
    window_t            *window;
    void                *key;
    size_t               length;

    MUST(ucp_mem_map(context, &map, &memh));
    MUST(ucp_mem_query(memh, &attr));
    window = attr.address;
    memset(window, 0, sizeof(*window));
    /* The other process needs the address and a packed key. */
    MUST(ucp_rkey_pack(context, memh, &key, &length));
    pair_send(pair, &(uint64_t){(uintptr_t)window}, sizeof(uint64_t));
    pair_send(pair, key, length);
    ucp_rkey_buffer_release(key);

    /* Some transports access memory by messages, which this worker executes when it progresses. */
    while (!pair_has_sent(pair)) {
        ucp_worker_progress(worker);
    }
    free(pair_receive(pair));
    printf("the window says \"%s\", and the counter %d\n", window->text, (int)window->counter);
    expect(strcmp(window->text, text) == 0 && window->counter == ADDITIONS, "the window");
    MUST(ucp_mem_unmap(context, memh));
}

int main(void)
{
    pair_t        pair = pair_start();
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;

    set_up(UCP_FEATURE_RMA | UCP_FEATURE_AMO64, &context, &worker);
    ep = pair_connect(&pair, worker);
    if (pair.rank == 0) {
        access_window(&pair, worker, ep);
    } else {
        expose_window(&pair, context, worker);
    }
    return pair_finish(&pair, context, worker, ep);
}
