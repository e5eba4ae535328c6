//! Remote memory: put and get by size, to memory that the library allocated and to any other, also with a target that
//! computes; and atomics.
#include "pair.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW = 64, LARGE = 256 << 10, LARGE_WINDOW = 16, LARGEST_TO_TARGET = 64 << 10 };
static const double COMPUTE_SECONDS = 50e-6; /* between two calls of progress of a target that computes */

static struct region *region; /* the one that is measured, of either kind */
static ucp_atomic_op_t operation;

static void flush(struct side *side)
{
    wait_for(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
}

static ucs_status_ptr_t put(struct side *side, size_t size)
{
    return ucp_put_nbx(side->ep, side->buffer, size, region->remote, region->rkey, &plain);
}

static ucs_status_ptr_t get(struct side *side, size_t size)
{
    return ucp_get_nbx(side->ep, side->buffer, size, region->remote, region->rkey, &plain);
}

static ucs_status_ptr_t atomic(struct side *side, const uint64_t *operand, const ucp_request_param_t *param)
{
    return ucp_atomic_op_nbx(side->ep, operation, operand, 1, region->remote, region->rkey, param);
}

/* ---- batches: side 0 accesses; side 1 waits at the barrier, where it progresses without a pause, or computes ---- */

static void put_flush(struct side *side, size_t size, long rounds)
{
    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        ucs_status_ptr_t request = put(side, size);

        flush(side);
        wait_for(side, request, "put");
    }
}

static void get_wait(struct side *side, size_t size, long rounds)
{
    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        wait_for(side, get(side, size), "get");
    }
}

static int window_of(size_t size)
{
    return size < LARGE ? WINDOW : LARGE_WINDOW;
}

static void put_window(struct side *side, size_t size, long rounds)
{
    ucs_status_ptr_t requests[WINDOW];
    int window = window_of(size);

    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        for (int k = 0; k < window; k++) {
            requests[k] = put(side, size);
        }
        flush(side);
        for (int k = 0; k < window; k++) {
            wait_for(side, requests[k], "put");
        }
    }
}

static void get_window(struct side *side, size_t size, long rounds)
{
    ucs_status_ptr_t requests[WINDOW];
    int window = window_of(size);

    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        for (int k = 0; k < window; k++) {
            requests[k] = get(side, size);
        }
        for (int k = 0; k < window; k++) {
            wait_for(side, requests[k], "get");
        }
    }
}

/** Side 1 computes, and progresses now and then, until side 0 is through. */
static void compute(struct side *side, batch accesses, size_t size, long rounds)
{
    accesses(side, size, rounds);
    if (side->place.index == 0) {
        side->place.stage->over = 1;
        return;
    }
    while (!side->place.stage->over) {
        for (double end = now() + COMPUTE_SECONDS; now() < end && !side->place.stage->over;) {
        }
        ucp_worker_progress(side->worker);
    }
    side->place.stage->over = 0;
}

static void put_flush_computing(struct side *side, size_t size, long rounds)
{
    compute(side, put_flush, size, rounds);
}

static void get_wait_computing(struct side *side, size_t size, long rounds)
{
    compute(side, get_wait, size, rounds);
}

static void put_window_computing(struct side *side, size_t size, long rounds)
{
    compute(side, put_window, size, rounds);
}

/** An atomic that brings the old value back. */
static void fetching(struct side *side, size_t size, long rounds)
{
    uint64_t operand = 1, old = 2;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                 .datatype = ucp_dt_make_contig(size),
                                 .reply_buffer = &old};

    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        wait_for(side, atomic(side, &operand, &param), "atomic");
    }
}

static void posted(struct side *side, size_t size, long rounds)
{
    uint64_t operand = 1;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(size)};

    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        wait_for(side, atomic(side, &operand, &param), "atomic");
        flush(side);
    }
}

/* ---- the workloads ---- */

/** Put, then get the other side's bytes back, every byte checked. */
static void verify(struct side *side)
{
    for (size_t i = 0; i < LARGEST; i++) {
        side->buffer[i] = (unsigned char)(i * 7 + (i >> 8));
    }
    meet_other(side);
    put_flush(side, LARGEST, 1);
    if (side->place.index == 0) {
        memset(side->buffer, 0, LARGEST);
    }
    get_wait(side, LARGEST, 1);
    meet_other(side);
    for (size_t i = 0; i < LARGEST; i++) {
        unsigned char right = (unsigned char)(i * 7 + (i >> 8));

        if (side->buffer[i] != right || (side->place.index == 1 && region->own[i] != right)) {
            die("wrong data at byte %zu", i);
        }
    }
}

