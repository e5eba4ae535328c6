/* One of two processes that are not connected yet: one has the other's worker address, and nothing more. */
#ifndef RUCP_VERBS_APART_H
#define RUCP_VERBS_APART_H

#include "party.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void open_worker(party_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &self->context));
    WANT(UCS_OK, ucp_worker_create(self->context, &worker_params, &self->worker));
}

static inline void close_worker(party_t *self)
{
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

/* Sends the worker's address and, if `silent`, stops the process. Then receives messages and acknowledges each one. */
static inline void be_reached(party_t *self, int silent)
{
    ucp_address_t *address;
    uint64_t       value;
    size_t         length;

    open_worker(self);
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &address, &length));
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    ucp_worker_release_address(self->worker, address);
    if (silent) {
        raise(SIGSTOP);
    }
    for (;;) {
        ucs_status_ptr_t message = receive_tag(self, &value, sizeof(value), 1);

        while (ucp_request_check_status(message) == UCS_INPROGRESS) {
            ucp_worker_progress(self->worker);
        }
        ucp_request_free(message);
        notify_peer(self);
    }
}

/* Starts the other process; with `silent` that process is stopped when this function returns. */
static inline void start_apart(party_t *self, int silent)
{
    int links[2], status;

    memset(self, 0, sizeof(*self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = fork();
    self->link  = links[self->other == 0];
    close(links[self->other != 0]);
    if (self->other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_reached(self, silent);
    }
    WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
    WANT_TRUE(!silent || (waitpid(self->other, &status, WUNTRACED) == self->other && WIFSTOPPED(status)));
    open_worker(self);
}

static inline void close_endpoint(party_t *self, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    WANT(UCS_OK, finish(self, ucp_ep_close_nbx(self->ep, &param)));
}

#endif
