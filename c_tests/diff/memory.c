/* Memory: the ways to map it, its attributes, keys packed and unpacked, pointers through keys. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LENGTH 100000

static void refused_fact(side_t *side, const char *what, const ucp_mem_map_params_t *params)
{
    ucp_mem_h memh;

    rule(side, "M1", "map %s: refused %d", what, ucp_mem_map(side->context, params, &memh) != UCS_OK);
}

static ucp_mem_h map_fact(side_t *side, const char *what, const ucp_mem_map_params_t *params)
{
    ucp_mem_h memh = NULL;

    ucs_status_t status = ucp_mem_map(side->context, params, &memh);
    rule(side, "M1", "map %s: %s", what, status_name(status));
    return status == UCS_OK ? memh : NULL;
}

static ucp_mem_attr_t query_fact(side_t *side, ucp_mem_h memh)
{
    ucp_mem_attr_t attr = {
        .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH | UCP_MEM_ATTR_FIELD_MEM_TYPE};

    fact(side, "  query: %s", status_name(ucp_mem_query(memh, &attr)));
    return attr;
}

static void unmap_fact(side_t *side, ucp_mem_h memh)
{
    fact(side, "  unmap: %s", status_name(ucp_mem_unmap(side->context, memh)));
}

static void allocated_facts(side_t *side)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = LENGTH,
        .flags      = UCP_MEM_MAP_ALLOCATE,
    };

    ucp_mem_h      memh = map_fact(side, "allocated", &params);
    ucp_mem_attr_t attr = query_fact(side, memh);
    memset(attr.address, 1, LENGTH);
    rule(side, "M2", "  length at least ours %d, whole pages %d, host %d",
         attr.length >= LENGTH, attr.length % 4096 == 0,
         attr.mem_type == UCS_MEMORY_TYPE_HOST);
    unmap_fact(side, memh);

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    unmap_fact(side, map_fact(side, "allocated, no address field", &params));
    params.flags |= UCP_MEM_MAP_NONBLOCK;
    unmap_fact(side, map_fact(side, "allocated, not blocking", &params));

    void *place       = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    params.address    = place;
    params.length     = 1 << 20;
    params.flags      = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    munmap(place, 1 << 20);
    memh = map_fact(side, "allocated, at our place", &params);
    attr = query_fact(side, memh);
    rule(side, "M2", "  at our place %d", attr.address == place);
    memset(attr.address, 2, 1 << 20);
    unmap_fact(side, memh);
}

static void user_memory_facts(side_t *side)
{
    uint8_t             *memory = malloc(LENGTH);
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = memory + 1,
        .length     = LENGTH - 2,
    };

    ucp_mem_h      memh = map_fact(side, "ours", &params);
    ucp_mem_attr_t attr = query_fact(side, memh);
    uintptr_t      end  = (uintptr_t)attr.address + attr.length;
    rule(side, "M2", "  covers ours %d, host %d",
         (uint8_t *)attr.address <= memory + 1 && end >= (uintptr_t)memory + LENGTH - 1,
         attr.mem_type == UCS_MEMORY_TYPE_HOST);
    ucp_mem_h again = map_fact(side, "ours again", &params);
    unmap_fact(side, again);
    unmap_fact(side, memh);

    params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_FLAGS | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE |
                         UCP_MEM_MAP_PARAM_FIELD_PROT;
    params.flags       = UCP_MEM_MAP_NONBLOCK;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.prot        = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE | UCP_MEM_MAP_PROT_REMOTE_READ |
                  UCP_MEM_MAP_PROT_REMOTE_WRITE;
    unmap_fact(side, map_fact(side, "ours with everything said", &params));
    free(memory);
}

static void refused_facts(side_t *side)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS, .address = &params};

    map_fact(side, "without length", &params);
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.length     = LENGTH;
    map_fact(side, "without address", &params);
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.flags      = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    refused_fact(side, "fixed without address", &params); /* UCX has no memory there; rucp returns the reason */
    params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
    params.address     = (void *)0x7f0000000123;
    map_fact(side, "fixed off a page's beginning", &params);
    params.flags = UCP_MEM_MAP_FIXED;
    map_fact(side, "fixed without allocation", &params);
}

