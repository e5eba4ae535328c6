/* Bytes laid out in memory as each kind of datatype describes them, to be sent from and received into. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "bed.h"
#include "generic.h"

typedef enum { CONTIG, CONTIG_ELEMENTS, IOV, GENERIC, KINDS } kind_t;

/* `length` bytes laid out in memory for one kind of datatype. */
typedef struct {
    kind_t         kind;
    size_t         length; /* packed; a multiple of ITEM_BYTES */
    ucp_datatype_t type;
    void          *buffer; /* arguments of the send or receive call */
    size_t         count;
    uint8_t       *memory;
    size_t         span;
    ucp_dt_iov_t   pieces[8];
    generic_t      generic;
} layout_t;

extern const char *const kind_names[];

void layout_make(layout_t *layout, kind_t kind, size_t length);
void layout_free(layout_t *layout);
void layout_fill(layout_t *layout, unsigned seed);
/* Whether the first `length` bytes are right, and the gaps between the pieces were not written. */
const char *layout_check(layout_t *layout, size_t length, unsigned seed);
/* The library's calls of the generic datatype, if the layout is one. */
void generic_fact(const side_t *side, const layout_t *layout);

#endif
