/*
 * Permitted calls of callbacks: release the memory of their own request, call the library from request_init, close
 * endpoints.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MEMORY 4096

static unsigned calls;

/* The user's memory for a request is unmapped from the callback on: a later access crashes. */
static void forget(void *request)
{
    void *page = (void *)((uintptr_t)request & ~(uintptr_t)(MEMORY - 1));

    calls++;
    WANT_TRUE(mprotect(page, MEMORY, PROT_NONE) == 0);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)status, (void)info, (void)user_data;
    forget(request);
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status, (void)user_data;
    forget(request);
}

static void on_stream(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)status, (void)length, (void)user_data;
    forget(request);
}

static void *memory(void)
{
    char *page = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return page + MEMORY - 64;
}

static void until(fixture_t *fixture, unsigned wanted)
{
    for (int i = 0; i < 1000000 && calls < wanted; i++) {
        ucp_worker_progress(fixture->worker);
    }
    WANT_TRUE(calls == wanted);
}

static void own_memory(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t recv    = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK,
                                   .cb.recv = on_received};
    ucp_request_param_t send    = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK,
                                   .cb.send = on_sent};
    ucp_request_param_t stream  = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK,
                                   .cb.recv_stream = on_stream};
    ucp_request_param_t plain   = {.op_attr_mask = 0};
    char               *data = calloc(2, 1 << 20);
    size_t              length;

    /* small, and by rendezvous: the sender's memory is one, too */
    recv.request = memory();
    ucp_tag_recv_nbx(fixture.worker, data, 8, 1, -1, &recv);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_send_nbx(fixture.ep, data, 8, 1, &plain)));
    until(&fixture, 1);
    recv.request = memory();
    ucp_tag_recv_nbx(fixture.worker, data, 1 << 20, 1, -1, &recv);
    send.request = memory();
    WANT_TRUE(UCS_PTR_IS_PTR(ucp_tag_send_nbx(fixture.ep, data + (1 << 20), 1 << 20, 1, &send)));
    until(&fixture, 3);
    /* inside of the call */
    send.request = memory();
    send.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    recv.request = memory();
    ucp_tag_recv_nbx(fixture.worker, data, 8, 1, -1, &recv);
    ucp_tag_send_nbx(fixture.ep, data, 8, 1, &send);
    until(&fixture, 5);
    /* a canceled one, and a stream's */
    recv.request = memory();
    ucs_status_ptr_t request = ucp_tag_recv_nbx(fixture.worker, data, 8, 1, -1, &recv);
    ucp_request_cancel(fixture.worker, request);
    until(&fixture, 6);
    stream.request = memory();
    ucp_stream_recv_nbx(fixture.ep, data, 8, &length, &stream);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_stream_send_nbx(fixture.ep, data, 8, &plain)));
    until(&fixture, 7);
    fixture_works(&fixture);
    fixture_close(&fixture);
    free(data);
}

/* request_init runs without any lock of the library: it may call everything that a callback may. */
static ucp_worker_h init_worker;
static unsigned     inits;

static void on_init(void *request)
{
    static char         space[4096] __attribute__((aligned(64)));
    static int          inside;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST, .request = space + 2048};
    ucp_tag_recv_info_t info;
    static uint64_t     got;

    (void)request;
    inits++;
    if (init_worker == NULL || inside) {
        return;
    }
    inside = 1;
    ucp_tag_probe_nb(init_worker, 1, -1, 0, &info);
    ucs_status_ptr_t posted = ucp_tag_recv_nbx(init_worker, &got, 8, 99, -1, &param);
    WANT_TRUE(UCS_PTR_IS_PTR(posted));
    ucp_request_cancel(init_worker, posted);
    inside = 0;
}

static void from_request_init(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_INIT |
                                         UCP_PARAM_FIELD_REQUEST_SIZE,
                           .features = UCP_FEATURE_TAG, .request_init = on_init, .request_size = 16};
    ucp_worker_params_t worker_params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_MULTI};
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_context_h       context;
    ucs_status_ptr_t    posted[300];
    uint64_t            got[300];

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &init_worker));
    WANT_TRUE(inits == 0);
    for (int i = 0; i < 300; i++) {
        posted[i] = ucp_tag_recv_nbx(init_worker, &got[i], 8, 1, -1, &param);
    }
    WANT_TRUE(inits >= 300);
    for (int i = 0; i < 300; i++) {
        ucp_request_cancel(init_worker, posted[i]);
        WANT(UCS_ERR_CANCELED, ucp_request_check_status(posted[i]));
        ucp_request_free(posted[i]);
    }
    ucp_worker_destroy(init_worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"callbacks: the request's own memory", own_memory},
    {"callbacks: request_init", from_request_init},
};

CHECK_MAIN(cases)