/* Length 0: a handle and a key that address nothing, but can be passed around like others. */
static void empty_facts(bed_t *bed)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH};
    ucp_mem_h            memh   = NULL;
    void                *packed = NULL;
    size_t               length = 0;
    char                 key[4096];

    if (bed->b != NULL) {
        memh = map_fact(bed->b, "nothing", &params);
        rule(bed->b, "M4", "  pack: %s", status_name(ucp_rkey_pack(bed->b->context, memh, &packed, &length)));
    }
    bed_transfer(bed, bed->b, packed, length, key, sizeof(key));
    if (bed->b != NULL) {
        ucp_rkey_buffer_release(packed);
        unmap_fact(bed->b, memh);
    }
    if (bed->a != NULL) {
        ucp_rkey_h rkey = NULL;
        rule(bed->a, "M4", "unpack of nothing: %s", status_name(ucp_ep_rkey_unpack(bed->a->ep, key, &rkey)));
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
}

/* Over TCP there is no such pointer, and messages replace it: the facts are those of the pointer. */
static void far_facts(bed_t *bed, window_t *window)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_ep_h            ep    = bed->a->ep;
    void               *copy  = calloc(1, LENGTH), *pointer;

    ucs_status_t status = ucp_rkey_ptr(window->rkey, window->remote + 1000, &pointer);
    if (status != UCS_ERR_UNREACHABLE) {
        fact(bed->a, "ucp_rkey_ptr over sockets: %s", status_name(status));
    }
    bed_wait(bed, ucp_get_nbx(ep, copy, LENGTH - 1000, window->remote + 1000, window->rkey, &param));
    rule(bed->a, "M5", "seen through it: %s", data_check_at(copy, 1000, LENGTH - 1000, 21));
    data_fill(copy, 500, 22);
    bed_wait(bed, ucp_put_nbx(ep, copy, 500, window->remote + 1000, window->rkey, &param));
    bed_wait(bed, ucp_ep_flush_nbx(ep, &param));
    free(copy);
}

/* Through a pointer into allocated memory both sides see what the other writes. */
static void pointer_facts(bed_t *bed)
{
    window_t window;
    void    *pointer = NULL;

    window_open(bed, &window, WINDOW_ALLOCATED, LENGTH);
    if (bed->b != NULL) {
        data_fill(window.memory, LENGTH, 21);
    }
    bed_sync(bed);
    if (bed->a != NULL && over_sockets()) {
        far_facts(bed, &window);
    } else if (bed->a != NULL) {
        must(bed->a, ucp_rkey_ptr(window.rkey, window.remote + 1000, &pointer), "ucp_rkey_ptr");
        rule(bed->a, "M5", "seen through it: %s", data_check_at(pointer, 1000, LENGTH - 1000, 21));
        data_fill(pointer, 500, 22);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "M5", "written through it: %s", data_check(window.memory + 1000, 500, 22));
    }
    window_close(bed, &window);
}

/* Memory allocated by the user cannot be mapped by another process. */
static void no_pointer_facts(bed_t *bed)
{
    window_t window;
    void    *pointer = NULL;

    window_open(bed, &window, WINDOW_MALLOCED, LENGTH);
    if (bed->a != NULL && bed->topology == TOPOLOGY_FORK) {
        rule(bed->a, "M5", "rkey_ptr into user memory: %s",
             status_name(ucp_rkey_ptr(window.rkey, window.remote, &pointer)));
    }
    window_close(bed, &window);
}

