#include "connect.h"

#include "check.h"

ucp_ep_h connect_workers_as(ucp_err_handling_mode_t mode, ucp_worker_h from, ucp_worker_h to,
                            ucp_err_handler_cb_t on_failure, void *arg)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = mode,
        .err_handler = {.cb = on_failure, .arg = arg},
    };
    ucp_address_t *address;
    size_t         length;
    ucp_ep_h       ep = NULL;

    WANT(UCS_OK, ucp_worker_get_address(to, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(from, &params, &ep));
    ucp_worker_release_address(to, address);
    return ep;
}

ucp_ep_h connect_workers(ucp_worker_h from, ucp_worker_h to, ucp_err_handler_cb_t on_failure, void *arg)
{
    return connect_workers_as(UCP_ERR_HANDLING_MODE_PEER, from, to, on_failure, arg);
}
