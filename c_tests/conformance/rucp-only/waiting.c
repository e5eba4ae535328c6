/*
 * A death is noticed within a second by who sleeps, whatever he sleeps in, and by who progresses only now and then; and
 * who sleeps is told of an end in order, too.
 */
#define _GNU_SOURCE
#include "party.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The machine may be busy with other tests. */
#define NOTICE_SECONDS 2.0

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nothing(party_t *self)
{
    (void)self;
}

/* --- something that happens once the main thread sleeps --- */

typedef struct {
    pid_t        sleeper;
    volatile int ready; /* it is about to */
    party_t     *self;
    void (*act)(party_t *);
    double   acted;
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
    later->acted = now();
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
        later->ready = 1; /* it may still say that there is something to do; then it does not sleep */
        WANT(UCS_OK, ucp_worker_wait(later->self->worker));
    }
}

static void until_failure(later_t *later, void (*sleep_once)(later_t *))
{
    party_t *self = later->self;
    double   end  = now() + 10;

    while (self->failures == 0 && now() < end) {
        sleep_once(later);
    }
    pthread_join(later->thread, NULL);
    WANT_TRUE(self->failures == 1);
    if (now() - later->acted > NOTICE_SECONDS) {
        fprintf(stderr, "noticed after %.3f s\n", now() - later->acted);
    }
    WANT_TRUE(now() - later->acted < NOTICE_SECONDS);
    for (int i = 0; i < 10000; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
}

static void killer(party_t *self)
{
    kill(self->other, SIGKILL);
}

static void sleeper_loses(void (*sleep_once)(later_t *), ucp_err_handling_mode_t mode)
{
    party_t          self;
    later_t          later;
    char            *data = calloc(1, 1 << 20);
    ucs_status_ptr_t sent;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, mode, nothing);
    WANT_TRUE(heard(&self));
    sent = send_tag(&self, data, 1 << 20);
    later_start(&later, &self, killer);
    until_failure(&later, sleep_once);
    WANT_TRUE(is_loss_or_canceled(finish(&self, sent)));
    waitpid(self.other, NULL, 0);
    aftermath(&self);
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

/* The other destroys its worker and lives on: nobody's process ends, and the sleeper is woken. */
static void destroy_when_told(party_t *self)
{
    char byte;

    tell(self);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    ucp_worker_destroy(self->worker);
}

static void tell_other(party_t *self)
{
    tell(self);
}

static void close_when_told(party_t *self)
{
    char                byte;
    ucp_request_param_t flush = {.op_attr_mask = 0};

    tell(self);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    WANT(UCS_OK, finish(self, ucp_ep_close_nbx(self->ep, &flush)));
}

static void sleeper_is_left_by(void (*act)(party_t *))
{
    party_t self;
    later_t later;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(heard(&self));
    later_start(&later, &self, tell_other);
    until_failure(&later, by_poll);
    kill_other(&self);
    aftermath(&self);
}

static void sleeper_is_left(void)
{
    sleeper_is_left_by(destroy_when_told);
}

/* The other closes in order: who goes to sleep does not close his end soon, and hears of it. */
static void sleeper_is_closed(void)
{
    sleeper_is_left_by(close_when_told);
}

/* Progresses at a pace, after having been in a hurry. */
static void slow(long nanoseconds)
{
    party_t         self;
    struct timespec pause = {.tv_nsec = nanoseconds};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
    for (int i = 0; i < 200000; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    double killed = now();
    while (self.failures == 0 && now() < killed + 10) {
        nanosleep(&pause, NULL);
        ucp_worker_progress(self.worker);
    }
    if (now() - killed > NOTICE_SECONDS) {
        fprintf(stderr, "noticed after %.3f s\n", now() - killed);
    }
    WANT_TRUE(self.failures == 1 && now() - killed < NOTICE_SECONDS);
    aftermath(&self);
}

static void every_millisecond(void)
{
    slow(1000000);
}

static void every_ten(void)
{
    slow(10000000);
}

static int over_sockets(void)
{
    const char *tls = getenv("UCX_TLS");

    return tls != NULL && strcmp(tls, "tcp") == 0;
}

/* An endpoint to who is dead already: its handler is called, too. */
static void made_too_late(void)
{
    party_t self, second = {0};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
    kill_other(&self);
    failure_seen(&self);
    if (over_sockets()) { /* a new endpoint connects with its first operation: nothing is known before */
        return aftermath(&self);
    }
    second.worker = self.worker;
    party_connect(&second, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    failure_seen(&second);
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(second.ep, &force));
    aftermath(&self);
}

static const case_t cases[] = {
    {"waiting: in poll", poll_loses},
    {"waiting: in ucp_worker_wait", wait_loses},
    {"waiting: FAILOVER", failover_loses},
    {"waiting: the other destroys its worker", sleeper_is_left},
    {"waiting: the other closes", sleeper_is_closed},
    {"waiting: progress every millisecond", every_millisecond},
    {"waiting: progress every 10 milliseconds", every_ten},
    {"waiting: an endpoint to the dead", made_too_late},
};

CHECK_MAIN(cases)
