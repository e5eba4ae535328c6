/* Opens and closes windows: maps at B, sends address and packed key to A, unpacks there. */
#include "window.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

const char *window_name(window_kind_t kind)
{
    return kind == WINDOW_ALLOCATED ? "allocated" : kind == WINDOW_MALLOCED ? "malloced" : "reserved";
}

/* Reserves addresses for the window: pages without access between others. */
static void *window_reserve(window_t *window)
{
    size_t length = window->length;

    window->user_memory = mmap(NULL, 3 * length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(window->user_memory, WINDOW_AROUND, 3 * length);
    mprotect((char *)window->user_memory + length, length, PROT_NONE);
    return (char *)window->user_memory + length;
}

static void window_map(side_t *side, window_t *window)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = window->length,
        .flags      = window->kind == WINDOW_ALLOCATED ? UCP_MEM_MAP_ALLOCATE : 0,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    if (window->kind == WINDOW_MALLOCED) {
        params.address = window->user_memory = malloc(window->length);
    }
    if (window->kind == WINDOW_RESERVED) {
        params.address = window_reserve(window);
        params.flags   = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED;
    }
    must(side, ucp_mem_map(side->context, &params, &window->memh), "ucp_mem_map");
    must(side, ucp_mem_query(window->memh, &attr), "ucp_mem_query");
    window->memory = attr.address;
    window->zero   = window->kind != WINDOW_MALLOCED && data_is(window->memory, window->length, 0);
    memset(window->memory, 0, window->length);
}

void window_carry_key(bed_t *bed, ucp_mem_h memh, char key[PACKED_KEY_MAX])
{
    void  *packed = NULL;
    size_t length = 0;

    if (bed->b != NULL) {
        must(bed->b, ucp_rkey_pack(bed->b->context, memh, &packed, &length), "ucp_rkey_pack");
    }
    bed_transfer(bed, bed->b, packed, length, key, PACKED_KEY_MAX);
    if (bed->b != NULL) {
        ucp_rkey_buffer_release(packed);
    }
}

void window_open(bed_t *bed, window_t *window, window_kind_t kind, size_t length)
{
    char key[PACKED_KEY_MAX];

    memset(window, 0, sizeof(*window));
    window->kind   = kind;
    window->length = length;
    if (bed->b != NULL) {
        window_map(bed->b, window);
        window->remote = (uint64_t)(uintptr_t)window->memory;
    }
    bed_transfer(bed, bed->b, &window->remote, sizeof(window->remote), &window->remote, sizeof(window->remote));
    window_carry_key(bed, window->memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &window->rkey), "ucp_ep_rkey_unpack");
    }
    bed_sync(bed);
}

void window_close(bed_t *bed, window_t *window)
{
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_rkey_destroy(window->rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, window->memh), "ucp_mem_unmap");
    }
    if (window->kind == WINDOW_RESERVED && window->user_memory != NULL) {
        munmap(window->user_memory, 3 * window->length);
    } else {
        free(window->user_memory);
    }
}

void windows_play(bed_t *bed, uint64_t features, void (*script)(bed_t *, window_kind_t))
{
    bed_params_t params = {.features = features};

    bed_open(bed, &params);
    script(bed, WINDOW_ALLOCATED);
    script(bed, WINDOW_MALLOCED);
    bed_close(bed);
}
