#include "workers.h"

#include "check.h"

#include <string.h>
#include <time.h>

ucp_context_h new_context(uint64_t features)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_context_h context;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

ucp_worker_h new_worker(ucp_context_h context, ucs_thread_mode_t mode)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = mode};
    ucp_worker_h        worker;

    must(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

void read_address(ucp_worker_h worker, address_t *address)
{
    ucp_address_t *own;

    must(ucp_worker_get_address(worker, &own, &address->length), "ucp_worker_get_address");
    must(address->length <= ADDRESS_MAX ? UCS_OK : UCS_ERR_BUFFER_TOO_SMALL, "room for an address");
    memcpy(address->bytes, own, address->length);
    ucp_worker_release_address(worker, own);
}

ucp_ep_h connect_to(ucp_worker_h worker, const address_t *address, ucp_err_handler_cb_t on_failure, void *arg)
{
    ucp_ep_params_t params = {
        .field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address         = (const ucp_address_t *)address->bytes,
        .err_mode        = on_failure == NULL ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb  = on_failure,
        .err_handler.arg = arg,
    };
    ucp_ep_h ep;

    params.field_mask |= on_failure == NULL ? 0 : UCP_EP_PARAM_FIELD_ERR_HANDLER;
    must(ucp_ep_create(worker, &params, &ep), "ucp_ep_create");
    return ep;
}

void set_handler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t function, void *arg)
{
    ucp_am_handler_param_t params = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = id,
        .cb         = function,
        .arg        = arg,
    };

    must(ucp_worker_set_am_recv_handler(worker, &params), "ucp_worker_set_am_recv_handler");
}

ucs_status_ptr_t send_header(ucp_ep_h ep, unsigned id, const void *header, size_t length, unsigned flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    return ucp_am_send_nbx(ep, id, header, length, NULL, 0, &param);
}

void release_request(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

double seconds_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
