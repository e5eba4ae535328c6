/* Regions that overlap, nest and are registered twice: each is reached by its own key until it is unmapped. */
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH = 1 << 20, REGIONS = 6 };

/* In the window. The second and the third are one range, the fourth overlaps these, the fifth all before it. */
static const struct {
    size_t offset, length;
} places[REGIONS] = {{0, 8192}, {100, 4000}, {100, 4000}, {3000, 70000}, {0, 300000}, {LENGTH - 8, 8}};

typedef struct {
    ucp_mem_h  memh; /* at B */
    ucp_rkey_h rkey; /* at A */
} region_t;

static void region_open(bed_t *bed, const window_t *window, region_t *region, int i)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = window->memory + places[i].offset,
        .length     = places[i].length,
    };
    char key[PACKED_KEY_MAX];

    if (bed->b != NULL) {
        must(bed->b, ucp_mem_map(bed->b->context, &params, &region->memh), "ucp_mem_map");
    }
    window_carry_key(bed, region->memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &region->rkey), "ucp_ep_rkey_unpack");
    }
}

/* Puts all of a region, and gets it back. */
static void access_facts(bed_t *bed, const window_t *window, const region_t *region, int i, const char *when)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    size_t              length = places[i].length;
    uint64_t            remote = window->remote + places[i].offset;
    void               *data = data_make(length, (unsigned)i), *back = calloc(1, length);

    if (bed->a != NULL) {
        ucs_status_ptr_t put    = ucp_put_nbx(bed->a->ep, data, length, remote, region->rkey, &param);
        ucs_status_t     status = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        ucs_status_t     got;

        rule(bed->a, "M11", "%s, region %d: put %s, flush %s", when, i, status_name(bed_wait(bed, put)),
             status_name(status));
        got = bed_wait(bed, ucp_get_nbx(bed->a->ep, back, length, remote, region->rkey, &param));
        rule(bed->a, "M11", "%s, region %d: get %s, %s", when, i, status_name(got),
             data_check(back, length, (unsigned)i));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "M11", "%s, region %d: %s", when, i,
             data_check(window->memory + places[i].offset, length, (unsigned)i));
    }
    bed_sync(bed);
    free(data);
    free(back);
}

static void region_close(bed_t *bed, region_t *region)
{
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_rkey_destroy(region->rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, region->memh), "ucp_mem_unmap");
    }
}

static void window_script(bed_t *bed, window_kind_t kind)
{
    region_t regions[REGIONS] = {0};
    window_t window;

    window_open(bed, &window, kind, LENGTH);
    fact(bed->a, "-- %s", window_name(kind));
    fact(bed->b, "-- %s", window_name(kind));
    for (int i = 0; i < REGIONS; i++) {
        region_open(bed, &window, &regions[i], i);
    }
    for (int i = 0; i < REGIONS; i++) {
        access_facts(bed, &window, &regions[i], i, "all are there");
    }
    for (int unmapped = 0; unmapped < REGIONS; unmapped++) {
        region_close(bed, &regions[unmapped]);
        for (int i = unmapped + 1; i < REGIONS; i++) {
            access_facts(bed, &window, &regions[i], i, "some are unmapped");
        }
    }
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    windows_play(bed, UCP_FEATURE_RMA, window_script);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
