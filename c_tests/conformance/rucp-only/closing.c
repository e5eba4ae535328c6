/*
 * One thread progresses, another one closes an endpoint just as it fails. Once the close has completed the endpoint's
 * error handler does not run and is never called; nor is it called for an endpoint in the same slot.
 */
#define _GNU_SOURCE
#include "check.h"
#include "connect.h"
#include "finish.h"
#include "workers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 400, TIMEOUT = 8 /* seconds */, TAG = 7 };

/* One endpoint at a time; its error handler gets this as argument. */
typedef struct {
    atomic_int ended;  /* the other end is about to be closed */
    atomic_int closed; /* its close has completed */
    atomic_int calls;
} life_t;

static ucp_context_h context;
static ucp_worker_h  watched, other; /* the first one is progressed by the thread */
static atomic_int    over, early, late, during, handled;
static int           arms; /* the thread arms the worker, too: it is about to sleep */
static life_t        lives[ROUNDS];

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    life_t *life = arg;

    (void)ep;
    (void)status;
    early += !life->ended;
    late += life->closed;
    life->calls++;
    handled++;
    for (int i = 0; i < 20; i++) {
        sched_yield();
    }
    during += life->closed;
}

static void *progress(void *arg)
{
    (void)arg;
    while (!over) {
        if (ucp_worker_progress(watched) == 0 && arms) {
            ucp_worker_arm(watched);
        }
    }
    return NULL;
}

/* Waits for a request; the watched worker is progressed by the thread. */
static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_on(other, request, TIMEOUT);
}

/* A message from one to the other. */
static void meet(ucp_ep_h from, ucp_worker_h to)
{
    static uint64_t     sent = 1;
    uint64_t            got;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    receive = ucp_tag_recv_nbx(to, &got, sizeof(got), TAG, -1, &param);

    WANT(UCS_OK, finish(ucp_tag_send_nbx(from, &sent, sizeof(sent), TAG, &param)));
    WANT(UCS_OK, finish(receive));
}

static void live(life_t *life, int round, unsigned first, unsigned second)
{
    static life_t       unwatched = {.ended = 1};
    ucp_request_param_t how       = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = first};
    ucp_ep_h            far       = connect_workers(other, watched, on_failure, &unwatched);
    ucp_ep_h            ep        = connect_workers(watched, other, on_failure, life);

    meet(ep, other);
    meet(far, watched);
    life->ended = 1;
    ucs_status_ptr_t closing = ucp_ep_close_nbx(far, &how);
    /* sometimes before the failure is detected, sometimes while the handler runs or after it */
    for (int i = 0; i < round % 50 && life->calls == 0; i++) {
        sched_yield();
    }
    how.flags = second;
    ucs_status_t status = finish(ucp_ep_close_nbx(ep, &how));
    life->closed = 1;
    WANT_TRUE(status == UCS_OK || status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_CANCELED);
    finish(closing);
}

static void closing(unsigned first, unsigned second)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    pthread_t    thread;
    time_t       end = time(NULL) + TIMEOUT;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    watched = new_worker(context, UCS_THREAD_MODE_MULTI);
    other   = new_worker(context, UCS_THREAD_MODE_MULTI);
    WANT_TRUE(pthread_create(&thread, NULL, progress, NULL) == 0);
    for (int round = 0; round < ROUNDS && time(NULL) < end && !check_failed(); round++) {
        live(&lives[round], round, first, second);
    }
    over = 1;
    pthread_join(thread, NULL);
    WANT_TRUE(early == 0);
    WANT_TRUE(late == 0);
    WANT_TRUE(during == 0);
    WANT_TRUE(handled > 0); /* else nothing was tested */
    for (int i = 0; i < ROUNDS; i++) {
        WANT_TRUE(lives[i].calls <= 1);
    }
    ucp_worker_destroy(watched);
    ucp_worker_destroy(other);
    ucp_cleanup(context);
}

static void both_force(void)
{
    closing(UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_CLOSE_FLAG_FORCE);
}

static void one_forces(void)
{
    closing(UCP_EP_CLOSE_FLAG_FORCE, 0);
}

/* The other end is closed in order: this one fails when its worker is about to sleep. */
static void in_order(void)
{
    arms = 1;
    closing(0, UCP_EP_CLOSE_FLAG_FORCE);
}

static const case_t cases[] = {
    {"closing: both by force", both_force},
    {"closing: the other by force", one_forces},
    {"closing: the other in order", in_order},
};

CHECK_MAIN(cases)
