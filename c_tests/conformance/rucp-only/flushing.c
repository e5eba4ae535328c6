/*
 * A thread flushes a worker while another one closes the only endpoint by force, whose peer does not reply:
 * after the flush has selected its peers and before its request is queued. The flush ends.
 *
 * The order is forced by the program's own function for new requests, which the library calls between the two.
 */
#define _GNU_SOURCE
#include "exposed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { CHUNK = 128 /* requests that are made together */, SIZE = 4096 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static party_t                   self;
static atomic_int                made, armed, requested, closed;

static void *close_by_force(void *arg)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t          close;

    (void)arg;
    while (!atomic_load(&requested)) { /* pairs with the store of the flushing thread */
    }
    close = ucp_ep_close_nbx(self.ep, &force);
    WANT_TRUE(!UCS_PTR_IS_ERR(close));
    atomic_store(&closed, 1); /* pairs with the load of the flushing thread */
    return NULL;
}

static void on_new_request(void *request)
{
    (void)request;
    atomic_fetch_add(&made, 1);
    if (atomic_exchange(&armed, 0)) {
        atomic_store(&requested, 1);
        while (!atomic_load(&closed)) {
        }
    }
}

/* Does nothing, not even progress. */
static void run_without_progress(party_t *other)
{
    register_memory(other);
    for (;;) {
        pause();
    }
}

/* Allocates until one request is left in the pool. */
static void use_up_requests(void)
{
    static char buffer;
    int         before = atomic_load(&made);

    while (atomic_load(&made) == before) {
        WANT_TRUE(UCS_PTR_IS_PTR(receive_tag(&self, &buffer, 1, 77)));
    }
    WANT_TRUE(atomic_load(&made) == before + CHUNK);
    for (int i = 0; i < CHUNK - 2; i++) {
        WANT_TRUE(UCS_PTR_IS_PTR(receive_tag(&self, &buffer, 1, 77)));
    }
    WANT_TRUE(atomic_load(&made) == before + CHUNK);
}

static void closed_meanwhile(void)
{
    const ucp_request_param_t word = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    static const uint64_t     one  = 1;
    pthread_t                 thread;
    ucp_rkey_h                rkey;

    party_thread_mode  = UCS_THREAD_MODE_MULTI;
    party_request_init = on_new_request;
    rkey               = open_memory(&self, SIZE, run_without_progress);
    /* An atomic operation on memory that is not mapped here is a message, and gets no reply. */
    WANT_PTR(UCS_OK, ucp_atomic_op_nbx(self.ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)there, rkey, &word));
    use_up_requests();
    WANT_TRUE(pthread_create(&thread, NULL, close_by_force, NULL) == 0);
    atomic_store(&armed, 1);
    WANT(UCS_OK, finish(&self, ucp_worker_flush_nbx(self.worker, &plain)));
    WANT_TRUE(atomic_load(&closed)); /* in the middle of the flush call */
    pthread_join(thread, NULL);
    ucp_rkey_destroy(rkey);
    kill_other(&self);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static const case_t cases[] = {
    {"flushing: closed by force meanwhile", closed_meanwhile},
};

CHECK_MAIN(cases)
