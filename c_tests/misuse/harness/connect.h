/* Endpoints between two workers of one process. */
#ifndef CONNECT_H
#define CONNECT_H

#include <ucp/api/ucp.h>

/* Creates an endpoint with error handling, whose handler is called with `arg`, from one worker to the other. */
ucp_ep_h connect_workers(ucp_worker_h from, ucp_worker_h to, ucp_err_handler_cb_t on_failure, void *arg);

/* The same, with this mode of error handling. */
ucp_ep_h connect_workers_as(ucp_err_handling_mode_t mode, ucp_worker_h from, ucp_worker_h to,
                            ucp_err_handler_cb_t on_failure, void *arg);

#endif
