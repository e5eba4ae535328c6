/*
 * Two workers of this process on the restricted fabric, with an endpoint to each other. For one source file: everything
 * is static.
 */
#ifndef TWO_WORKERS_H
#define TWO_WORKERS_H

#include "check.h"
#include "connect.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SECONDS = 15 };

typedef struct {
    ucp_worker_h worker;
    ucp_ep_h     ep; /* to the other one */
    unsigned     failures, failed;
    ucs_status_t why; /* of the last failure */
} end_t;

static ucp_context_h context;
static end_t         ends[2];

/* How the endpoints handle errors. */
static ucp_err_handling_mode_t err_mode = UCP_ERR_HANDLING_MODE_PEER;

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    end_t *end = arg;

    (void)ep;
    end->failures++;
    end->failed = 1;
    end->why    = status;
}

/* Whether an endpoint that has failed says that its connection did. */
static inline int is_connection_lost(const end_t *end)
{
    return end->why == UCS_ERR_CONNECTION_RESET || end->why == UCS_ERR_ENDPOINT_TIMEOUT ||
           end->why == UCS_ERR_UNREACHABLE;
}

static void progress(void)
{
    ucp_worker_progress(ends[0].worker);
    ucp_worker_progress(ends[1].worker);
}

static int is_pending(ucs_status_ptr_t request)
{
    return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

/* The status of a request that has ended, or is ended. */
static ucs_status_t end_of(ucp_worker_h worker, ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    for (time_t limit = time(NULL) + SECONDS; is_pending(request) && time(NULL) < limit; progress()) {
        ucp_request_cancel(worker, request);
    }
    status = ucp_request_check_status(request);
    WANT_TRUE(status != UCS_INPROGRESS);
    ucp_request_free(request);
    return status;
}

static void open_worker(end_t *end)
{
    ucp_worker_params_t params = {.field_mask = 0};

    must(ucp_worker_create(context, &params, &end->worker), "ucp_worker_create");
}

static void open_endpoint(int i)
{
    ends[i].failed = 0;
    ends[i].ep     = connect_workers_as(err_mode, ends[i].worker, ends[1 - i].worker, on_failure, &ends[i]);
}

static void close_endpoint(int i)
{
    ucs_status_ptr_t request = ucp_ep_close_nbx(ends[i].ep, &force);

    for (time_t limit = time(NULL) + SECONDS; is_pending(request) && time(NULL) < limit;) {
        progress();
    }
    WANT_TRUE(!is_pending(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

/* Closes the endpoints that have failed, and opens others in their place. */
static inline void replace_failed(void)
{
    for (int i = 0; i < 2; i++) {
        if (ends[i].failed) {
            close_endpoint(i);
            open_endpoint(i);
        }
    }
}

static void begin(const char *rules, uint64_t features)
{
    ucp_params_t params = {.field_mask        = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features          = features,
                           .mt_workers_shared = 1};

    setenv("SOFT_OFI_RULES", rules, 1);
    must(ucp_init(&params, NULL, &context), "ucp_init");
    for (int i = 0; i < 2; i++) {
        open_worker(&ends[i]);
    }
    for (int i = 0; i < 2; i++) {
        open_endpoint(i);
    }
}

static void *destroy(void *worker)
{
    ucp_worker_destroy(worker);
    return NULL;
}

static void end(void)
{
    pthread_t thread;

    for (int i = 0; i < 2; i++) {
        close_endpoint(i);
    }
    /* The other worker answers the end of the connection: until then the endpoint of libfabric stays open. */
    must(pthread_create(&thread, NULL, destroy, ends[0].worker) == 0 ? UCS_OK : UCS_ERR_NO_RESOURCE, "a thread");
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        ucp_worker_progress(ends[1].worker);
    }
    ucp_worker_destroy(ends[1].worker);
    ucp_cleanup(context);
}

/* Whether an event wakes the first worker within this time; the second one makes progress meanwhile. */
static inline int wakes_within(int descriptor, int milliseconds)
{
    for (int i = 0; i < milliseconds; i += 10) {
        struct pollfd event = {.fd = descriptor, .events = POLLIN};

        if (poll(&event, 1, 10) == 1) {
            return 1;
        }
        for (int n = 0; n < 20; n++) {
            ucp_worker_progress(ends[1].worker);
        }
    }
    return 0;
}

#endif
