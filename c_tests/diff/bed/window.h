/* A window: memory that B exposes and A reaches with puts, gets and atomics. */
#ifndef WINDOW_H
#define WINDOW_H

#include "bed.h"

typedef enum { WINDOW_ALLOCATED, WINDOW_MALLOCED } window_kind_t; /* by ucp_mem_map(), or by the user */

typedef struct {
    window_kind_t kind;
    size_t        length;
    uint8_t      *memory; /* B's own pointer; NULL where B is elsewhere */
    ucp_mem_h     memh;
    uint64_t      remote; /* A's view: the address at B, and the key for it */
    ucp_rkey_h    rkey;
    void         *user_memory;
} window_t;

const char *window_name(window_kind_t kind);
void        window_open(bed_t *bed, window_t *window, window_kind_t kind, size_t length);
void        window_close(bed_t *bed, window_t *window);

#endif
