/*
 * A death is detected within one second by a process that sleeps, in any call, and by one that progresses only now and
 * then; and a sleeping process is woken by an orderly close, too. No process goes to sleep with an event pending.
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "party.h"
#include "workers.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The machine may be busy with other tests. */
#define DETECTION_SECONDS 2.0

/* Not through shared memory: connections are made. */
static int over_wire(void)
{
    return !transport_has("memory");
}

static void nothing(party_t *self)
{
    (void)self;
}

/* --- an action once the main thread sleeps --- */

typedef struct {
    pid_t        sleeper;
    volatile int ready; /* the main thread is about to sleep */
    party_t     *self;
    void (*act)(party_t *);
    double    acted_at;
    pthread_t thread;
} later_t;

static int sleeps(pid_t thread)
{
    char path[64], stat[512] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
    int fd = open(path, O_RDONLY);
    if (read(fd, stat, sizeof(stat) - 1) < 0) {
        abort();
    }
    close(fd);
    char *end = strrchr(stat, ')');
    return end != NULL && end[2] == 'S';
}

static void *run_later(void *arg)
{
    later_t *later = arg;

    while (!later->ready || !sleeps(later->sleeper)) {
        sched_yield();
    }
    later->acted_at = seconds_now();
    later->act(later->self);
    return NULL;
}

static void later_start(later_t *later, party_t *self, void (*act)(party_t *))
{
    *later = (later_t){.sleeper = (pid_t)syscall(SYS_gettid), .self = self, .act = act};
    WANT_TRUE(pthread_create(&later->thread, NULL, run_later, later) == 0);
}

/* Sleeps until there is something to do, as the documentation of ucp_worker_arm() says. */
static void by_poll(later_t *later)
{
    struct pollfd fd = {.events = POLLIN};

    WANT(UCS_OK, ucp_worker_get_efd(later->self->worker, &fd.fd));
    if (ucp_worker_progress(later->self->worker) == 0 && ucp_worker_arm(later->self->worker) == UCS_OK) {
        later->ready = 1;
        WANT_TRUE(poll(&fd, 1, 10000) == 1);
    }
}

static void by_wait(later_t *later)
{
    if (ucp_worker_progress(later->self->worker) == 0) {
        later->ready = 1; /* ucp_worker_arm() may still return BUSY; then this thread does not sleep */
        WANT(UCS_OK, ucp_worker_wait(later->self->worker));
    }
}

static void until_failure(later_t *later, void (*sleep_once)(later_t *))
{
    party_t *self = later->self;
    double   end  = seconds_now() + 10;

    while (self->failures == 0 && seconds_now() < end) {
        sleep_once(later);
    }
    pthread_join(later->thread, NULL);
    WANT_TRUE(self->failures == 1);
    if (seconds_now() - later->acted_at > DETECTION_SECONDS) {
        fprintf(stderr, "noticed after %.3f s\n", seconds_now() - later->acted_at);
    }
    WANT_TRUE(seconds_now() - later->acted_at < DETECTION_SECONDS);
    for (int i = 0; i < 10000; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
}

static void killer(party_t *self)
{
    kill_other(self);
}

static void sleeper_loses(void (*sleep_once)(later_t *), ucp_err_handling_mode_t mode)
{
    party_t          self;
    later_t          later;
    char            *data = calloc(1, 1 << 20);
    ucs_status_ptr_t sent;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, mode, nothing);
    WANT_TRUE(wait_notified(&self));
    sent = send_tag(&self, data, 1 << 20);
    later_start(&later, &self, killer);
    until_failure(&later, sleep_once);
    WANT_TRUE(is_loss_or_canceled(finish(&self, sent)));
    check_after_failure(&self);
    free(data);
}

static void poll_loses(void)
{
    sleeper_loses(by_poll, UCP_ERR_HANDLING_MODE_PEER);
}

static void wait_loses(void)
{
    sleeper_loses(by_wait, UCP_ERR_HANDLING_MODE_PEER);
}

static void failover_loses(void)
{
    sleeper_loses(by_poll, UCP_ERR_HANDLING_MODE_FAILOVER);
}

/* The other process destroys its worker and lives on: no process ends, and the sleeper is woken. */
static void destroy_when_notified(party_t *self)
{
    char byte;

    notify_peer(self);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    ucp_worker_destroy(self->worker);
}

static void notify_other(party_t *self)
{
    notify_peer(self);
}

static void close_when_notified(party_t *self)
{
    char                byte;
    ucp_request_param_t flush = {.op_attr_mask = 0};

    notify_peer(self);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    WANT(UCS_OK, finish(self, ucp_ep_close_nbx(self->ep, &flush)));
}

static void sleeper_is_left_by(void (*act)(party_t *))
{
    party_t self;
    later_t later;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(wait_notified(&self));
    later_start(&later, &self, notify_other);
    until_failure(&later, by_poll);
    kill_other(&self);
    check_after_failure(&self);
}

