/*
 * Peers that answer nothing: their processes are stopped before there is a connection. Endpoints that handle errors hear of it after
 * UCX_UD_TIMEOUT, which has to be a second; others wait until the peer goes on. Meanwhile and afterwards the worker works.
 */
#define _GNU_SOURCE
#include "party.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEAST_MS = 900, MOST_MS = 8000, SECONDS = 3 };

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void open_worker(party_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &self->context));
    WANT(UCS_OK, ucp_worker_create(self->context, &worker_params, &self->worker));
}

static void close_worker(party_t *self)
{
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

/* Tells its address and stops; once it goes on it waits for messages, and says when one has come. */
static void be_silent(party_t *self)
{
    ucp_address_t *address;
    uint64_t       value;
    size_t         length;

    open_worker(self);
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &address, &length));
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    ucp_worker_release_address(self->worker, address);
    raise(SIGSTOP);
    for (;;) {
        ucs_status_ptr_t message = receive_tag(self, &value, sizeof(value), 1);

        while (ucp_request_check_status(message) == UCS_INPROGRESS) {
            ucp_worker_progress(self->worker);
        }
        ucp_request_free(message);
        tell(self);
    }
}

/* With the other process's address, while that is stopped. */
static void meet_silence(party_t *self)
{
    int links[2], status;

    memset(self, 0, sizeof(*self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = fork();
    self->link  = links[self->other == 0];
    close(links[self->other != 0]);
    if (self->other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_silent(self);
    }
    WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
    WANT_TRUE(waitpid(self->other, &status, WUNTRACED) == self->other && WIFSTOPPED(status));
    open_worker(self);
}

static void close_endpoint(party_t *self, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    WANT(UCS_OK, finish(self, ucp_ep_close_nbx(self->ep, &param)));
}

/* Another worker of this process is reached as ever. */
static void still_works(party_t *self)
{
    ucp_ep_h       silent = self->ep;
    uint64_t       value  = 7, got = 0;
    party_t        near   = {.context = self->context};
    ucp_address_t *address;
    size_t         length;

    ucp_worker_params_t params = {.field_mask = 0};
    WANT(UCS_OK, ucp_worker_create(self->context, &params, &near.worker));
    WANT(UCS_OK, ucp_worker_get_address(near.worker, &address, &length));
    party_connect(self, address, UCP_ERR_HANDLING_MODE_PEER);
    ucp_worker_release_address(near.worker, address);
    ucs_status_ptr_t arrives = receive_tag(&near, &got, sizeof(got), 1);
    ucs_status_ptr_t leaves  = send_tag(self, &value, sizeof(value));
    for (long end = now_ms() + MOST_MS; got == 0 && now_ms() < end;) {
        ucp_worker_progress(self->worker);
        ucp_worker_progress(near.worker);
    }
    WANT(UCS_OK, finish(&near, arrives));
    WANT(UCS_OK, finish(self, leaves));
    WANT_TRUE(got == value);
    close_endpoint(self, UCP_EP_CLOSE_FLAG_FORCE);
    self->ep = silent;
    ucp_worker_destroy(near.worker);
}

static void noticed(void)
{
    party_t  self;
    uint64_t value = 1;

    meet_silence(&self);
    long began = now_ms();
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    ucs_status_ptr_t sent = send_tag(&self, &value, sizeof(value));
    WANT_TRUE(UCS_PTR_IS_PTR(sent));
    while (self.failures == 0 && now_ms() - began < MOST_MS) {
        ucp_worker_progress(self.worker);
    }
    long took = now_ms() - began;
    WANT_TRUE(self.failures == 1);
    WANT(UCS_ERR_ENDPOINT_TIMEOUT, self.failure);
    WANT_TRUE(took >= LEAST_MS);
    WANT(UCS_ERR_ENDPOINT_TIMEOUT, finish(&self, sent));
    still_works(&self);
    close_endpoint(&self, UCP_EP_CLOSE_FLAG_FORCE);
    /* Who was only slow is reached by the next endpoint. */
    kill(self.other, SIGCONT);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT(UCS_OK, finish(&self, send_tag(&self, &value, sizeof(value))));
    WANT_TRUE(heard(&self));
    WANT_TRUE(self.failures == 1);
    close_endpoint(&self, UCP_EP_CLOSE_FLAG_FORCE);
    kill_other(&self);
    close_worker(&self);
}

static void waited_for(void)
{
    party_t  self;
    uint64_t value = 1;

    meet_silence(&self);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_NONE);
    ucs_status_ptr_t sent = send_tag(&self, &value, sizeof(value));
    for (long end = now_ms() + SECONDS * 1000; now_ms() < end;) {
        ucp_worker_progress(self.worker);
    }
    WANT(UCS_INPROGRESS, ucp_request_check_status(sent));
    still_works(&self);
    kill(self.other, SIGCONT);
    WANT(UCS_OK, finish(&self, sent));
    WANT_TRUE(heard(&self));
    WANT_TRUE(self.failures == 0);
    close_endpoint(&self, 0);
    kill_other(&self);
    close_worker(&self);
}

static const case_t cases[] = {
    {"silent: noticed where errors are handled", noticed},
    {"silent: waited for where nobody asks", waited_for},
};

CHECK_MAIN(cases)
