//! Scatter-gather lists: put and get of many short pieces, to memory that the library allocated and to any other.
//! Compiled against the headers of this project: Debian's are older than such lists.
#include "lists.h"
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 32, STEP = 7919 /* a prime number */, LEAST_MINOR = 22 };

static const char UNSUPPORTED[] = "# unsupported: lists";

struct list {
    size_t pieces;
    void **buffers;
    size_t *lengths;
    uint64_t *addresses;
    ucp_rkey_h *rkeys;
    ucp_dt_local_sgl_t local;
    ucp_dt_remote_sgl_t remote;
};

int has_lists(void)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    return major > 1 || minor >= LEAST_MINOR;
}

static void *array(size_t pieces, size_t size)
{
    void *memory = calloc(pieces, size);

    if (memory == NULL) {
        die("no memory for a list of %zu pieces", pieces);
    }
    return memory;
}

struct list *make_list(size_t pieces, size_t size, char *here, uint64_t there, ucp_rkey_h rkey)
{
    struct list *list = array(1, sizeof(*list));

    list->pieces = pieces;
    list->buffers = array(pieces, sizeof(*list->buffers));
    list->lengths = array(pieces, sizeof(*list->lengths));
    list->addresses = array(pieces, sizeof(*list->addresses));
    list->rkeys = array(pieces, sizeof(*list->rkeys));
    for (size_t i = 0; i < pieces; i++) {
        list->buffers[i] = here + i * PIECE_SPACE;
        list->lengths[i] = size;
        list->addresses[i] = there + i * STEP % pieces * PIECE_SPACE;
        list->rkeys[i] = rkey;
    }
    list->local = (ucp_dt_local_sgl_t){.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                       .buffers = list->buffers,
                                       .lengths = list->lengths};
    list->remote = (ucp_dt_remote_sgl_t){.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS |
                                                       UCP_DT_REMOTE_SGL_FIELD_LENGTHS |
                                                       UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                         .remote_addrs = list->addresses,
                                         .lengths = list->lengths,
                                         .rkeys = list->rkeys};
    return list;
}

void alternate_keys(struct list *list, uint64_t there, ucp_rkey_h rkey)
{
    for (size_t i = 1; i < list->pieces; i += 2) {
        list->addresses[i] += there - list->addresses[0];
        list->rkeys[i] = rkey;
    }
}

void free_list(struct list *list)
{
    free(list->buffers);
    free(list->lengths);
    free(list->addresses);
    free(list->rkeys);
    free(list);
}

static ucp_request_param_t parameters(const struct list *list)
{
    return (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE |
                                                 UCP_OP_ATTR_FIELD_REMOTE | UCP_OP_ATTR_FIELD_REMOTE_COUNT,
                                 .datatype = ucp_dt_make_sgl(),
                                 .remote_datatype = ucp_dt_make_sgl(),
                                 .remote = &list->remote,
                                 .remote_count = list->pieces};
}

ucs_status_ptr_t put_list(ucp_ep_h ep, const struct list *list)
{
    ucp_request_param_t param = parameters(list);

    return ucp_put_nbx(ep, &list->local, list->pieces, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
}

ucs_status_ptr_t get_list(ucp_ep_h ep, const struct list *list)
{
    ucp_request_param_t param = parameters(list);

    return ucp_get_nbx(ep, (void *)&list->local, list->pieces, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
}

/* ---- the workload: side 0 accesses; side 1 waits at the barrier, where it progresses ---- */

static struct list *measured;

static void put_flush(struct side *side, size_t size, long rounds)
{
    (void)size;
    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        wait_for(side, put_list(side->ep, measured), "put of a list");
        wait_for(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
    }
}

static void get_wait(struct side *side, size_t size, long rounds)
{
    (void)size;
    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        wait_for(side, get_list(side->ep, measured), "get of a list");
    }
}

/** What was put comes back. */
static void verify(struct side *side, size_t pieces)
{
    for (size_t i = 0; i < pieces; i++) {
        memset(side->buffer + i * PIECE_SPACE, (int)(i % 251), SIZE);
    }
    put_flush(side, SIZE, 1);
    memset(side->buffer, 0xff, pieces * PIECE_SPACE);
    get_wait(side, SIZE, 1);
    for (size_t i = 0; i < pieces && side->place.index == 0; i++) {
        unsigned char *piece = side->buffer + i * PIECE_SPACE;

        if (piece[0] != i % 251 || piece[SIZE - 1] != i % 251 || piece[SIZE] != 0xff) {
            die("piece %zu of %zu came back changed", i, pieces);
        }
    }
    meet_other(side);
}

static void report(struct side *side, const char *operation, const char *kind, size_t pieces, double seconds)
{
    char name[40];

    if (side->place.index == 0) {
        snprintf(name, sizeof(name), "lists_%s%s", operation, kind);
        figure(name, (long)pieces, seconds / (double)pieces * 1e9, "ns");
    }
}

static void measure_region(struct side *side, struct region *region, const char *kind)
{
    static const size_t numbers[] = {1000, 10000, 100000};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers) && !(side->effort->quick && i > 0); i++) {
        measured = make_list(numbers[i], SIZE, (char *)side->buffer, region->remote, region->rkey);
        verify(side, numbers[i]);
        report(side, "put", kind, numbers[i], seconds_per_round(side, put_flush, SIZE));
        report(side, "get", kind, numbers[i], seconds_per_round(side, get_wait, SIZE));
        free_list(measured);
    }
}

/** Whether the library accepts a list, which both sides see: UCX 1.22 has none within a host. */
static int is_supported(struct side *side)
{
    struct list *one = make_list(1, SIZE, (char *)side->buffer, side->allocated.remote, side->allocated.rkey);
    ucs_status_ptr_t request = put_list(side->ep, one);
    int supported = !UCS_PTR_IS_ERR(request) && end_of(side, request) == UCS_OK;

    free_list(one);
    return supported;
}

static void play_lists(struct place place, void *effort)
{
    struct side side;

    open_side(&side, place, effort, UCP_FEATURE_RMA);
    open_regions(&side);
    if (is_supported(&side)) {
        measure_region(&side, &side.allocated, "");
        measure_region(&side, &side.malloced, "_malloc");
    } else if (place.index == 0) {
        puts(UNSUPPORTED);
    }
    close_side(&side);
}

int run_lists(const struct effort *effort, int argc, char **argv)
{
    (void)argc, (void)argv;
    if (!has_lists()) {
        puts(UNSUPPORTED);
        return 0;
    }
    return start_pair(play_lists, (void *)effort);
}
