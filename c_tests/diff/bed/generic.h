/*
 * A generic datatype: `count` items of 7 bytes, 10 bytes apart, whose packed form is each item in turn. Its
 * functions record their calls, so that a test can check the library's use of them.
 */
#ifndef GENERIC_H
#define GENERIC_H

#include <ucp/api/ucp.h>

#define ITEM_BYTES  7u
#define ITEM_STRIDE 10u

/* One datatype with its record. The two sides of one process must not share one. */
typedef struct {
    ucp_datatype_t type;
    unsigned       starts_pack, starts_unpack, sizes, finishes;
    size_t         packed, unpacked; /* bytes */
    unsigned       empty_calls;      /* calls with zero bytes */
    unsigned       out_of_order;     /* packs that neither continued the last one nor started anew */
    unsigned       out_of_bounds;
    unsigned       states; /* started and not finished */
    int            whole_items;      /* packs whole items only, as MPICH does, and can unpack only such pieces */
    unsigned       split_items;
    size_t         pack_at_most;     /* a pack function may pack less than requested; 0: all */
    size_t         fail_unpack_from; /* unpack fails at this offset and beyond; 0: never */
} generic_t;

void   generic_create(generic_t *generic);
void   generic_destroy(generic_t *generic);
size_t generic_span(size_t count); /* bytes of memory that `count` items occupy */

#endif
