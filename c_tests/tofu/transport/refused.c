/*
 * One operation that the interconnect refuses, with each of its codes: the endpoint that it was of fails with the status that the
 * code means, once; its requests end; the worker goes on with another peer, and nothing of it is left when all is over.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SECONDS = 10, SENDS = 20 };

static ucp_context_h context;
static ucp_worker_h  worker, peers[2];
static ucp_ep_h      ep[2];
static unsigned      failures[2];
static ucs_status_t  failure;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    ++*(unsigned *)arg;
    failure = status;
}

static void progress(void)
{
    ucp_worker_progress(worker);
    ucp_worker_progress(peers[0]);
    ucp_worker_progress(peers[1]);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    time_t       end = time(NULL) + SECONDS;
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS && time(NULL) < end) {
        progress();
    }
    ucp_request_free(request);
    return status;
}

static void connect_to(int i)
{
    ucp_address_t  *address;
    size_t          length;
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &failures[i]},
    };

    WANT(UCS_OK, ucp_worker_get_address(peers[i], &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep[i]));
    ucp_worker_release_address(peers[i], address);
}

static ucs_status_ptr_t send_to(int i, size_t size)
{
    static char         data[4096];
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_tag_send_nbx(ep[i], data, size, 1, &param);
}

static ucs_status_t flush(int i)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(ucp_ep_flush_nbx(ep[i], &param));
}

static void fault(const char *what, int code)
{
    char command[512];

    snprintf(command, sizeof(command), "%s %s=1,fail_code=%d", getenv("TOFUCTL"), what, code);
    WANT_TRUE(system(command) == 0);
}

static void close_ep(int i)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep[i], &param)));
}

/* `size` decides how a frame goes: in a descriptor, from a buffer, in several frames. */
static void refused(int code, size_t size, ucs_status_t wanted)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucs_status_ptr_t    sent[SENDS];
    time_t              end;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peers[0]));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peers[1]));
    for (int i = 0; i < 2; i++) {
        failures[i] = 0;
        connect_to(i);
        WANT(UCS_OK, finish(send_to(i, 8)));
        WANT(UCS_OK, flush(i));
    }
    fault("fail_nth", code);
    for (int i = 0; i < SENDS; i++) {
        sent[i] = send_to(0, size);
    }
    for (end = time(NULL) + SECONDS; failures[0] == 0 && time(NULL) < end;) {
        progress();
    }
    WANT_TRUE(failures[0] == 1);
    WANT_TRUE(failure == wanted);
    for (int i = 0; i < SENDS; i++) {
        WANT_TRUE(finish(sent[i]) != UCS_INPROGRESS);
    }
    WANT_TRUE(flush(0) == wanted);
    WANT(UCS_OK, finish(send_to(1, size)));
    WANT(UCS_OK, flush(1));
    WANT_TRUE(failures[0] == 1 && failures[1] == 0);
    close_ep(0);
    /* There is a new one to who was only not reached once. */
    connect_to(0);
    WANT(UCS_OK, finish(send_to(0, size)));
    WANT(UCS_OK, flush(0));
    close_ep(0);
    close_ep(1);
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peers[0]);
    ucp_worker_destroy(peers[1]);
    ucp_cleanup(context);
}

static void sizes(int code, ucs_status_t wanted)
{
    static const size_t all[] = {8, 1000, 4000};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        refused(code, all[i], wanted);
    }
}

#define REFUSED(name, code, wanted)                                                                                   \
    static void name(void)                                                                                            \
    {                                                                                                                 \
        sizes(code, wanted);                                                                                          \
    }

REFUSED(tcq_other, -128, UCS_ERR_IO_ERROR)
REFUSED(tcq_descriptor, -129, UCS_ERR_IO_ERROR)
REFUSED(tcq_memory, -130, UCS_ERR_IO_ERROR)
REFUSED(tcq_stadd, -131, UCS_ERR_IO_ERROR)
REFUSED(tcq_length, -132, UCS_ERR_IO_ERROR)
REFUSED(mrq_peer, -193, UCS_ERR_CONNECTION_RESET)
REFUSED(mrq_local_memory, -194, UCS_ERR_IO_ERROR)
REFUSED(mrq_remote_memory, -195, UCS_ERR_IO_ERROR)
REFUSED(mrq_local_stadd, -196, UCS_ERR_IO_ERROR)
REFUSED(mrq_remote_stadd, -197, UCS_ERR_IO_ERROR)
REFUSED(mrq_local_length, -198, UCS_ERR_IO_ERROR)
REFUSED(mrq_remote_length, -199, UCS_ERR_IO_ERROR)

static const case_t cases[] = {
    {"refused: TCQ_OTHER", tcq_other},
    {"refused: TCQ_DESC", tcq_descriptor},
    {"refused: TCQ_MEMORY", tcq_memory},
    {"refused: TCQ_STADD", tcq_stadd},
    {"refused: TCQ_LENGTH", tcq_length},
    {"refused: MRQ_PEER", mrq_peer},
    {"refused: MRQ_LCL_MEMORY", mrq_local_memory},
    {"refused: MRQ_RMT_MEMORY", mrq_remote_memory},
    {"refused: MRQ_LCL_STADD", mrq_local_stadd},
    {"refused: MRQ_RMT_STADD", mrq_remote_stadd},
    {"refused: MRQ_LCL_LENGTH", mrq_local_length},
    {"refused: MRQ_RMT_LENGTH", mrq_remote_length},
};

CHECK_MAIN(cases)
