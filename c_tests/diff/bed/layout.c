/* Builds layouts, fills them, and compares them with the sent data. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

const char *const kind_names[] = {"bytes", "elements", "scattered", "own"};

/* Splits the memory into pieces of odd lengths, empty ones among them. */
static void layout_pieces(layout_t *layout)
{
    static const unsigned parts[] = {3, 0, 1, 7, 0, 2};
    size_t                at = 0, gap = 5, left = layout->length;

    for (int i = 0; i < 6; i++) {
        size_t length    = i == 5 ? left : left / 13 * parts[i];
        layout->pieces[i] = (ucp_dt_iov_t){.buffer = length == 0 ? NULL : layout->memory + at, .length = length};
        at += length + (length == 0 ? 0 : gap);
        left -= length;
    }
    layout->buffer = layout->pieces;
    layout->count  = 6;
    layout->type   = ucp_dt_make_iov();
}

void layout_make(layout_t *layout, kind_t kind, size_t length)
{
    memset(layout, 0, sizeof(*layout));
    layout->kind   = kind;
    layout->length = length;
    layout->span   = kind == GENERIC ? generic_span(length / ITEM_BYTES) : length + 64;
    layout->memory = malloc(layout->span + 1);
    layout->buffer = layout->memory;
    memset(layout->memory, 0x5a, layout->span);
    switch (kind) {
    case CONTIG:
        layout->type  = ucp_dt_make_contig(1);
        layout->count = length;
        break;
    case CONTIG_ELEMENTS:
        layout->type  = ucp_dt_make_contig(ITEM_BYTES);
        layout->count = length / ITEM_BYTES;
        break;
    case IOV:
        layout_pieces(layout);
        break;
    default:
        generic_create(&layout->generic);
        layout->type  = layout->generic.type;
        layout->count = length / ITEM_BYTES;
    }
}

void layout_free(layout_t *layout)
{
    if (layout->kind == GENERIC) {
        generic_destroy(&layout->generic);
    }
    free(layout->memory);
}

/* The address of packed byte `offset`, and how many bytes follow it without a gap. */
static uint8_t *layout_run(const layout_t *layout, size_t offset, size_t *run)
{
    if (layout->kind == GENERIC) {
        *run = ITEM_BYTES - offset % ITEM_BYTES;
        return layout->memory + offset / ITEM_BYTES * ITEM_STRIDE + offset % ITEM_BYTES;
    }
    for (int i = 0; layout->kind == IOV; i++) {
        if (offset < layout->pieces[i].length) {
            *run = layout->pieces[i].length - offset;
            return (uint8_t *)layout->pieces[i].buffer + offset;
        }
        offset -= layout->pieces[i].length;
    }
    *run = layout->length - offset;
    return layout->memory + offset;
}

/* Copies between the layout and plain bytes. */
static void layout_copy(const layout_t *layout, uint8_t *plain, int out)
{
    size_t run;

    for (size_t offset = 0; offset < layout->length; offset += run) {
        uint8_t *at = layout_run(layout, offset, &run);
        memcpy(out ? plain + offset : at, out ? at : plain + offset, run);
    }
}

void layout_fill(layout_t *layout, unsigned seed)
{
    uint8_t *plain = data_make(layout->length, seed);

    layout_copy(layout, plain, 0);
    free(plain);
}

const char *layout_check(layout_t *layout, size_t length, unsigned seed)
{
    uint8_t    *plain = malloc(layout->length + 1);
    const char *verdict;

    layout_copy(layout, plain, 1);
    verdict = data_check(plain, length, seed);
    memset(plain, 0x5a, layout->length);
    layout_copy(layout, plain, 0);
    if (!data_is(layout->memory, layout->span, 0x5a)) {
        verdict = "written between the pieces";
    }
    free(plain);
    return verdict;
}

void generic_fact(const side_t *side, const layout_t *layout)
{
    const generic_t *generic = &layout->generic;

    if (layout->kind == GENERIC) {
        fact(side, "  pack %u unpack %u sized %d finished %u, out of order %u, out of bounds %u, left %u",
             generic->starts_pack, generic->starts_unpack, generic->sizes > 0, generic->finishes, generic->out_of_order,
             generic->out_of_bounds, generic->states);
#if UCP_API_MINOR > 13 /* 1.13.1 unpacks empty messages */
        fact(side, "  empty %u", generic->empty_calls);
#endif
    }
}