static void sleeper_is_left(void)
{
    sleeper_is_left_by(destroy_when_notified);
}

/* The other process closes in order: the sleeper does not close its end soon, and gets the failure. */
static void sleeper_is_closed(void)
{
    sleeper_is_left_by(close_when_notified);
}

/* --- a process that waits for room in a socket, or for a connection, sleeps --- */

/* More results UCS_ERR_BUSY than this, between two sleeps, are a busy loop. */
#define MAX_BUSY 1000

/* Sleeps until the request has ended; once it sleeps, the other process is notified to go on. */
static void sleep_until_done(party_t *self, ucs_status_ptr_t request)
{
    struct pollfd fd = {.events = POLLIN};
    later_t       later;
    int           slept = 0, busy = 0;

    WANT(UCS_OK, ucp_worker_get_efd(self->worker, &fd.fd));
    later_start(&later, self, notify_other);
    while (ucp_request_check_status(request) == UCS_INPROGRESS && busy < MAX_BUSY) {
        if (ucp_worker_progress(self->worker) != 0) {
            continue;
        }
        if (ucp_worker_arm(self->worker) == UCS_OK) {
            later.ready = 1;
            WANT_TRUE(poll(&fd, 1, 10000) == 1);
            slept++;
            busy = 0;
        } else {
            busy++;
        }
    }
    WANT_TRUE(slept > 0);
    WANT_TRUE(busy < MAX_BUSY);
    if (busy == MAX_BUSY) {
        _exit(1); /* the other thread waits for this one to sleep */
    }
    pthread_join(later.thread, NULL);
    WANT(UCS_OK, finish(self, request));
}

/* Does not progress until notified, then progresses until killed. */
static void progress_when_notified(party_t *self)
{
    char byte;

    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    while (!check_failed()) {
        ucp_worker_progress(self->worker);
    }
}

static void end_of(party_t *self)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    kill_other(self);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self->ep, &force));
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void sleeps_until_room(void)
{
    enum { MOST = 4000, LENGTH = 8000 };
    static ucs_status_ptr_t sent[MOST];
    static char             message[LENGTH];
    party_t                 self;
    int                     count = 0;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, UCP_ERR_HANDLING_MODE_PEER, progress_when_notified);
    do {
        sent[count] = send_tag(&self, message, LENGTH);
        ucp_worker_progress(self.worker);
    } while (!UCS_PTR_IS_PTR(sent[count++]) && count < MOST);
    WANT_TRUE(count < MOST);
    if (transport_has("room_event")) {
        sleep_until_done(&self, sent[count - 1]);
    } else { /* no event signals room, for example in a ring: the sender has to poll */
        WANT(UCS_ERR_BUSY, ucp_worker_arm(self.worker));
        notify_peer(&self);
        WANT(UCS_OK, finish(&self, sent[count - 1]));
    }
    end_of(&self);
}

/* A second worker of the other process that does not reply yet. */
static void answer_later(party_t *self)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        second;
    ucp_address_t      *address;
    size_t              length;
    char                byte;

    WANT(UCS_OK, ucp_worker_create(self->context, &params, &second));
    WANT(UCS_OK, ucp_worker_get_address(second, &address, &length));
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    while (!check_failed()) {
        ucp_worker_progress(second);
        ucp_worker_progress(self->worker);
    }
}

static void sleeps_until_connected(void)
{
    party_t             self, second;
    char                address[1024];
    uint64_t            value = 1;
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, UCP_ERR_HANDLING_MODE_PEER, answer_later);
    WANT_TRUE(recv(self.link, address, sizeof(address), 0) > 0);
    second = self;
    party_connect(&second, address, UCP_ERR_HANDLING_MODE_PEER);
    ucs_status_ptr_t sent = send_tag(&second, &value, 8);
    WANT_TRUE(UCS_PTR_IS_PTR(sent) == over_wire()); /* a ring can be written to at once */
    if (over_wire()) {
        sleep_until_done(&self, sent);
    }
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(second.ep, &force));
    end_of(&self);
}

/* Progresses at intervals, after having progressed without a pause. */
static void slow(long nanoseconds)
{
    party_t         self;
    struct timespec pause = {.tv_nsec = nanoseconds};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < 200000; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    double killed = seconds_now();
    while (self.failures == 0 && seconds_now() < killed + 10) {
        nanosleep(&pause, NULL);
        ucp_worker_progress(self.worker);
    }
    if (seconds_now() - killed > DETECTION_SECONDS) {
        fprintf(stderr, "noticed after %.3f s\n", seconds_now() - killed);
    }
    WANT_TRUE(self.failures == 1 && seconds_now() - killed < DETECTION_SECONDS);
    check_after_failure(&self);
}

static void every_millisecond(void)
{
    slow(1000000);
}

static void every_ten(void)
{
    slow(10000000);
}

/* --- a process that sleeps only when progress returns 0 --- */

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
} side_t;

