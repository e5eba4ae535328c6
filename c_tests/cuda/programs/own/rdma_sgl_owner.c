/*
 * Scatter-gather lists by adapters, of memory of a device that peers' adapters access: its owner executes nothing,
 * whether a piece is accessed in place or by way of host memory. Devices see what adapters have written after a flush.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_CUDA_UNORDERED=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "exposed.h"
#include "lists.h"

#include <stdlib.h>

#define MAX_PIECES 1100

typedef struct {
    place_t       near;
    int           count;
    size_t        length;
    list_access_t access;
    uint32_t      op_attr;
    const char   *name;
} case_t;

static const case_t cases[] = {
    {GPU0, 1, 64, LIST_GET, 0, "get of one short piece"},
    {GPU0, 3, 64, LIST_GET, 0, "get of short pieces"},
    {GPU0, MAX_PIECES, 8000, LIST_GET, 0, "get of more short pieces than a buffer holds"},
    {GPU0, 1, 100000, LIST_GET, 0, "get of one long piece"},
    {GPU0, 1, 64, LIST_PUT, UCP_OP_ATTR_FLAG_FAST_CMPL, "put of one short piece that is copied"},
    {GPU0, 3, 100000, LIST_PUT, UCP_OP_ATTR_FLAG_FAST_CMPL, "put of long pieces that are copied"},
    {GPU0, MAX_PIECES, 8000, LIST_PUT, UCP_OP_ATTR_FLAG_FAST_CMPL, "put of more than a buffer holds, copied"},
    {GPU0, 1, 64, LIST_PUT, 0, "put of one short piece"},
    {MANAGED, 1, 64, LIST_GET, 0, "get of one short piece of managed memory"},
    {MANAGED, 3, 100000, LIST_GET, 0, "get of long pieces of managed memory"},
    {MANAGED, 3, 100000, LIST_PUT, 0, "put of long pieces of managed memory"},
};

static ucs_status_t access_all(bed_t *bed, const case_t *c, const area_t *near, uint64_t remote, ucp_rkey_h rkey)
{
    static void      *buffers[MAX_PIECES];
    static size_t     lengths[MAX_PIECES];
    static uint64_t   addrs[MAX_PIECES];
    static ucp_rkey_h rkeys[MAX_PIECES];
    list_t            list = {.count = (size_t)c->count, .buffers = buffers, .lengths = lengths, .addrs = addrs,
                              .rkeys = rkeys, .op_attr = c->op_attr};

    for (int i = 0; i < c->count; i++) {
        buffers[i] = near->memory + (size_t)i * c->length;
        lengths[i] = c->length;
        addrs[i]   = remote + (size_t)i * c->length;
        rkeys[i]   = rkey;
    }
    return list_access(bed, &list, c->access);
}

static void case_of(bed_t *bed, const case_t *c, const exposed_t *exposed, ucp_rkey_h rkey)
{
    size_t             total  = (size_t)c->count * c->length;
    area_t             near   = area_make(bed->a, c->near, total);
    ucs_status_t       status = UCS_OK;
    const area_t      *from = c->access == LIST_GET ? &exposed->area : &near;
    const area_t      *to   = c->access == LIST_GET ? &near : &exposed->area;

    area_fill(from, 0, total, 7);
    area_set(to, 0x5a);
    bed_sync(bed);
    unsigned long long before = gpu_copies();
    bed_sync(bed);
    if (bed->a != NULL) {
        status = access_all(bed, c, &near, exposed->remote, rkey);
        want(bed->a, status == UCS_OK, "%s: %s", c->name, status_name(status));
    }
    bed_sync(bed);
    want(bed->b, gpu_copies() == before, "%s: copies at the owner %llu", c->name, gpu_copies() - before);
    if (to->memory != NULL) {
        want(bed->a != NULL ? bed->a : bed->b, area_check(to, 0, total, 0, 7)[0] == 'g', "%s: data", c->name);
    }
    bed_sync(bed);
    area_free(&near);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_RMA};
    exposed_t    exposed;
    ucp_rkey_h   rkey = NULL;

    gpu_open();
    bed_open(bed, &params);
    expose(bed, 0, GPU1, MAX_PIECES * 8000, &exposed);
    if (bed->a != NULL) {
        rkey = exposed_key(bed->a, bed->a->ep, &exposed);
    }
    /* The connection is made. */
    case_of(bed, &(case_t){HOST, 1, 64, LIST_PUT, 0, "put of the host's"}, &exposed, rkey);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        case_of(bed, &cases[i], &exposed, rkey);
    }
    if (rkey != NULL) {
        ucp_rkey_destroy(rkey);
    }
    hide(bed, 0, &exposed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
