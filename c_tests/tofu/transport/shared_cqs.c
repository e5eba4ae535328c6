/*
 * More workers than there are control queues: all of them work at once, each in a thread of its own, and each with its
 * neighbours; the first one too many fails, or uses TCP if it may. WORKERS is the number of workers, CQS that of their
 * control queues, FURTHER=1: one more is created all the same.
 */
#include "check.h"
#include "wire.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 128, ROUNDS = 200, SECONDS = 60, LONG = 20000 };

typedef struct {
    pthread_t      thread;
    ucp_worker_h   worker;
    ucp_address_t *address;
    int            number, failed;
    uint64_t       target[2]; /* written by the previous worker */
    ucp_mem_h      memh;
    void          *key;
    size_t         key_length;
} one_t;

static ucp_context_h     context;
static one_t             all[MOST];
static int               count;
static pthread_barrier_t made;
static atomic_int        talking;

static int want(one_t *one, int fine, const char *what)
{
    if (!fine && one->failed++ == 0) {
        fprintf(stderr, "worker %d: %s\n", one->number, what);
    }
    return fine;
}

static int finish(one_t *one, ucs_status_ptr_t request)
{
    time_t       end = time(NULL) + SECONDS;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request) == UCS_OK;
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(one->worker);
    }
    ucp_request_free(request);
    return status == UCS_OK;
}

static void talk(one_t *one, one_t *next, ucp_ep_h ep, ucp_rkey_h rkey)
{
    static const ucp_request_param_t none = {.op_attr_mask = 0};
    char    *out = malloc(LONG), *in = malloc(LONG);
    uint64_t word;

    for (int round = 0; round < ROUNDS; round++) {
        size_t           size = round % 10 == 0 ? LONG : 8 + round % 100;
        ucs_status_ptr_t receive, send;

        memset(out, one->number + round, size);
        receive = ucp_tag_recv_nbx(one->worker, in, LONG, round, ~0ull, &none);
        send    = ucp_tag_send_nbx(ep, out, size, round, &none);
        want(one, finish(one, receive), "a receive");
        want(one, finish(one, send), "a send");
        want(one, (unsigned char)in[size - 1] == (unsigned char)((one->number + count - 1) % count + round),
             "other bytes");
        word = (uint64_t)one->number << 32 | round;
        want(one, finish(one, ucp_put_nbx(ep, &word, sizeof(word), (uintptr_t)&next->target[0], rkey, &none)), "a put");
        want(one, finish(one, ucp_ep_flush_nbx(ep, &none)), "a flush");
        want(one, __atomic_load_n(&next->target[0], __ATOMIC_ACQUIRE) == word, "other memory");
    }
    free(out);
    free(in);
}

static void *run(void *arg)
{
    one_t              *one = arg, *next = &all[(one->number + 1) % count];
    ucp_ep_params_t     params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = next->address};
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucp_rkey_h          rkey;
    ucp_ep_h            ep;

    want(one, ucp_ep_create(one->worker, &params, &ep) == UCS_OK, "no endpoint");
    want(one, ucp_ep_rkey_unpack(ep, next->key, &rkey) == UCS_OK, "no key");
    pthread_barrier_wait(&made);
    talk(one, next, ep, rkey);
    ucp_rkey_destroy(rkey);
    want(one, finish(one, ucp_ep_close_nbx(ep, &none)), "no close");
    /*
     * The neighbour may still send: its messages reach no other worker, and some transports need this worker's replies.
     */
    atomic_fetch_sub(&talking, 1);
    for (time_t end = time(NULL) + SECONDS; atomic_load(&talking) > 0 && time(NULL) < end;) {
        ucp_worker_progress(one->worker);
        sched_yield();
    }
    return NULL;
}

static void pack(one_t *one)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = one->target, .length = sizeof(one->target)};
    size_t               length;

    WANT(UCS_OK, ucp_worker_get_address(one->worker, &one->address, &length));
    WANT(UCS_OK, ucp_mem_map(context, &params, &one->memh));
    WANT(UCS_OK, ucp_rkey_pack(context, one->memh, &one->key, &one->key_length));
}

static void shared_cqs(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                  .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA, .mt_workers_shared = 1};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucs_status_t        status = UCS_OK;
    int                 workers = atoi(getenv("WORKERS")), further = atoi(getenv("FURTHER"));

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    while (count < workers + further && status == UCS_OK) {
        all[count].number = count;
        status = ucp_worker_create(context, &worker_params, &all[count].worker);
        count += status == UCS_OK;
    }
    WANT_TRUE(count == workers + further);
    if (!further) {
        WANT_TRUE(ucp_worker_create(context, &worker_params, &all[count].worker) != UCS_OK);
    }
    WANT_TRUE(counter("cqs") == strtoul(getenv("CQS"), NULL, 10));
    for (int i = 0; i < count; i++) {
        pack(&all[i]);
    }
    pthread_barrier_init(&made, NULL, count);
    atomic_store(&talking, count);
    for (int i = 0; i < count; i++) {
        WANT_TRUE(pthread_create(&all[i].thread, NULL, run, &all[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(all[i].thread, NULL);
        WANT_TRUE(all[i].failed == 0);
        ucp_rkey_buffer_release(all[i].key);
        WANT(UCS_OK, ucp_mem_unmap(context, all[i].memh));
        ucp_worker_release_address(all[i].worker, all[i].address);
    }
    /* Every frame and control word uses the path of its connection. */
    WANT_TRUE(counter("routed") >= 2ul * ROUNDS * (workers - 1));
    for (int i = 0; i < count; i++) {
        ucp_worker_destroy(all[i].worker);
    }
    ucp_cleanup(context);
    WANT_TRUE(counter("vcqs") == 0);
}

static const case_t cases[] = {{"shared_cqs", shared_cqs}};

CHECK_MAIN(cases)
