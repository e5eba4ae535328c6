//! A pair: two processes connected by the library under test, and memory of each that the other one can access.
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <ucp/api/ucp.h>

enum { LARGEST = 4 << 20 }; /* bytes of each buffer and region */

/** Memory of this process that the other one can access, and the other way round. */
struct region {
    ucp_mem_h memory;
    unsigned char *own;
    uint64_t remote; /* address of the other process's */
    ucp_rkey_h rkey;
};

struct side {
    struct place place;
    const struct effort *effort;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    unsigned char *buffer;   /* to send from and receive into */
    struct region allocated; /* by the library, which may share it between processes */
    struct region malloced;  /* any memory of the program */
    size_t am_arrived, am_awaited;
};

extern const ucp_request_param_t plain; /* no field set */

/** Opens context and worker, connects to the other process; both call it. */
void open_side(struct side *side, struct place place, const struct effort *effort, uint64_t features);

/** Registers memory on both sides. */
void open_regions(struct side *side);

/** Exchanges address and key of this side's memory of a region with the other side. */
void exchange_region(struct side *side, struct region *region);

void close_side(struct side *side);

void check(ucs_status_t status, const char *call);

/** Progresses until the request, which may be NULL, is complete, and frees it; returns its status. */
ucs_status_t end_of(struct side *side, ucs_status_ptr_t request);

/** Waits for a request that has to succeed. */
void wait_for(struct side *side, ucs_status_ptr_t request, const char *call);

/** A barrier of both sides, in which the library progresses. */
void meet_other(struct side *side);

/** One side's part of a batch of this many rounds; both sides run it. */
typedef void (*batch)(struct side *, size_t size, long rounds);

/**
 * Runs batches on both sides and returns the seconds of one round: the median batch's, by the clock of side 0. How many
 * rounds make a batch follows from a first one.
 */
double seconds_per_round(struct side *side, batch run, size_t size);

#endif
