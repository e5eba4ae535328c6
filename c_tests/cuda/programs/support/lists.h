/* Puts and gets of scatter-gather lists, of one entry for each piece. */
#ifndef LISTS_H
#define LISTS_H

#include "gpu.h"

typedef struct {
    size_t           count; /* pieces */
    void           **buffers;
    size_t          *lengths;
    ucp_mem_h       *memhs;   /* NULL: none */
    size_t          *counts;  /* blocks of each piece; NULL: one */
    size_t          *strides; /* from block to block */
    uint64_t        *addrs;
    ucp_rkey_h      *rkeys;
    uint32_t         op_attr; /* flags of ucp_op_attr_t */
} list_t;

typedef enum { LIST_GET, LIST_PUT } list_access_t;

/* A begins to put or get the pieces. The arrays of the list are not needed afterwards. */
ucs_status_ptr_t list_begin(bed_t *bed, const list_t *list, list_access_t access);
/* A puts or gets the pieces, and flushes: the first failure of both. */
ucs_status_t list_access(bed_t *bed, const list_t *list, list_access_t access);

#endif
