/* Two workers, one of which stays: what their processes share, and how they wait. */
#ifndef RUCP_VERBS_CHURN_H
#define RUCP_VERBS_CHURN_H

#define _GNU_SOURCE
#include "check.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ADDRESS = 1024, SECONDS = 20, LONGEST = 150, TAG = 1, UNREAD_TAG = 2 };

/* What the processes share. */
typedef struct {
    size_t      length[2]; /* of the address of the worker that stays, and of the one that comes; 0: not there yet */
    uint8_t     address[2][ADDRESS];
    atomic_uint wanted; /* so many peers were asked for */
    atomic_uint gone;   /* so many have gone */
    atomic_uint sent;   /* so many have sent what they had to send */
    atomic_uint go;     /* so many are to go */
} shared_t;

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  worker;
static unsigned      lost;

static inline void wait_for(atomic_uint *counter, unsigned least)
{
    time_t end = time(NULL) + SECONDS;

    while (atomic_load(counter) < least && time(NULL) < end) {
        if (worker != NULL) {
            ucp_worker_progress(worker);
        }
        sched_yield();
    }
    WANT_TRUE(atomic_load(counter) >= least);
}

static inline ucs_status_t finish(ucs_status_ptr_t request)
{
    time_t       end = time(NULL) + SECONDS;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(worker);
        sched_yield();
    }
    status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static inline void worker_open(int place)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_address_t      *address;
    size_t              length;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    must(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    memcpy(shared->address[place], address, length);
    __atomic_store_n(&shared->length[place], length, __ATOMIC_RELEASE);
    ucp_worker_release_address(worker, address);
}

static inline void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT);
    ++*(unsigned *)arg;
}

static ucp_ep_h connect_to(int place)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)shared->address[place],
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &lost},
    };
    ucp_ep_h ep;

    must(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

static inline void share(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(shared != MAP_FAILED);
}

static inline ucs_status_t close_by_force(ucp_ep_h ep)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    return finish(ucp_ep_close_nbx(ep, &force));
}

#endif
