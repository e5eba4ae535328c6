/* Wakeup: file descriptor, arm, wait and signal, on an idle worker and with a peer that sends (rules.txt 2.11). */
#define _GNU_SOURCE
#include "bed.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TAG 0x77

/* Progresses until the worker can be armed; then it is idle. */
static ucs_status_t arm(bed_t *bed, side_t *side)
{
    ucs_status_t status;

    BED_UNTIL(bed, (status = ucp_worker_arm(side->worker)) != UCS_ERR_BUSY);
    return status;
}

static int readable(int fd, int milliseconds)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, milliseconds);
}

/* UCX's descriptor is readable over TCP without an event: it is not tested there. */
static void quiet_fact(side_t *side, const char *when, int fd)
{
    fact(side, "%s: %d", when, on_rucp() || !over_sockets() ? readable(fd, 0) : 0);
}

static void signal_facts(bed_t *bed, side_t *side)
{
    int fd = -1, again = -1;

    fact(side, "get_efd: %s", status_name(ucp_worker_get_efd(side->worker, &fd)));
    fact(side, "get_efd again: %s", status_name(ucp_worker_get_efd(side->worker, &again)));
    fact(side, "one descriptor: %d", fd >= 0 && fd == again);
    fact(side, "arm: %s", status_name(arm(bed, side)));
    quiet_fact(side, "quiet", fd);
    fact(side, "signal: %s", status_name(ucp_worker_signal(side->worker)));
    fact(side, "readable: %d", readable(fd, 0));
    fact(side, "arm after a signal: %s", status_name(ucp_worker_arm(side->worker)));
    fact(side, "arm again: %s", status_name(arm(bed, side)));
    quiet_fact(side, "quiet again", fd);
    ucp_worker_signal(side->worker);
    ucp_worker_signal(side->worker);
    fact(side, "wait after two signals: %s", status_name(ucp_worker_wait(side->worker)));
    fact(side, "both are gone: %s", status_name(arm(bed, side)));
}

/* B sleeps on its descriptor until A's message arrives. Only with two processes can the sleeper be woken. */
static void sleep_facts(bed_t *bed, size_t size)
{
    char                data[256 * 1024];
    ucp_request_param_t param   = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent    = NULL, received = NULL;
    unsigned            bad_arm = 0;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, data, size, TAG, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        data_fill(data, size, 3);
        sent = ucp_tag_send_nbx(bed->a->ep, data, size, TAG, &param);
    }
    if (bed->topology == TOPOLOGY_FORK && bed->b != NULL) {
        int fd;
        ucp_worker_get_efd(bed->b->worker, &fd);
        while (ucp_request_check_status(received) == UCS_INPROGRESS) {
            if (ucp_worker_progress(bed->b->worker) != 0) {
                continue;
            }
            ucs_status_t status = ucp_worker_arm(bed->b->worker);
            if (status == UCS_OK && readable(fd, 5000) != 1) {
                fact(bed->b, "HANG: nobody woke the sleeper");
                _exit(3);
            }
            bad_arm += status != UCS_OK && status != UCS_ERR_BUSY;
        }
    }
    if (bed->b != NULL) {
        fact(bed->b, "received: %s", status_name(bed_wait(bed, received)));
        fact(bed->b, "data %s, arm failed %u", data_check(data, size, 3), bad_arm);
    }
    if (bed->a != NULL) {
        fact(bed->a, "sent: %s", status_name(bed_wait(bed, sent)));
    }
    bed_sync(bed);
}

/* A worker that adds its events to the user's epoll set. */
static void user_set_facts(side_t *side)
{
    int                 set    = epoll_create1(0), fd;
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_EVENT_FD | UCP_WORKER_PARAM_FIELD_USER_DATA,
        .event_fd   = set,
        .user_data  = side,
    };
    ucp_worker_h       worker;
    struct epoll_event event = {.events = 0};

    fact(side, "create on the user's set: %s", status_name(ucp_worker_create(side->context, &params, &worker)));
    fact(side, "get_efd there: %s", status_name(ucp_worker_get_efd(worker, &fd)));
    while (ucp_worker_progress(worker) != 0 || ucp_worker_arm(worker) == UCS_ERR_BUSY) {
    }
    fact(side, "quiet: %d", epoll_wait(set, &event, 1, 0));
    ucp_worker_signal(worker);
    int events = epoll_wait(set, &event, 1, 1000);
    fact(side, "signalled: %d, user data is ours %d", events, event.data.ptr == (void *)side);
    ucp_worker_destroy(worker);
    fact(side, "set is empty again: %d", epoll_wait(set, &event, 1, 0));
    close(set);
}