static void advise_facts(side_t *side)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = LENGTH,
        .flags      = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_h               memh   = map_fact(side, "to advise", &params);
    ucp_mem_attr_t          attr   = query_fact(side, memh);
    ucp_mem_advise_params_t advice = {
        .field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                      UCP_MEM_ADVISE_PARAM_FIELD_ADVICE,
        .address    = (char *)attr.address + 4096,
        .length     = 8192,
        .advice     = UCP_MADV_NORMAL,
    };

    rule(side, "M7", "  advise: %s", status_name(ucp_mem_advise(side->context, memh, &advice)));
    advice.advice = (ucp_mem_advice_t)(UCP_MADV_WILLNEED + 1);
    rule(side, "M7", "  unknown advice: %s", status_name(ucp_mem_advise(side->context, memh, &advice)));
    advice.advice = UCP_MADV_NORMAL;
    advice.length = attr.length + 1;
    rule(side, "M7", "  advise too much: %s", status_name(ucp_mem_advise(side->context, memh, &advice)));
    advice.field_mask = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS | UCP_MEM_ADVISE_PARAM_FIELD_LENGTH;
    rule(side, "M7", "  advise nothing: %s", status_name(ucp_mem_advise(side->context, memh, &advice)));
    unmap_fact(side, memh);
}

#if UCP_API_MINOR >= 16
static void compare_facts(bed_t *bed)
{
    window_t                  one, two;
    ucp_rkey_compare_params_t params = {.field_mask = 0};
    int                       same = 9, forth = 9, back = 9;

    window_open(bed, &one, WINDOW_ALLOCATED, LENGTH);
    window_open(bed, &two, WINDOW_ALLOCATED, LENGTH);
    if (bed->a != NULL) {
        rule(bed->a, "M6", "compare: %s",
             status_name(ucp_rkey_compare(bed->a->worker, one.rkey, one.rkey, &params, &same)));
        ucp_rkey_compare(bed->a->worker, one.rkey, two.rkey, &params, &forth);
        ucp_rkey_compare(bed->a->worker, two.rkey, one.rkey, &params, &back);
        rule(bed->a, "M6", "same %d, opposite signs %d", same, forth * back < 0 || (forth == 0 && back == 0));
    }
    window_close(bed, &two);
    window_close(bed, &one);
}
#endif

/* A handle given along with the buffer of a send: only a hint. */
static void hinted_facts(bed_t *bed)
{
    window_t            from;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    received = NULL;
    void               *got = malloc(LENGTH);

    window_open(bed, &from, WINDOW_ALLOCATED, LENGTH);
    if (bed->a != NULL) {
        received = ucp_tag_recv_nbx(bed->a->worker, got, LENGTH, 1, -1, &param);
    }
    if (bed->b != NULL) {
        data_fill(from.memory, LENGTH, 8);
        param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
        param.memh         = from.memh;
        param.memory_type  = UCS_MEMORY_TYPE_HOST;
        rule(bed->b, "M9", "send of mapped memory: %s",
             status_name(bed_wait(bed, ucp_tag_send_nbx(bed->b->ep, from.memory, LENGTH, 1, &param))));
    }
    if (bed->a != NULL) {
        rule(bed->a, "M9", "receive of mapped memory: %s", status_name(bed_wait(bed, received)));
        rule(bed->a, "M9", "data %s", data_check(got, LENGTH, 8));
    }
    window_close(bed, &from);
    free(got);
}

static void script(bed_t *bed)
{
    bed_params_t params  = {.features = UCP_FEATURE_RMA | UCP_FEATURE_TAG};
    side_t      *sides[] = {bed->a, bed->b};

    bed_open(bed, &params);
    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            allocated_facts(sides[i]);
            user_memory_facts(sides[i]);
            refused_facts(sides[i]);
            advise_facts(sides[i]);
        }
    }
    bed_sync(bed);
    empty_facts(bed);
    pointer_facts(bed);
    no_pointer_facts(bed);
#if UCP_API_MINOR >= 16
    compare_facts(bed);
#endif
    hinted_facts(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
