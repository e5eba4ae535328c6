/*
 * Puts and gets of registered memory of devices, by copies of the initiator: one for each access, without progress of
 * the owner. Flushes and fences, atomic operations between, keys of memory that was freed, an owner that sleeps and
 * one that refuses.
 */
#include "gpu.h"

#include "window.h"

#include <string.h>

#define LENGTH (1 << 20)

typedef struct {
    area_t     area; /* B's */
    ucp_mem_h  memh;
    uint64_t   remote;
    ucp_rkey_h rkey;
} exposed_t;

static void expose(bed_t *bed, exposed_t *exposed, place_t place)
{
    char                 key[PACKED_KEY_MAX];
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .length     = LENGTH,
    };

    exposed->area = area_make(bed->b, place, LENGTH);
    exposed->memh = NULL;
    exposed->rkey = NULL;
    if (bed->b != NULL) {
        params.address  = exposed->area.memory;
        exposed->remote = (uint64_t)(uintptr_t)exposed->area.memory;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &exposed->memh), "ucp_mem_map");
    }
    bed_transfer(bed, bed->b, &exposed->remote, sizeof(exposed->remote), &exposed->remote, sizeof(exposed->remote));
    window_carry_key(bed, exposed->memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &exposed->rkey), "ucp_ep_rkey_unpack");
    }
    bed_sync(bed);
}

static void hide(bed_t *bed, exposed_t *exposed)
{
    if (bed->a != NULL) {
        ucp_rkey_destroy(exposed->rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, exposed->memh), "ucp_mem_unmap");
    }
    area_free(&exposed->area);
}

/* The owner waits outside of UCP until the initiator is done. */
static void hold(bed_t *bed)
{
    uint8_t done = 1;

    bed_transfer(bed, bed->a, &done, 1, &done, 1);
}

static ucs_status_ptr_t put(bed_t *bed, const area_t *mine, const exposed_t *exposed, size_t length)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    return ucp_put_nbx(bed->a->ep, mine->memory, length, exposed->remote, exposed->rkey, &none);
}

static ucs_status_ptr_t get(bed_t *bed, const area_t *mine, const exposed_t *exposed, size_t length)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    return ucp_get_nbx(bed->a->ep, mine->memory, length, exposed->remote, exposed->rkey, &none);
}

static ucs_status_t flush(bed_t *bed)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    return bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
}

static void mix(bed_t *bed, place_t theirs, place_t ours, size_t length)
{
    exposed_t exposed;
    area_t    mine = area_make(bed->a, ours, LENGTH), back = area_make(bed->a, ours, LENGTH);

    expose(bed, &exposed, theirs);
    area_fill(&mine, 0, LENGTH, 3);
    if (bed->a != NULL) {
        for (int i = 0; i < 2; i++) {
            area_set(&back, 0);
            unsigned long long copied = gpu_copies();
            ucs_status_t       wrote = bed_wait(bed, put(bed, &mine, &exposed, length)), flushed = flush(bed);
            ucs_status_t       read = bed_wait(bed, get(bed, &back, &exposed, length));
            copied = gpu_copies() - copied;
            want(bed->a, wrote == UCS_OK && flushed == UCS_OK && read == UCS_OK, "%s, %s, %zu: %s, %s, %s",
                 place_names[ours], place_names[theirs], length, status_name(wrote), status_name(flushed),
                 status_name(read));
            want(bed->a, area_check(&back, 0, length, 0, 3)[0] == 'g' && area_is(&back, length, LENGTH - length, 0),
                 "%s, %s, %zu: data", place_names[ours], place_names[theirs], length);
            want(bed->a, copied == 2, "%s, %s, %zu: copies %llu", place_names[ours], place_names[theirs], length,
                 copied);
        }
    }
    hold(bed);
    want(bed->b, area_check(&exposed.area, 0, length, 0, 3)[0] == 'g', "%s, %s, %zu: the owner's",
         place_names[ours], place_names[theirs], length);
    hide(bed, &exposed);
    area_free(&mine);
    area_free(&back);
}

/* A flush ends after copies that are late; a close does, too. */
static void late(bed_t *bed)
{
    exposed_t           exposed;
    ucp_request_param_t none = {.op_attr_mask = 0};
    area_t              mine = area_make(bed->a, GPU1, LENGTH);

    expose(bed, &exposed, GPU0);
    area_fill(&mine, 0, LENGTH, 4);
    if (bed->a != NULL) {
        for (int worker = 0; worker < 2; worker++) {
            gpu_fault("late_us=50000");
            ucs_status_ptr_t first  = put(bed, &mine, &exposed, LENGTH), second = put(bed, &mine, &exposed, 8);
            ucs_status_ptr_t ending = worker ? ucp_worker_flush_nbx(bed->a->worker, &none) :
                                               ucp_ep_flush_nbx(bed->a->ep, &none);
            int              early  = UCS_PTR_IS_PTR(first) && ucp_request_check_status(first) == UCS_INPROGRESS;
            want(bed->a, early && UCS_PTR_IS_PTR(ending), "late, %d: a request", worker);
            ucs_status_t flushed = bed_wait(bed, ending);
            want(bed->a, flushed == UCS_OK && ucp_request_check_status(first) == UCS_OK &&
                             ucp_request_check_status(second) == UCS_OK,
                 "late, %d: the flush ends after the puts, %s", worker, status_name(flushed));
            bed_wait(bed, first);
            bed_wait(bed, second);
            gpu_fault("late_us=0");
        }
    }
    hold(bed);
    want(bed->b, area_check(&exposed.area, 0, LENGTH, 0, 4)[0] == 'g', "late: the owner's");
    hide(bed, &exposed);
    area_free(&mine);
}