/* Sleeps until there is something to do; returns how often it slept. */
static unsigned sleep_until(side_t *side, ucs_status_ptr_t request)
{
    unsigned sleeps = 0;
    int      fd;

    ucp_worker_get_efd(side->worker, &fd);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        if (ucp_worker_progress(side->worker) == 0 && ucp_worker_arm(side->worker) == UCS_OK) {
            sleeps++;
            if (readable(fd, 10000) != 1) {
                fact(side, "HANG: nobody woke the sleeper");
                _exit(3);
            }
        }
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    return sleeps;
}

/* Ten thousand times each side waits, asleep, for the other: no wakeup may be lost. */
static void many_sleeps(bed_t *bed)
{
    enum { ROUNDS = 5000 };
    ucp_request_param_t param  = {.op_attr_mask = 0};
    side_t             *side   = bed->a != NULL ? bed->a : bed->b;
    uint64_t            number = 0, wrong = 0;

    if (bed->topology != TOPOLOGY_FORK) {
        return;
    }
    for (uint64_t i = 0; i < ROUNDS; i++) {
        if (bed->a != NULL) {
            sleep_until(side, ucp_tag_send_nbx(side->ep, &i, 8, TAG, &param));
        }
        sleep_until(side, ucp_tag_recv_nbx(side->worker, &number, 8, TAG, -1, &param));
        wrong += number != i;
        if (bed->b != NULL) {
            sleep_until(side, ucp_tag_send_nbx(side->ep, &i, 8, TAG, &param));
        }
    }
    fact(side, "ten thousand sleeps, wrong answers %u", (unsigned)wrong);
    bed_sync(bed);
}

/* A worker with edge-triggered events, in a set of the user's and in one of its own. */
static void edge_facts(side_t *side, int own_set)
{
    int                 set    = own_set ? -1 : epoll_create1(0);
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_EVENTS | (own_set ? 0 : UCP_WORKER_PARAM_FIELD_EVENT_FD),
        .events     = UCP_WAKEUP_RX | UCP_WAKEUP_TX | UCP_WAKEUP_EDGE,
        .event_fd   = set,
    };
    struct epoll_event event;
    ucp_worker_h       worker;

    fact(side, "create with edges: %s", status_name(ucp_worker_create(side->context, &params, &worker)));
    if (own_set) {
        fact(side, "get_efd: %s", status_name(ucp_worker_get_efd(worker, &set)));
    }
    for (int i = 0; i < 3; i++) {
        while (ucp_worker_progress(worker) != 0 || ucp_worker_arm(worker) == UCS_ERR_BUSY) {
        }
        fact(side, "quiet: %d", epoll_wait(set, &event, 1, 0));
        ucp_worker_signal(worker);
        fact(side, "edge: %d", epoll_wait(set, &event, 1, 1000));
        fact(side, "once: %d", epoll_wait(set, &event, 1, 0));
    }
    ucp_worker_destroy(worker);
    if (!own_set) {
        close(set);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};

    bed_open(bed, &params);
    if (bed->a != NULL) {
        signal_facts(bed, bed->a);
        user_set_facts(bed->a);
        edge_facts(bed->a, 0);
        edge_facts(bed->a, 1);
    }
    if (bed->b != NULL && bed->topology != TOPOLOGY_SELF) {
        signal_facts(bed, bed->b);
    }
    bed_sync(bed);
    for (int i = 0; i < 10; i++) {
        sleep_facts(bed, 8);
        sleep_facts(bed, 5000);
        sleep_facts(bed, 256 * 1024);
    }
    many_sleeps(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
