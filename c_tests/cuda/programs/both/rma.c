/* Put and get between all kinds of memory, with exposed memory of the user and of ucp_mem_map(). */
#include "gpu.h"

#include "window.h"

#define WITHIN 128 /* bytes in front of the accessed ones and behind them, which must not change */

static const size_t lengths[] = {8, 4096, 100000, 5 << 20};
#define LONGEST (5 << 20)

typedef struct {
    area_t     area; /* B's */
    ucp_mem_h  memh;
    uint64_t   remote;
    ucp_rkey_h rkey;
} exposed_t;

static void expose(bed_t *bed, exposed_t *exposed, place_t place, int allocate)
{
    char                 key[PACKED_KEY_MAX];
    ucp_mem_map_params_t params = {
        .field_mask  = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length      = LONGEST + 2 * WITHIN,
        .flags       = allocate ? UCP_MEM_MAP_ALLOCATE : 0,
        .memory_type = area_type(place),
    };

    exposed->area = area_make(allocate ? NULL : bed->b, place, params.length);
    exposed->memh = NULL;
    if (bed->b != NULL) {
        ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH |
                                             UCP_MEM_ATTR_FIELD_MEM_TYPE};
        params.address      = exposed->area.memory;
        params.field_mask  |= allocate ? UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE : 0;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &exposed->memh), "ucp_mem_map");
        must(bed->b, ucp_mem_query(exposed->memh, &attr), "ucp_mem_query");
        fact(bed->b, "%s%s: type %d, length %d, address %d", place_names[place], allocate ? ", allocated" : "",
             (int)attr.mem_type, attr.length >= params.length,
             allocate ? attr.address != NULL : attr.address == exposed->area.memory);
        if (allocate) {
            exposed->area.memory = attr.address;
        }
        exposed->remote = (uint64_t)(uintptr_t)attr.address;
    }
    bed_transfer(bed, bed->b, &exposed->remote, sizeof(exposed->remote), &exposed->remote, sizeof(exposed->remote));
    window_carry_key(bed, exposed->memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &exposed->rkey), "ucp_ep_rkey_unpack");
    }
    bed_sync(bed);
}

static void hide(bed_t *bed, exposed_t *exposed, int allocated)
{
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_rkey_destroy(exposed->rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        fact(bed->b, "unmap: %s", status_name(ucp_mem_unmap(bed->b->context, exposed->memh)));
        if (!allocated) {
            area_free(&exposed->area);
        }
    }
}

static ucs_status_t flush(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
}

static void put(bed_t *bed, exposed_t *exposed, place_t from, size_t length, int hint)
{
    area_t              source = area_make(bed->a, from, length);
    ucp_request_param_t param  = {.op_attr_mask = hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0,
                                  .memory_type  = area_type(from)};
    unsigned            seed   = (unsigned)length + from;

    area_fill(&source, 0, length, seed);
    area_set(&exposed->area, 0x5a);
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(
            bed, ucp_put_nbx(bed->a->ep, source.memory, length, exposed->remote + WITHIN, exposed->rkey, &param));
        fact(bed->a, "put %zu, %s to %s: %s, flush %s", length, place_names[from], place_names[exposed->area.place],
             status_name(status), status_name(flush(bed)));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        fact(bed->b, "put %zu, %s to %s: %s, around it %d", length, place_names[from],
             place_names[exposed->area.place], area_check(&exposed->area, WITHIN, length, 0, seed),
             area_is(&exposed->area, 0, WITHIN, 0x5a) && area_is(&exposed->area, WITHIN + length, WITHIN, 0x5a));
    }
    area_free(&source);
}

static void get(bed_t *bed, exposed_t *exposed, place_t to, size_t length, int hint)
{
    area_t              target = area_make(bed->a, to, length + WITHIN);
    ucp_request_param_t param  = {.op_attr_mask = hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0,
                                  .memory_type  = area_type(to)};
    unsigned            seed   = (unsigned)length + 9 * to;

    area_fill(&exposed->area, WITHIN, length, seed);
    area_set(&target, 0x5a);
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(
            bed, ucp_get_nbx(bed->a->ep, target.memory, length, exposed->remote + WITHIN, exposed->rkey, &param));
        fact(bed->a, "get %zu, %s from %s: %s, %s, behind it %d", length, place_names[to],
             place_names[exposed->area.place], status_name(status), area_check(&target, 0, length, 0, seed),
             area_is(&target, length, WITHIN, 0x5a));
    }
    bed_sync(bed);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_RMA};
    exposed_t    exposed;

    gpu_open();
    bed_open(bed, &params);
    for (int allocate = 0; allocate < 2; allocate++) {
        for (int at = HOST; at < PLACES; at++) {
            if (allocate && at == GPU1) {
                continue; /* which device is not said */
            }
            expose(bed, &exposed, (place_t)at, allocate);
            for (int other = HOST; other < PLACES; other++) {
                for (int i = 0; i < (allocate ? 2 : 4); i++) {
                    put(bed, &exposed, (place_t)other, lengths[i], i & 1);
                    get(bed, &exposed, (place_t)other, lengths[i], i & 1);
                }
            }
            hide(bed, &exposed, allocate);
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