static void report(struct side *side, const char *kind, const char *what, size_t size, double value, const char *unit)
{
    char name[64];

    snprintf(name, sizeof(name), "%s%s", what, kind);
    if (side->place.index == 0) {
        figure(name, (long)size, value, unit);
    }
}

static void measure_size(struct side *side, const char *kind, size_t size)
{
    double message;

    report(side, kind, "put_flush", size, seconds_per_round(side, put_flush, size) * 1e6, "us");
    report(side, kind, "get_latency", size, seconds_per_round(side, get_wait, size) * 1e6, "us");
    message = seconds_per_round(side, put_window, size) / window_of(size);
    report(side, kind, "put_bandwidth", size, (double)size / message / 1e6, "MB/s");
    if (size == 8) {
        report(side, kind, "put_rate", size, 1e-6 / message, "M/s");
    }
    message = seconds_per_round(side, get_window, size) / window_of(size);
    report(side, kind, "get_bandwidth", size, (double)size / message / 1e6, "MB/s");
}

static void measure_sizes(struct side *side, struct region *which, const char *kind)
{
    region = which;
    verify(side);
    for (size_t size = 1; size <= LARGEST; size *= 2) {
        if (measures_size(side->effort, size)) {
            measure_size(side, kind, size);
        }
    }
}

/** Memory that the library did not allocate, by what the target does. */
static void measure_targets(struct side *side)
{
    static const struct {
        const char *name;
        batch run;
    } accesses[] = {
        {"put_flush_progressing", put_flush},
        {"get_progressing", get_wait},
        {"put_window_progressing", put_window},
        {"put_flush_computing", put_flush_computing},
        {"get_computing", get_wait_computing},
        {"put_window_computing", put_window_computing},
    };

    region = &side->malloced;
    verify(side);
    for (size_t i = 0; i < sizeof(accesses) / sizeof(*accesses); i++) {
        for (size_t size = 8; size <= LARGEST_TO_TARGET; size *= 2) {
            if (measures_size(side->effort, size)) {
                report(side, "", accesses[i].name, size, seconds_per_round(side, accesses[i].run, size) * 1e6, "us");
            }
        }
    }
}

static void measure_atomics(struct side *side, struct region *which, const char *kind)
{
    static const struct {
        const char *name;
        ucp_atomic_op_t operation;
        batch run;
    } atomics[] = {
        {"fetch_add", UCP_ATOMIC_OP_ADD, fetching},
        {"swap", UCP_ATOMIC_OP_SWAP, fetching},
        {"compare_swap", UCP_ATOMIC_OP_CSWAP, fetching},
        {"add_flush", UCP_ATOMIC_OP_ADD, posted},
    };

    region = which;
    for (size_t i = 0; i < sizeof(atomics) / sizeof(*atomics); i++) {
        operation = atomics[i].operation;
        report(side, kind, atomics[i].name, 8, seconds_per_round(side, atomics[i].run, 8) * 1e6, "us");
    }
}

static void play_rma(struct place place, void *effort)
{
    struct side side;

    open_side(&side, place, effort, UCP_FEATURE_RMA);
    open_regions(&side);
    measure_sizes(&side, &side.allocated, "");
    measure_sizes(&side, &side.malloced, "_malloc");
    close_side(&side);
}

static void play_targets(struct place place, void *effort)
{
    struct side side;

    open_side(&side, place, effort, UCP_FEATURE_RMA);
    open_regions(&side);
    measure_targets(&side);
    close_side(&side);
}

static void play_atomics(struct place place, void *effort)
{
    struct side side;

    open_side(&side, place, effort, UCP_FEATURE_RMA | UCP_FEATURE_AMO64);
    open_regions(&side);
    measure_atomics(&side, &side.allocated, "");
    measure_atomics(&side, &side.malloced, "_malloc");
    close_side(&side);
}

int run_remote(const struct effort *effort, int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*play)(struct place, void *);
    } plays[] = {{"rma", play_rma}, {"targets", play_targets}, {"atomics", play_atomics}};

    (void)argc;
    for (size_t i = 0; i < sizeof(plays) / sizeof(*plays); i++) {
        if (strcmp(argv[0], plays[i].name) == 0) {
            return start_pair(plays[i].play, (void *)effort);
        }
    }
    return 2;
}
