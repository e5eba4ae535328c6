/*
 * Memory that is unmapped and mapped again at the same address under traffic: the registration for a message must not
 * be used for the next one. Every way in which pages change at an address, at the sender, at the receiver and for puts
 * and gets.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef FEW
#define SIZE   ((size_t)256 << 10)
#define ROUNDS 3
#else
#define SIZE   ((size_t)1 << 20)
#define ROUNDS 24
#endif
#define TAG 7

typedef enum { UNMAPPED, REPLACED, DISCARDED, FREED, MOVED, WAYS } way_t;
static const char *const names[WAYS] = {"munmap, mmap", "mmap over it", "MADV_DONTNEED", "free, malloc", "mremap away"};

static char *map_at(const side_t *side, void *at)
{
    int   flags = MAP_PRIVATE | MAP_ANONYMOUS | (at == NULL ? 0 : MAP_FIXED);
    char *pages = mmap(at, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);

    must(side, pages == MAP_FAILED ? UCS_ERR_NO_MEMORY : UCS_OK, "mmap");
    return pages;
}

static char *first(const side_t *side, way_t way)
{
    return way == FREED ? malloc(SIZE) : map_at(side, NULL);
}

/* New pages, at the same address where the call ensures that. */
static char *other_pages(const side_t *side, way_t way, char *pages)
{
    switch (way) {
    case UNMAPPED:
        munmap(pages, SIZE);
        return map_at(side, pages);
    case REPLACED:
        return map_at(side, pages);
    case DISCARDED:
        madvise(pages, SIZE, MADV_DONTNEED);
        return pages;
    case FREED:
        free(pages);
        return malloc(SIZE);
    case MOVED: {
        char *away = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        munmap(mremap(pages, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, away), SIZE);
        return map_at(side, pages);
    }
    default:
        abort();
    }
}

static void last(way_t way, char *pages)
{
    if (way == FREED) {
        free(pages);
    } else {
        munmap(pages, SIZE);
    }
}

static void messages(bed_t *bed, way_t way, int sender_too)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    char               *out = NULL, *in = NULL;
    int                 good = 0;

    if (bed->a != NULL) {
        out = first(bed->a, way);
    }
    if (bed->b != NULL) {
        in = first(bed->b, way);
    }
    for (int i = 0; i < ROUNDS; i++) {
        ucs_status_ptr_t sent = NULL, received = NULL;

        if (bed->b != NULL) {
            in = other_pages(bed->b, way, in);
            received = ucp_tag_recv_nbx(bed->b->worker, in, SIZE, TAG, -1, &none);
        }
        if (bed->a != NULL) {
            out = sender_too ? other_pages(bed->a, way, out) : out;
            data_fill(out, SIZE, (unsigned)i);
            sent = ucp_tag_send_nbx(bed->a->ep, out, SIZE, TAG, &none);
        }
        if (bed->b != NULL && bed_wait(bed, received) == UCS_OK) {
            good += strcmp(data_check(in, SIZE, (unsigned)i), "good") == 0;
        }
        if (bed->a != NULL) {
            must(bed->a, bed_wait(bed, sent), "send");
        }
    }
    if (bed->b != NULL) {
        fact(bed->b, "%s%s: %d of %d good", names[way], sender_too ? ", both ends" : "", good, ROUNDS);
        last(way, in);
    }
    if (bed->a != NULL) {
        last(way, out);
    }
    bed_sync(bed);
}

/* Constants, in read-only pages. */
static void read_only(bed_t *bed)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent = NULL, received = NULL;
    char               *out = NULL, *in = NULL;

    if (bed->b != NULL) {
        in       = map_at(bed->b, NULL);
        received = ucp_tag_recv_nbx(bed->b->worker, in, SIZE, TAG, -1, &none);
    }
    if (bed->a != NULL) {
        out = map_at(bed->a, NULL);
        data_fill(out, SIZE, 99);
        mprotect(out, SIZE, PROT_READ);
        sent = ucp_tag_send_nbx(bed->a->ep, out, SIZE, TAG, &none);
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);

        fact(bed->b, "read-only: %s, %s", status_name(status), data_check(in, SIZE, 99));
        munmap(in, SIZE);
    }
    if (bed->a != NULL) {
        fact(bed->a, "read-only: %s", status_name(bed_wait(bed, sent)));
        munmap(out, SIZE);
    }
    bed_sync(bed);
}

/* A puts from, and gets into, pages that change; B's stay. */
static void accesses(bed_t *bed, way_t way)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    char                packed[PACKED_KEY_MAX], *window = NULL;
    ucp_mem_h           memh = NULL;
    uint64_t            at = 0;

    if (bed->b != NULL) {
        ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH};

        params.address = window = map_at(bed->b, NULL);
        params.length  = SIZE;
        at             = (uintptr_t)window;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &memh), "map");
    }
    window_carry_key(bed, memh, packed);
    bed_transfer(bed, bed->b, &at, sizeof(at), &at, sizeof(at));
    if (bed->a != NULL) {
        ucp_rkey_h rkey;
        char      *own  = first(bed->a, way);
        int        good = 0;

        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, packed, &rkey), "unpack");
        for (int i = 0; i < ROUNDS; i++) {
            own = other_pages(bed->a, way, own);
            data_fill(own, SIZE, (unsigned)i);
            must(bed->a, bed_wait(bed, ucp_put_nbx(bed->a->ep, own, SIZE, at, rkey, &none)), "put");
            must(bed->a, bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none)), "flush");
            own = other_pages(bed->a, way, own);
            must(bed->a, bed_wait(bed, ucp_get_nbx(bed->a->ep, own, SIZE, at, rkey, &none)), "get");
            good += strcmp(data_check(own, SIZE, (unsigned)i), "good") == 0;
        }
        fact(bed->a, "%s, put and get: %d of %d good", names[way], good, ROUNDS);
        last(way, own);
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "unmap");
        munmap(window, SIZE);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};

    bed_open(bed, &params);
    for (way_t way = 0; way < WAYS; way++) {
        messages(bed, way, 0);
        messages(bed, way, 1);
        accesses(bed, way);
    }
    read_only(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