/* A copy that is late, a fence, an atomic operation by the owner, a fence, a copy: in this order. */
static void fenced(bed_t *bed)
{
    exposed_t           exposed;
    area_t              mine = area_make(bed->a, GPU1, LENGTH), back = area_make(bed->a, HOST, LENGTH);
    uint64_t            one = 1, result = 0;
    ucp_request_param_t with_reply = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype     = ucp_dt_make_contig(8),
        .reply_buffer = &result,
    };

    expose(bed, &exposed, GPU0);
    if (bed->a != NULL) {
        uint64_t start = 100;
        area_write(&mine, 0, &start, sizeof(start));
    }
    for (unsigned i = 0; i < 20; i++) {
        if (bed->a != NULL) {
            gpu_fault("late_us=5000");
            ucs_status_ptr_t wrote = put(bed, &mine, &exposed, 8);
            must(bed->a, ucp_worker_fence(bed->a->worker), "fence");
            ucs_status_ptr_t added = ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &one, 1, exposed.remote,
                                                       exposed.rkey, &with_reply);
            must(bed->a, ucp_worker_fence(bed->a->worker), "fence");
            ucs_status_ptr_t read = get(bed, &back, &exposed, 8);
            ucs_status_t     w = bed_wait(bed, wrote), a = bed_wait(bed, added), r = bed_wait(bed, read);
            uint64_t         value = 0;
            area_read(&back, 0, &value, sizeof(value));
            want(bed->a, w == UCS_OK && a == UCS_OK && r == UCS_OK && result == 100 && value == 101,
                 "fenced: %s, %s, %s, before %llu, after %llu", status_name(w), status_name(a), status_name(r),
                 (unsigned long long)result, (unsigned long long)value);
            gpu_fault("late_us=0");
        }
        bed_sync(bed);
    }
    hide(bed, &exposed);
    area_free(&mine);
    area_free(&back);
}

/* The key of memory that was freed, and allocated again: an access by it ends, and the new key works. */
static void stale(bed_t *bed, place_t place)
{
    exposed_t exposed, again;
    area_t    mine = area_make(bed->a, GPU1, LENGTH);

    area_fill(&mine, 0, LENGTH, 5);
    for (int used = 0; used < 2; used++) {
        expose(bed, &exposed, place);
        if (bed->a != NULL && used) {
            ucs_status_t wrote = bed_wait(bed, put(bed, &mine, &exposed, LENGTH));
            want(bed->a, wrote == UCS_OK && flush(bed) == UCS_OK, "before it is freed");
        }
        bed_sync(bed);
        if (bed->b != NULL) {
            must(bed->b, ucp_mem_unmap(bed->b->context, exposed.memh), "ucp_mem_unmap");
        }
        area_free(&exposed.area);
        expose(bed, &again, place);
        area_set(&again.area, 0x11);
        bed_sync(bed);
        if (bed->a != NULL) {
            ucs_status_t wrote = bed_wait(bed, put(bed, &mine, &exposed, 64));
            ucs_status_t flushed = flush(bed);
            want(bed->a, wrote != UCS_INPROGRESS && flushed != UCS_INPROGRESS, "with a stale key");
            wrote   = bed_wait(bed, put(bed, &mine, &again, 128));
            flushed = flush(bed);
            want(bed->a, wrote == UCS_OK && flushed == UCS_OK, "with the new one: %s, %s", status_name(wrote),
                 status_name(flushed));
        }
        bed_sync(bed);
        want(bed->b, area_check(&again.area, 0, 128, 0, 5)[0] == 'g' && area_is(&again.area, 128, LENGTH - 128, 0x11),
             "the new memory");
        if (bed->a != NULL) {
            ucp_rkey_destroy(exposed.rkey);
        }
        hide(bed, &again);
    }
    area_free(&mine);
}

static void failing(bed_t *bed)
{
    exposed_t exposed;
    area_t    mine = area_make(bed->a, GPU1, LENGTH);

    expose(bed, &exposed, GPU0);
    area_fill(&mine, 0, LENGTH, 6);
    if (bed->a != NULL) {
        logged("");
        gpu_fault("fail_nth=1,fail_code=2");
        ucs_status_t status = bed_wait(bed, put(bed, &mine, &exposed, LENGTH));
        gpu_fault("fail_nth=0");
        want(bed->a, status == UCS_ERR_IO_ERROR && logged("has failed") == 1, "a copy that fails: %s",
             status_name(status));
        flush(bed);
        status = bed_wait(bed, put(bed, &mine, &exposed, LENGTH));
        want(bed->a, status == UCS_OK && flush(bed) == UCS_OK, "the next one: %s", status_name(status));
    }
    hold(bed);
    want(bed->b, area_check(&exposed.area, 0, LENGTH, 0, 6)[0] == 'g', "the owner's");
    hide(bed, &exposed);
    area_free(&mine);
}

static void script(bed_t *bed)
{
    static const size_t lengths[] = {8, 4096, LENGTH};
    bed_params_t        params    = {.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64};

    gpu_open();
    bed_open(bed, &params);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (int theirs = GPU0; theirs <= GPU1; theirs++) {
            for (int ours = HOST; ours < PLACES; ours++) {
                mix(bed, (place_t)theirs, (place_t)ours, lengths[i]);
            }
        }
    }
    for (int theirs = MAPPED0; theirs < ALL_PLACES; theirs++) {
        for (int ours = HOST; ours < ALL_PLACES; ours++) {
            mix(bed, (place_t)theirs, (place_t)ours, LENGTH);
        }
    }
    late(bed);
    fenced(bed);
    stale(bed, GPU0);
    stale(bed, MAPPED0);
    stale(bed, POOL0);
    failing(bed);
    want(bed->a, gpu_calls("cuIpcOpenMemHandle_v2") > 0, "opened");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
