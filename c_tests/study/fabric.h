//! The fabric: workers of the library under test, connected to other ranks' workers, and memory exposed to those.
#ifndef STUDY_FABRIC_H
#define STUDY_FABRIC_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

/** The ranks with which a rank is connected. */
enum reach { PARTNER, EVERYONE };

struct fabric {
    ucp_context_h context;
    int threads, workers, partner;
    ucp_worker_h *worker;
    ucp_ep_h *ep;     /* of worker w to rank r: [w * ranks + r]; NULL where there is none */
    ucp_rkey_h *rkey; /* of rank r's memory, in the same order */
    ucp_mem_h memory;
    unsigned char *own;
    uint64_t *base; /* address of each rank's memory */
    int oversubscribed;    /* more threads, of all ranks, than cores */
};

/** No field set. */
extern const ucp_request_param_t plain;

void check(ucs_status_t status, const char *call);

/** Threads use worker (thread mod workers). `length` is of the memory, in bytes, zeroed. All ranks call it. */
void open_fabric(struct fabric *fabric, int threads, int workers, enum reach reach, uint64_t features, size_t length);

/** A barrier of all ranks; every worker is progressed meanwhile, so no other thread may use one. */
void meet(struct fabric *fabric);

/** All ranks call it. */
void close_fabric(struct fabric *fabric);

static inline int worker_of(const struct fabric *fabric, int thread)
{
    return thread % fabric->workers;
}

static inline ucp_worker_h own_worker(const struct fabric *fabric, int thread)
{
    return fabric->worker[worker_of(fabric, thread)];
}

/** One call of progress. Where threads share a core, an idle one yields. */
static inline void progress(const struct fabric *fabric, ucp_worker_h worker)
{
    if (ucp_worker_progress(worker) == 0 && fabric->oversubscribed) {
        sched_yield();
    }
}

/** Progresses until the request, which may be NULL, is complete, and frees it. */
static inline void complete(const struct fabric *fabric, ucp_worker_h worker, ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            progress(fabric, worker);
        }
        ucp_request_free(request);
    }
    if (status != UCS_OK) {
        check(status, "an operation");
    }
}

#endif
