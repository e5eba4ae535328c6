/* Contexts, workers, threads and order, rule by rule (rules.txt 2.2, 2.4 and 2.12). */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ucp_context_h context_make(side_t *side, uint64_t features, int shared)
{
    ucp_params_t  params  = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                             .features = features, .mt_workers_shared = shared};
    ucp_context_h context = NULL;

    must(side, ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

/* The thread mode of the library, a context and a worker. */
static void thread_rules(side_t *side)
{
    ucp_lib_attr_t lib = {.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL};

    must(side, ucp_lib_query(&lib), "ucp_lib_query");
    rule(side, "2.2.2", "library: %d", lib.max_thread_level);
    for (int shared = 0; shared < 2; shared++) {
        ucp_context_h      context = context_make(side, UCP_FEATURE_TAG, shared);
        ucp_context_attr_t attr    = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE};
        must(side, ucp_context_query(context, &attr), "ucp_context_query");
        rule(side, "2.2.2", "context, workers shared %d: %d", shared, attr.thread_mode);
        ucp_cleanup(context);
    }
}

/* Progress returns whether something happened. */
static void progress_rules(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t            value = 1, got = 0;
    ucs_status_ptr_t    received = NULL, sent = NULL;
    unsigned            some = 0, idle = 1;
    uint8_t             posted = 1;

    bed_sync(bed);
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, &got, 8, 1, -1, &param);
        for (int i = 0; i < 1000 && idle != 0; i++) {
            idle = ucp_worker_progress(bed->b->worker);
        }
    }
    /* Not bed_sync, whose calls of progress may receive the message. */
    bed_transfer(bed, bed->b, &posted, 1, &posted, 1);
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(bed->a->ep, &value, 8, 1, &param);
    }
    if (bed->b != NULL) {
        deadline_t deadline = bed_deadline("progress");
        while (ucp_request_check_status(received) == UCS_INPROGRESS) {
            some += ucp_worker_progress(bed->b->worker);
            if (bed->a != NULL && bed->a->worker != bed->b->worker) {
                ucp_worker_progress(bed->a->worker);
            }
            if (++deadline.turns > 100000000) {
                bed_poll(bed, &deadline);
            }
        }
        rule(bed->b, "2.2.6", "idle %u, with a message something %d", idle, some > 0);
        ucp_request_free(received);
    }
    bed_wait(bed, sent);
    bed_sync(bed);
}

