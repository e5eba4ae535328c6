/* Registered memory of one side, to be accessed by the other one. */
#ifndef EXPOSED_H
#define EXPOSED_H

#include "gpu.h"
#include "window.h"

typedef struct {
    area_t    area; /* the owner's */
    ucp_mem_h memh; /* the owner's; NULL: not registered any more */
    uint64_t  remote;
    char      key[PACKED_KEY_MAX]; /* packed, at both sides */
} exposed_t;

/* Registers new memory of A (`is_a`) or of B. */
void expose(bed_t *bed, int is_a, place_t place, size_t length, exposed_t *exposed);
/* The key of exposed memory for an endpoint of `side`. */
ucp_rkey_h exposed_key(const side_t *side, ucp_ep_h ep, const exposed_t *exposed);
/* Ends the registration and frees the memory, if that was not done. */
void hide(bed_t *bed, int is_a, exposed_t *exposed);

#endif
