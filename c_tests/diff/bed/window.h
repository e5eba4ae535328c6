/* A window: memory that B exposes and A reaches with puts, gets and atomics. */
#ifndef WINDOW_H
#define WINDOW_H

#include "bed.h"

typedef enum {
    WINDOW_ALLOCATED, /* by ucp_mem_map() */
    WINDOW_MALLOCED,  /* by the user */
    WINDOW_RESERVED   /* by ucp_mem_map(), at an address that the user reserves by a mapping without access */
} window_kind_t;

typedef struct {
    window_kind_t kind;
    size_t        length;
    uint8_t      *memory; /* B's own pointer; NULL where B is in the other process */
    ucp_mem_h     memh;
    uint64_t      remote; /* at A: the address at B, and the key for it */
    ucp_rkey_h    rkey;
    void         *user_memory; /* a reservation: three lengths, the window in the middle, WINDOW_AROUND beside it */
    int           zero;        /* B: the memory was zero when it was mapped */
} window_t;

#define WINDOW_AROUND 7

const char *window_name(window_kind_t kind);
void        window_open(bed_t *bed, window_t *window, window_kind_t kind, size_t length);
void        window_close(bed_t *bed, window_t *window);

/* Packs the key of B's memory and sends it to A. */
enum { PACKED_KEY_MAX = 4096 };
void window_carry_key(bed_t *bed, ucp_mem_h memh, char key[PACKED_KEY_MAX]);

/*
 * Opens the bed, runs the script with a window allocated by UCP and with one allocated by the user, and closes the bed.
 */
void windows_play(bed_t *bed, uint64_t features, void (*script)(bed_t *, window_kind_t));

#endif
