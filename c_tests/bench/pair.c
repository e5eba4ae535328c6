//! A pair: see pair.h.
#include "pair.h"

#include <stdlib.h>
#include <string.h>

const ucp_request_param_t plain = {.op_attr_mask = 0};

void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

ucs_status_t end_of(struct side *side, ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(side->worker);
    }
    ucp_request_free(request);
    return status;
}

void wait_for(struct side *side, ucs_status_ptr_t request, const char *call)
{
    check(end_of(side, request), call);
}

static void progress(void *side)
{
    ucp_worker_progress(((struct side *)side)->worker);
}

void meet_other(struct side *side)
{
    meet(side->place, progress, side);
}

/* ---- opening and closing ---- */

static void *new_buffer(void)
{
    void *memory = aligned_alloc(4096, LARGEST);

    if (memory == NULL) {
        die("no memory");
    }
    memset(memory, 1, LARGEST);
    return memory;
}

void open_side(struct side *side, struct place place, const struct effort *effort, uint64_t features)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    char theirs[MAIL_ROOM];
    ucp_address_t *address;
    size_t length;

    memset(side, 0, sizeof(*side));
    side->place = place;
    side->effort = effort;
    side->buffer = new_buffer();
    check(ucp_init(&params, NULL, &side->context), "ucp_init");
    check(ucp_worker_create(side->context, &worker, &side->worker), "ucp_worker_create");
    check(ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    exchange(place, address, length, theirs, sizeof(theirs));
    ucp_worker_release_address(side->worker, address);
    ep.address = (ucp_address_t *)theirs;
    check(ucp_ep_create(side->worker, &ep, &side->ep), "ucp_ep_create");
}

void exchange_region(struct side *side, struct region *region)
{
    uint64_t address = (uint64_t)(uintptr_t)region->own;
    char theirs[MAIL_ROOM];
    size_t length;
    void *key;

    exchange(side->place, &address, sizeof(address), &region->remote, sizeof(region->remote));
    check(ucp_rkey_pack(side->context, region->memory, &key, &length), "ucp_rkey_pack");
    exchange(side->place, key, length, theirs, sizeof(theirs));
    ucp_rkey_buffer_release(key);
    check(ucp_ep_rkey_unpack(side->ep, theirs, &region->rkey), "ucp_ep_rkey_unpack");
}

static void open_region(struct side *side, struct region *region, ucp_mem_map_params_t *params)
{
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    check(ucp_mem_map(side->context, params, &region->memory), "ucp_mem_map");
    check(ucp_mem_query(region->memory, &attr), "ucp_mem_query");
    region->own = attr.address;
    memset(region->own, 0, LARGEST);
    exchange_region(side, region);
}

void open_regions(struct side *side)
{
    ucp_mem_map_params_t allocated = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = LARGEST,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_map_params_t malloced = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .length = LARGEST,
        .address = new_buffer(),
    };

    open_region(side, &side->allocated, &allocated);
    open_region(side, &side->malloced, &malloced);
}

static void close_region(struct side *side, struct region *region, void *memory)
{
    if (region->memory != NULL) {
        ucp_rkey_destroy(region->rkey);
        meet_other(side);
        check(ucp_mem_unmap(side->context, region->memory), "ucp_mem_unmap");
        free(memory);
    }
}

void close_side(struct side *side)
{
    meet_other(side);
    wait_for(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
    close_region(side, &side->malloced, side->malloced.own);
    close_region(side, &side->allocated, NULL);
    wait_for(side, ucp_ep_close_nbx(side->ep, &plain), "ucp_ep_close_nbx");
    /* The other side's close may still need an answer from here. */
    meet_other(side);
    ucp_worker_destroy(side->worker);
    ucp_cleanup(side->context);
    free(side->buffer);
}

/* ---- measuring ---- */

static double timed(struct side *side, batch run, size_t size, long rounds)
{
    double begin;

    meet_other(side);
    begin = now();
    run(side, size, rounds);
    begin = now() - begin;
    meet_other(side);
    return begin;
}

double seconds_per_round(struct side *side, batch run, size_t size)
{
    enum { FIRST = 4, TRIES = 3 };
    double values[MAX_BATCHES], first = 1;

    timed(side, run, size, 1); /* connects, maps, faults pages in */
    for (int i = 0; i < TRIES; i++) {
        double seconds = timed(side, run, size, FIRST) / FIRST;

        first = seconds < first ? seconds : first;
    }
    if (side->place.index == 0) {
        side->place.stage->rounds = 1 + (long)(side->effort->batch_seconds / (first + 1e-8));
    }
    meet_other(side);
    for (int i = 0; i < side->effort->batches; i++) {
        values[i] = timed(side, run, size, side->place.stage->rounds) / (double)side->place.stage->rounds;
    }
    return median(values, side->effort->batches);
}
