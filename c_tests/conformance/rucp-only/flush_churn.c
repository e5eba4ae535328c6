/*
 * Peers that come and go while another thread flushes the worker: a flush refers to peers that progress frees. Three
 * threads share a worker: one makes peers, sends to them and ends them, one flushes, one progresses.
 */
#define _GNU_SOURCE
#include "check.h"
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ARRIVAL = 1, PEERS = 300, SECONDS = 120 };

#define FEATURES (UCP_FEATURE_AM | UCP_FEATURE_RMA)

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static ucp_worker_h shared;
static atomic_uint  is_over, flushes;

/* Waits while another thread, or this one, progresses. */
static void finish(ucp_worker_h own, ucs_status_ptr_t request)
{
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (own != NULL) {
            ucp_worker_progress(own);
        }
        sched_yield();
    }
    WANT(UCS_OK, UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request) : UCS_PTR_STATUS(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void *progress(void *arg)
{
    while (!atomic_load(&is_over)) {
        ucp_worker_progress(shared);
        sched_yield();
    }
    return arg;
}

static void *flush(void *arg)
{
    while (!atomic_load(&is_over)) {
        finish(NULL, ucp_worker_flush_nbx(shared, &plain));
        atomic_fetch_add(&flushes, 1);
    }
    return arg;
}

static ucs_status_t on_arrival(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length, (void)param;
    ++*(unsigned *)arg;
    return UCS_OK;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
}

/* A worker that gets a message and ends; its endpoint is closed before, or behind it. */
static void one_peer(ucp_context_h context, unsigned number)
{
    unsigned     arrived = 0;
    ucp_worker_h worker  = new_worker(context, UCS_THREAD_MODE_SINGLE);
    address_t    address;

    set_handler(worker, ARRIVAL, on_arrival, &arrived);
    read_address(worker, &address);
    ucp_ep_h ep = connect_to(shared, &address, on_failure, NULL);
    finish(worker, ucp_am_send_nbx(ep, ARRIVAL, NULL, 0, &number, sizeof(number), &plain));
    while (arrived == 0) {
        ucp_worker_progress(worker);
        sched_yield();
    }
    if (number % 2 == 0) {
        finish(worker, ucp_ep_close_nbx(ep, &plain));
        ucp_worker_destroy(worker);
    } else {
        ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

        ucp_worker_destroy(worker);
        finish(NULL, ucp_ep_close_nbx(ep, &force));
    }
}

static void beside_peers(void)
{
    ucp_context_h own = new_context(FEATURES), theirs = new_context(FEATURES);
    pthread_t     threads[2];

    alarm(SECONDS);
    shared = new_worker(own, UCS_THREAD_MODE_MULTI);
    must(pthread_create(&threads[0], NULL, progress, NULL) == 0 ? UCS_OK : UCS_ERR_IO_ERROR, "pthread_create");
    must(pthread_create(&threads[1], NULL, flush, NULL) == 0 ? UCS_OK : UCS_ERR_IO_ERROR, "pthread_create");
    for (unsigned i = 0; i < PEERS && !check_failed(); i++) {
        unsigned before = atomic_load(&flushes);

        one_peer(theirs, i);
        /* A flush begins and ends beside each peer, or behind it. */
        while (atomic_load(&flushes) - before < 2) {
            sched_yield();
        }
    }
    atomic_store(&is_over, 1);
    pthread_join(threads[1], NULL);
    pthread_join(threads[0], NULL);
    ucp_worker_destroy(shared);
    ucp_cleanup(theirs);
    ucp_cleanup(own);
}

static const case_t cases[] = {{"beside_peers", beside_peers}};

CHECK_MAIN(cases)
