/*
 * Two processes, one of which is to die: start, first messages, waiting with a limit, and the checks after the death.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "party.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DETECTION_SECONDS 10

uint64_t          party_features    = ALL_FEATURES & ~(uint64_t)UCP_FEATURE_WAKEUP;
ucs_thread_mode_t party_thread_mode = UCS_THREAD_MODE_SINGLE;

ucp_request_init_callback_t party_request_init = NULL;

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    party_t *self = arg;

    self->failures++;
    self->failure = status;
    WANT_TRUE(ep == self->ep);
}

static int is_loss(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
}

int is_loss_or_canceled(ucs_status_t status)
{
    return is_loss(status) || status == UCS_ERR_CANCELED;
}

void party_connect(party_t *self, const void *address, ucp_err_handling_mode_t mode)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = address,
        .err_mode    = mode,
        .err_handler = {.cb = on_failure, .arg = self},
    };

    WANT(UCS_OK, ucp_ep_create(self->worker, &params, &self->ep));
}

static void party_open(party_t *self, ucp_err_handling_mode_t mode)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = party_thread_mode};
    ucp_address_t      *ours;
    size_t              length;

    if (party_request_init != NULL) {
        params.field_mask |= UCP_PARAM_FIELD_REQUEST_INIT;
        params.request_init = party_request_init;
    }
    WANT(UCS_OK, ucp_init(&params, NULL, &self->context));
    WANT(UCS_OK, ucp_worker_create(self->context, &worker_params, &self->worker));
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &ours, &length));
    WANT_TRUE(send(self->link, ours, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
    ucp_worker_release_address(self->worker, ours);
    party_connect(self, self->theirs, mode);
}

void notify_peer(party_t *self)
{
    WANT_TRUE(send(self->link, "t", 1, MSG_NOSIGNAL) == 1);
}

int wait_notified(party_t *self)
{
    time_t end = time(NULL) + DETECTION_SECONDS;
    char   byte;

    while (recv(self->link, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(self->worker);
        if (time(NULL) > end) {
            return 0;
        }
    }
    return 1;
}

void wait_notified_blocking(party_t *self)
{
    char byte;

    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
}

void progress_until_killed(party_t *self)
{
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

ucs_status_t finish(party_t *self, ucs_status_ptr_t request)
{
    return finish_on(self->worker, request, DETECTION_SECONDS);
}

ucs_status_ptr_t send_tag(party_t *self, const void *data, size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_tag_send_nbx(self->ep, data, size, 1, &param);
}

ucs_status_ptr_t receive_tag(party_t *self, void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_tag_recv_nbx(self->worker, data, size, tag, -1, &param);
}

void meet(party_t *self, int first)
{
    uint64_t value = 5, got = 0;

    if (first) {
        WANT(UCS_OK, finish(self, send_tag(self, &value, 8)));
    }
    WANT(UCS_OK, finish(self, receive_tag(self, &got, 8, 1)));
    if (!first) {
        WANT(UCS_OK, finish(self, send_tag(self, &value, 8)));
    }
}

/* --- both in containers of their own: neither sees the other's process id --- */

/* The socket on which their parent accepts orders for the other process; none if the other is a child. */
static int parent_link = -1;

/* A child with process ids of its own, and a /proc that shows them. */
static pid_t clone_in_namespace(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        WANT_TRUE(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                  mount("proc", "/proc", "proc", 0, NULL) == 0);
    }
    return pid;
}

/* Kills the other one or waits for its end, as the test orders, until the test ends; then exits, too. */
static void serve_orders(int link, pid_t test, pid_t other)
{
    int  status;
    char order;

    while (recv(link, &order, 1, 0) == 1) {
        if (order == 'k') {
            kill(other, SIGKILL);
        }
        waitpid(other, NULL, 0);
        WANT_TRUE(send(link, "d", 1, MSG_NOSIGNAL) == 1);
    }
    waitpid(test, &status, 0);
    kill(other, SIGKILL);
    if (WIFSIGNALED(status)) {
        WANT_TRUE(!"the test was killed");
    }
    _exit(WIFEXITED(status) && !check_failed() ? WEXITSTATUS(status) : 1);
}

/* Like fork(), but both are siblings, and this process serves them as their parent. */
static pid_t siblings(void)
{
    int link[2];

    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) == 0);
    pid_t other = clone_in_namespace();
    if (other == 0) {
        close(link[0]);
        close(link[1]);
        return 0;
    }
    pid_t test = clone_in_namespace();
    if (test != 0) {
        close(link[1]);
        serve_orders(link[0], test, other);
    }
    close(link[0]);
    parent_link = link[1];
    return other;
}

static void order(char what)
{
    char done;

    WANT_TRUE(send(parent_link, &what, 1, MSG_NOSIGNAL) == 1 && recv(parent_link, &done, 1, 0) == 1);
}

void start(party_t *self, ucp_err_handling_mode_t mode, void (*act)(party_t *))
{
    int links[2];

    memset(self, 0, sizeof(*self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = getenv("PARTY_SIBLINGS") != NULL ? siblings() : fork();
    self->link  = links[self->other == 0];
    close(links[self->other != 0]);
    if (self->other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    party_open(self, mode);
    meet(self, self->other != 0);
    if (self->other == 0) {
        act(self);
        if (check_failed()) {
            _exit(1); /* without a notification, for which the parent waits in vain */
        }
        notify_peer(self);
        for (;;) {
            pause();
        }
    }
}

void kill_other(party_t *self)
{
    if (parent_link >= 0) {
        order('k');
        return;
    }
    WANT_TRUE(kill(self->other, SIGKILL) == 0);
    waitpid(self->other, NULL, 0);
}

void wait_other(party_t *self)
{
    if (parent_link >= 0) {
        order('w');
    } else {
        waitpid(self->other, NULL, 0);
    }
}

void check_failure(party_t *self)
{
    time_t end = time(NULL) + DETECTION_SECONDS;

    while (self->failures == 0 && time(NULL) < end) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
    WANT_TRUE(is_loss(self->failure));
    for (int i = 0; i < 10000; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
}

void check_after_failure(party_t *self)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    uint64_t            value = 1;
    fixture_t           alone;

    WANT_TRUE(is_loss_or_canceled(finish(self, send_tag(self, &value, 8))));
    WANT_TRUE(finish(self, ucp_ep_flush_nbx(self->ep, &force)) != UCS_INPROGRESS);
    WANT_TRUE(finish(self, ucp_ep_close_nbx(self->ep, &force)) != UCS_INPROGRESS);
    WANT_TRUE(self->failures == 1);
    alone = fixture_open(ALL_FEATURES);
    fixture_works(&alone);
    fixture_close(&alone);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

void kill_and_check(party_t *self)
{
    WANT_TRUE(wait_notified(self));
    kill_other(self);
    check_failure(self);
    check_after_failure(self);
}