/* Each thread has a worker of its own, in a context that they share. */
static void *other_thread(void *argument)
{
    side_t             *side          = argument;
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_request_param_t param         = {.op_attr_mask = 0};
    bed_t               bed           = {.topology = TOPOLOGY_SELF, .a = side, .b = side, .link = -1};
    ucp_address_t      *address;
    size_t              length;

    must(side, ucp_worker_create(side->context, &worker_params, &side->worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(side, ucp_ep_create(side->worker, &ep_params, &side->ep), "ucp_ep_create");
    uintptr_t good = 0;
    for (uint64_t i = 1; i <= 500; i++) {
        uint64_t         got      = 0;
        ucs_status_ptr_t received = ucp_tag_recv_nbx(side->worker, &got, 8, 1, -1, &param);
        bed_wait(&bed, ucp_tag_send_nbx(side->ep, &i, 8, 1, &param));
        bed_wait(&bed, received);
        good += got == i;
    }
    bed_disconnect(&bed, side->ep);
    ucp_worker_release_address(side->worker, address);
    ucp_worker_destroy(side->worker);
    return (void *)good;
}

static void shared_context_rules(side_t *side)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    side_t    sides[THREADS];
    uintptr_t good = 0;

    ucp_context_h context = context_make(side, UCP_FEATURE_TAG, 1);
    for (int i = 0; i < THREADS; i++) {
        sides[i]         = *side;
        sides[i].context = context;
        pthread_create(&threads[i], NULL, other_thread, &sides[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        good += (uintptr_t)result;
    }
    rule(side, "2.2.1", "workers of one context, each with its thread: %zu messages", (size_t)good);
    ucp_cleanup(context);
}

static void *signaller(void *worker)
{
    return (void *)(intptr_t)ucp_worker_signal(worker);
}

/* A signal from a thread that does not otherwise use the worker ends its wait. */
static void signal_rules(side_t *side)
{
    ucp_worker_params_t params  = {.field_mask = 0};
    ucp_context_h       context = context_make(side, UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, 0);
    ucp_worker_h        worker;
    pthread_t           thread;
    void               *signalled;

    must(side, ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    for (int i = 0; i < 3; i++) {
        pthread_create(&thread, NULL, signaller, worker);
        ucs_status_t waited = ucp_worker_wait(worker);
        pthread_join(thread, &signalled);
        while (ucp_worker_progress(worker) != 0) {
        }
        ucp_worker_arm(worker); /* consumes a signal that came after the wait had other reasons to end */
        rule(side, "2.2.5", "signal from a thread: %s, wait %s", status_name((ucs_status_t)(intptr_t)signalled),
             status_name(waited));
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static unsigned calls;

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)status, (void)info, (void)user_data;
    calls++;
}

/* A worker is destroyed with receives posted and endpoints open. */
static void destroy_rules(side_t *side)
{
    static const departure_t canceled = {.name = "2.12.5", .on_rucp = "1 call",
                                         .why  = "rucp ends posted receives with CANCELED; UCX 1.22 warns of a leak"};
    ucp_worker_params_t params    = {.field_mask = UCP_WORKER_PARAM_FIELD_FLAGS,
                                     .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK};
    ucp_ep_params_t     ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_request_param_t param     = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = on_received};
    ucp_context_h       context   = context_make(side, UCP_FEATURE_TAG, 0);
    ucp_worker_h        worker;
    ucp_ep_h            ep;
    ucp_address_t      *address;
    size_t              length;
    static char         room[8];
    char                text[32];

    must(side, ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(side, ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
    ucp_worker_release_address(worker, address);
    calls = 0;
    ucp_tag_recv_nbx(worker, room, sizeof(room), 1, -1, &param);
    ucp_worker_destroy(worker);
    snprintf(text, sizeof(text), "%u call%s", calls, calls == 1 ? "" : "s");
    rule_departs(side, &canceled, text);
    ucp_cleanup(context);
    rule(side, "2.12.5", "destroyed with an endpoint and a receive");
}

static void name_rules(side_t *side)
{
    ucp_context_h       context = context_make(side, UCP_FEATURE_TAG, 0);
    ucp_context_attr_t  attr    = {.field_mask = UCP_ATTR_FIELD_NAME | UCP_ATTR_FIELD_MEMORY_TYPES |
                                                 UCP_ATTR_FIELD_REQUEST_SIZE};
    ucp_worker_params_t params  = {.field_mask = UCP_WORKER_PARAM_FIELD_CLIENT_ID, .client_id = 77};
    ucp_worker_attr_t   w       = {.field_mask = UCP_WORKER_ATTR_FIELD_NAME | UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING |
                                                 UCP_WORKER_ATTR_FIELD_THREAD_MODE};
    ucp_worker_h        worker;
    char                pointer[64];

    must(side, ucp_context_query(context, &attr), "ucp_context_query");
    rule(side, "2.12.8", "a name %d, memory types %#lx", attr.name[0] != '\0', (long)attr.memory_types);
    must(side, ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    must(side, ucp_worker_query(worker, &w), "ucp_worker_query");
    snprintf(pointer, sizeof(pointer), "%p", (void *)worker);
    rule(side, "2.12.3", "name is the handle: %d, text of at least 64: %d, thread mode %d",
         strcmp(pointer, w.name) == 0, w.max_debug_string >= 64, w.thread_mode);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

/* An address is of one worker for good, and short enough for PMI. */
static void address_rules(side_t *side)
{
    ucp_address_t *address;
    size_t         length;

    must(side, ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    rule(side, "2.12.1", "an address of less than 256 bytes: %d", length < 256);
#if UCP_API_MINOR >= 13
    ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    rule(side, "2.12.1", "its uid: %s", status_name(ucp_worker_address_query(address, &attr)));
#endif
    ucp_worker_release_address(side->worker, address);
}

/* A fence orders puts; the flag is not visible before the data. */
static void fence_rules(bed_t *bed)
{
    enum { ROUNDS = 200, BYTES = 4096 };
    window_t            window;
    ucp_request_param_t param = {.op_attr_mask = 0};
    int                 good  = 0;

    window_open(bed, &window, WINDOW_ALLOCATED, BYTES + 64);
    volatile uint64_t *flag = window.memory == NULL ? NULL : (volatile uint64_t *)(window.memory + BYTES);
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        if (bed->a != NULL) {
            static char data[BYTES];
            memset(data, (int)round, sizeof(data));
            ucs_status_ptr_t put = ucp_put_nbx(bed->a->ep, data, BYTES, window.remote, window.rkey, &param);
            must(bed->a, ucp_worker_fence(bed->a->worker), "ucp_worker_fence");
            bed_wait(bed, ucp_put_nbx(bed->a->ep, &round, 8, window.remote + BYTES, window.rkey, &param));
            bed_wait(bed, put);
            bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        }
        if (bed->b != NULL) {
            BED_UNTIL(bed, *flag == round);
            good += data_is(window.memory, BYTES, (uint8_t)round);
        }
        bed_sync(bed);
    }
    rule(bed->b, "2.4.3", "who sees the flag sees the data: %d", good);
    window_close(bed, &window);
}

/* A flush of the worker: everything on all of its endpoints has arrived. */
static void flush_rules(bed_t *bed)
{
    enum { COUNT = 64, BYTES = 5000 };
    window_t            window;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    puts[COUNT];
    void               *data  = data_make(COUNT * BYTES, 5);

    window_open(bed, &window, WINDOW_MALLOCED, COUNT * BYTES);
    if (bed->a != NULL) {
        for (int i = 0; i < COUNT; i++) {
            puts[i] = ucp_put_nbx(bed->a->ep, (char *)data + i * BYTES, BYTES, window.remote + (uint64_t)i * BYTES,
                                  window.rkey, &param);
        }
        rule(bed->a, "2.4.2", "flush: %s",
             status_name(bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &param))));
        for (int i = 0; i < COUNT; i++) {
            bed_wait(bed, puts[i]);
        }
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "2.4.2", "all there: %s", data_check(window.memory, COUNT * BYTES, 5));
    }
    window_close(bed, &window);
    free(data);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};

    bed_open(bed, &params);
    if (bed->topology != TOPOLOGY_SELF) { /* in UCX a message to the own worker has arrived when its send returns */
        progress_rules(bed);
    }
    fence_rules(bed);
    flush_rules(bed);
    if (bed->a != NULL) {
        address_rules(bed->a);
    }
    bed_close(bed);
    if (bed->a != NULL) {
        thread_rules(bed->a);
        shared_context_rules(bed->a);
        signal_rules(bed->a);
        destroy_rules(bed->a);
        name_rules(bed->a);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
