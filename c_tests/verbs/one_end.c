/*
 * A connection that one end has lost, because nothing was acknowledged for its UCX_UD_TIMEOUT, while the other end did
 * not progress, and waits longer: that end notices the loss when it sends, or probes, though the process of the first
 * goes on. Then both connect again. HCACTL names the program that has datagrams lost.
 */
#define _GNU_SOURCE
#include "apart.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LONG = 1 << 20, NOTICED_SECONDS = 6 };

static char data[LONG];

static void lose_datagrams(int permille)
{
    char command[512];

    snprintf(command, sizeof(command), "%s ud_drop_permille=%d > /dev/null", getenv("HCACTL"), permille);
    WANT_TRUE(system(command) == 0);
}

/* Opens a worker with this timeout, and connects it to the other process's. */
static void open_end(party_t *self, const char *timeout, ucp_err_handling_mode_t mode)
{
    ucp_address_t *address;
    size_t         length;

    setenv("UCX_UD_TIMEOUT", timeout, 1);
    open_worker(self);
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &address, &length));
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
    ucp_worker_release_address(self->worker, address);
    party_connect(self, self->theirs, mode);
    meet(self, self->other != 0);
}

static void wait_until(party_t *self, const unsigned *count)
{
    for (time_t end = time(NULL) + NOTICED_SECONDS; *count == 0 && time(NULL) < end;) {
        ucp_worker_progress(self->worker);
    }
}

static void connect_again(party_t *self, ucp_err_handling_mode_t mode)
{
    const ucp_request_param_t plain = {.op_attr_mask = 0};

    /* By force only where errors are handled. */
    if (mode == UCP_ERR_HANDLING_MODE_PEER) {
        close_endpoint(self, UCP_EP_CLOSE_FLAG_FORCE);
    } else {
        WANT_TRUE(finish(self, ucp_ep_close_nbx(self->ep, &plain)) != UCS_INPROGRESS);
    }
    notify_peer(self);
    WANT_TRUE(wait_notified(self));
    party_connect(self, self->theirs, mode);
    meet(self, self->other != 0);
    WANT_TRUE(self->failures <= 1);
    close_endpoint(self, 0);
    notify_peer(self);
    WANT_TRUE(wait_notified(self));
    close_worker(self);
}

/* The end that waits longer; `act` has to notice the loss. */
static void stay(party_t *self, ucp_err_handling_mode_t mode, void (*act)(party_t *))
{
    open_end(self, "4s", mode);
    notify_peer(self);
    wait_notified_blocking(self);
    act(self);
    connect_again(self, mode);
    _exit(check_failed());
}

static void lose_at_one_end(ucp_err_handling_mode_t mode, void (*act)(party_t *))
{
    party_t self;
    int     links[2], status;

    memset(&self, 0, sizeof(self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self.other = fork();
    self.link  = links[self.other == 0];
    close(links[self.other != 0]);
    if (self.other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stay(&self, mode, act);
    }
    open_end(&self, "500ms", mode);
    WANT_TRUE(wait_notified(&self));
    lose_datagrams(1000);
    WANT_TRUE(is_loss_or_canceled(finish(&self, send_tag(&self, data, LONG))));
    WANT_TRUE(self.failures == (mode == UCP_ERR_HANDLING_MODE_PEER));
    lose_datagrams(0);
    notify_peer(&self);
    connect_again(&self, mode);
    WANT_TRUE(waitpid(self.other, &status, 0) == self.other && status == 0);
}

/* --- how the other end notices it --- */

static void send_long(party_t *self)
{
    WANT(UCS_ERR_CONNECTION_RESET, finish(self, send_tag(self, data, LONG)));
}

static void send_and_fail(party_t *self)
{
    send_long(self);
    WANT_TRUE(self->failures == 1);
    WANT(UCS_ERR_CONNECTION_RESET, self->failure);
}

/* By UCX_KEEPALIVE_INTERVAL. */
static void only_receive(party_t *self)
{
    ucs_status_ptr_t receive = receive_tag(self, data, LONG, 1);

    wait_until(self, &self->failures);
    WANT_TRUE(self->failures == 1);
    WANT(UCS_ERR_CONNECTION_RESET, self->failure);
    WANT(UCS_INPROGRESS, ucp_request_check_status(receive));
    ucp_request_cancel(self->worker, receive);
    WANT(UCS_ERR_CANCELED, finish(self, receive));
}

static void found_by_send(void)
{
    lose_at_one_end(UCP_ERR_HANDLING_MODE_PEER, send_and_fail);
}

static void found_by_probe(void)
{
    lose_at_one_end(UCP_ERR_HANDLING_MODE_PEER, only_receive);
}

static void found_without_handling(void)
{
    lose_at_one_end(UCP_ERR_HANDLING_MODE_NONE, send_long);
}

static const case_t cases[] = {
    {"one end: found by a send", found_by_send},
    {"one end: found by a probe", found_by_probe},
    {"one end: without error handling", found_without_handling},
};

CHECK_MAIN(cases)