static side_t side_on(const char *transports)
{
    side_t              side;
    ucp_config_t       *config;
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker = {.field_mask = 0};

    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    WANT(UCS_OK, ucp_config_modify(config, "TLS", transports));
    WANT(UCS_OK, ucp_init(&params, config, &side.context));
    ucp_config_release(config);
    WANT(UCS_OK, ucp_worker_create(side.context, &worker, &side.worker));
    return side;
}

static ucp_ep_h endpoint(side_t from, side_t to)
{
    ucp_address_t  *address;
    size_t          length;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_ep_h        ep;

    WANT(UCS_OK, ucp_worker_get_address(to.worker, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(from.worker, &params, &ep));
    ucp_worker_release_address(to.worker, address);
    return ep;
}

static void end_side(side_t side)
{
    ucp_worker_destroy(side.worker);
    ucp_cleanup(side.context);
}

static void end_request(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static int is_in_flight(ucs_status_ptr_t request)
{
    return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

/* Sends a message from one to the other; `wait` progresses until it has arrived. */
static void send_word(side_t from, ucp_ep_h ep, side_t to, void (*wait)(side_t, side_t, ucs_status_ptr_t))
{
    ucp_request_param_t plain = {.op_attr_mask = 0};
    uint64_t            word  = 0;
    ucs_status_ptr_t    received, sent, flushed;

    received = ucp_tag_recv_nbx(to.worker, &word, sizeof(word), 1, -1, &plain);
    sent     = ucp_tag_send_nbx(ep, "a word..", sizeof(word), 1, &plain);
    flushed  = ucp_ep_flush_nbx(ep, &plain);
    wait(from, to, received);
    while (is_in_flight(sent) || is_in_flight(flushed)) {
        ucp_worker_progress(from.worker);
    }
    WANT_TRUE(memcmp(&word, "a word..", sizeof(word)) == 0);
    end_request(received);
    end_request(sent);
    end_request(flushed);
}

static void wait_together(side_t from, side_t to, ucs_status_ptr_t received)
{
    while (is_in_flight(received)) {
        ucp_worker_progress(from.worker);
        ucp_worker_progress(to.worker);
    }
}

/* Progresses every 10 ms, and expects a non-zero result when the message has arrived. */
static void wait_slowly(side_t from, side_t to, ucs_status_ptr_t received)
{
    while (is_in_flight(received)) {
        for (double began = seconds_now(); seconds_now() - began < 0.010;) {
            ucp_worker_progress(from.worker);
        }
        unsigned happened = ucp_worker_progress(to.worker);
        WANT_TRUE(is_in_flight(received) || happened > 0);
    }
}

/* A worker with a ring and a connection: different parts of progress receive a message, and whichever does, the
 * result is not 0. */
static void progress_says_it(void)
{
    side_t   self = side_on("all"), near = side_on("all"), far = side_on("tcp");
    ucp_ep_h ring = endpoint(near, self), connection = endpoint(far, self);

    send_word(near, ring, self, wait_together);
    send_word(far, connection, self, wait_together);
    for (int i = 0; i < 20; i++) {
        send_word(far, connection, self, wait_slowly);
    }
    end_side(far);
    end_side(near);
    end_side(self);
}

static void on_late_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    WANT(transport_has("refusal") ? UCS_ERR_UNREACHABLE : UCS_ERR_ENDPOINT_TIMEOUT, status);
    ++*(int *)arg;
}

/* No endpoint to a dead peer can be made. Over TCP connecting detects that, and the error handler is called. */
static void made_too_late(void)
{
    party_t         self;
    ucp_ep_h        second;
    int             failures   = 0;
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_late_failure, .arg = &failures},
    };

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    check_failure(&self);
    params.address = (const ucp_address_t *)self.theirs;
    WANT(over_wire() ? UCS_OK : UCS_ERR_UNREACHABLE, ucp_ep_create(self.worker, &params, &second));
    if (over_wire()) {
        ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

        for (double end = seconds_now() + 10; failures == 0 && seconds_now() < end;) {
            ucp_worker_progress(self.worker);
        }
        WANT_TRUE(failures == 1);
        WANT_PTR(UCS_OK, ucp_ep_close_nbx(second, &force));
    }
    check_after_failure(&self);
}

static const case_t cases[] = {
    {"waiting: in poll", poll_loses},
    {"waiting: in ucp_worker_wait", wait_loses},
    {"waiting: FAILOVER", failover_loses},
    {"waiting: the other destroys its worker", sleeper_is_left},
    {"waiting: the other closes", sleeper_is_closed},
    {"waiting: for room in a socket", sleeps_until_room},
    {"waiting: for a connection", sleeps_until_connected},
    {"waiting: progress every millisecond", every_millisecond},
    {"waiting: progress every 10 milliseconds", every_ten},
    {"waiting: progress says what it did", progress_says_it},
    {"waiting: an endpoint to the dead", made_too_late},
};

CHECK_MAIN(cases)
