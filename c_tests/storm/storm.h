/* Shared by the supervisor and the processes of a storm. */
#ifndef STORM_H
#define STORM_H

#include "../resources.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_SLOTS = 16, SURVIVORS = 2, BLOB = 4096, MAX_GENERATIONS = 1 << 16, SAMPLES = 3 };

/* A slot: a process of the storm and its successors. A generation is 0 before the first one. */
typedef struct {
    /* Of the process with this address, which is complete when it is stored. */
    atomic_uint   generation;
    size_t        address_length, key_length;
    unsigned char address[BLOB], key[BLOB];
    uint64_t      window;
    /* Processes up to this generation were killed: stored before the signal. */
    atomic_uint   killed;
    /* All its operations have ended, now that the storm is over. */
    atomic_int    drained;
    atomic_int    closed;
} slot_t;

typedef struct {
    slot_t      slots[MAX_SLOTS];
    int         count;
    unsigned    seed;
    double      limit; /* seconds between a death and its callback */
    double      begins, ends;
    atomic_int  over;
    atomic_int  failed;
    atomic_long done[8], failures, cancels;
    atomic_long slowest_us; /* callback */
    /* Least resources of each survivor in the first, second and last third. */
    resources_t least[SURVIVORS][SAMPLES];
} board_t;

double now(void);
/* A process of the storm: does not return. */
void   run_process(board_t *board, int slot, unsigned generation) __attribute__((noreturn));

#endif
