/*
 * Contexts, workers and endpoints of programs that open many of them. A process that cannot open one of them ends
 * (must() of check.h).
 */
#ifndef WORKERS_H
#define WORKERS_H

#include <ucp/api/ucp.h>

#include <stddef.h>
#include <stdint.h>

enum { ADDRESS_MAX = 1024 };

/* A worker's address as another process gets it. */
typedef struct {
    size_t        length;
    unsigned char bytes[ADDRESS_MAX];
} address_t;

ucp_context_h new_context(uint64_t features);
ucp_worker_h  new_worker(ucp_context_h context, ucs_thread_mode_t mode);
void          read_address(ucp_worker_h worker, address_t *address);
/* An endpoint; with `on_failure`, of the mode PEER: its handler is called with `arg`. */
ucp_ep_h connect_to(ucp_worker_h worker, const address_t *address, ucp_err_handler_cb_t on_failure, void *arg);
/* Sets the handler of an id of active messages. */
void set_handler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t function, void *arg);
/* A short active message of this header alone, with UCP_AM_SEND_FLAG_* `flags`. */
ucs_status_ptr_t send_header(ucp_ep_h ep, unsigned id, const void *header, size_t length, unsigned flags);
/* Frees a request, complete or not. */
void release_request(ucs_status_ptr_t request);
/* Monotonic time in seconds. */
double seconds_now(void);

#endif
