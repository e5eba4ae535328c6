/* The recording datatype: strided items, packed one after the other. */
#include "generic.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    generic_t *owner;
    uint8_t   *memory;
    size_t     length; /* packed */
    size_t     next;   /* where the last pack ended */
} state_t;

static state_t *start(generic_t *generic, const void *memory, size_t count)
{
    state_t *state = malloc(sizeof(*state));

    if (state == NULL) {
        abort();
    }
    *state = (state_t){.owner = generic, .memory = (uint8_t *)memory, .length = count * ITEM_BYTES};
    generic->states++;
    return state;
}

static void *start_pack(void *context, const void *buffer, size_t count)
{
    generic_t *generic = context;

    generic->starts_pack++;
    return start(generic, buffer, count);
}

static void *start_unpack(void *context, void *buffer, size_t count)
{
    generic_t *generic = context;

    generic->starts_unpack++;
    return start(generic, buffer, count);
}

static size_t packed_size(void *state_pointer)
{
    state_t *state = state_pointer;

    state->owner->sizes++;
    return state->length;
}

static uint8_t *item_byte(const state_t *state, size_t offset)
{
    return state->memory + offset / ITEM_BYTES * ITEM_STRIDE + offset % ITEM_BYTES;
}

static size_t pack(void *state_pointer, size_t offset, void *dest, size_t max_length)
{
    state_t   *state   = state_pointer;
    generic_t *generic = state->owner;
    size_t     length  = max_length;

    generic->empty_calls += max_length == 0;
    generic->out_of_bounds += offset > state->length;
    generic->out_of_order += offset != 0 && offset != state->next;
    if (generic->pack_at_most != 0 && length > generic->pack_at_most) {
        length = generic->pack_at_most;
    }
    if (length > state->length - offset) {
        length = state->length - offset;
    } else if (generic->whole_items) {
        generic->split_items += length < ITEM_BYTES; /* not even one item fits */
        length = length / ITEM_BYTES * ITEM_BYTES;
    }
    for (size_t i = 0; i < length; i++) {
        ((uint8_t *)dest)[i] = *item_byte(state, offset + i);
    }
    state->next = offset + length;
    generic->packed += length;
    return length;
}

static ucs_status_t unpack(void *state_pointer, size_t offset, const void *src, size_t length)
{
    state_t   *state   = state_pointer;
    generic_t *generic = state->owner;

    generic->empty_calls += length == 0;
    if (offset + length > state->length) {
        generic->out_of_bounds++;
        return UCS_ERR_OUT_OF_RANGE;
    }
    generic->split_items += generic->whole_items && (offset % ITEM_BYTES != 0 || length % ITEM_BYTES != 0);
    if (generic->fail_unpack_from != 0 && offset + length > generic->fail_unpack_from) {
        return UCS_ERR_IO_ERROR;
    }
    for (size_t i = 0; i < length; i++) {
        *item_byte(state, offset + i) = ((const uint8_t *)src)[i];
    }
    generic->unpacked += length;
    return UCS_OK;
}

static void finish(void *state_pointer)
{
    state_t *state = state_pointer;

    state->owner->finishes++;
    state->owner->states--;
    free(state);
}

void generic_create(generic_t *generic)
{
    static const ucp_generic_dt_ops_t ops = {
        .start_pack   = start_pack,
        .start_unpack = start_unpack,
        .packed_size  = packed_size,
        .pack         = pack,
        .unpack       = unpack,
        .finish       = finish,
    };

    memset(generic, 0, sizeof(*generic));
    if (ucp_dt_create_generic(&ops, generic, &generic->type) != UCS_OK) {
        abort();
    }
}

void generic_destroy(generic_t *generic)
{
    ucp_dt_destroy(generic->type);
}

size_t generic_span(size_t count)
{
    return count * ITEM_STRIDE;
}
