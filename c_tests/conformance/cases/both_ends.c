/*
 * Both ends connect at once: two processes create workers, exchange addresses outside of UCP, and each creates an
 * endpoint and sends at the same moment, without a message from the other. Each message arrives once, in order and
 * whole, in both directions; flushes and closes of both ends at once complete. Each round has new workers.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "party.h"

#include "../../random.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 30, MESSAGES = 24, LONGEST = 100000, SECONDS = 15 };

static const size_t              sizes[] = {8, 200, 9000, LONGEST};
static const ucp_request_param_t plain   = {.op_attr_mask = 0};

/*
 * A barrier of the two processes that leaves them within some microseconds of each other. The end that is there first
 * progresses its worker: the other end's flush may need its acknowledgements.
 */
static unsigned *arrived;

static void meet_at(party_t *self, unsigned number)
{
    time_t end = time(NULL) + SECONDS;

    __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(arrived, __ATOMIC_ACQUIRE) < 2 * number) {
        if (time(NULL) > end) {
            must(UCS_ERR_TIMED_OUT, "the other process has arrived");
        }
        ucp_worker_progress(self->worker);
        sched_yield();
    }
}

static size_t size_of(int message)
{
    return sizes[message % 4];
}

static void fill(unsigned char *data, int from, int round, int message)
{
    unsigned state = (unsigned)(from + 2 * (message + MESSAGES * round)) + 1;

    for (size_t i = 0; i < size_of(message); i++) {
        data[i] = (unsigned char)(next_random(&state) >> 16);
    }
}

/* Progresses a while after all of its own has completed: the other end may need this end's part of its close. */
static void linger(party_t *self)
{
    char byte = 'l';

    WANT_TRUE(send(self->link, &byte, 1, MSG_NOSIGNAL) == 1);
    for (time_t end = time(NULL) + SECONDS; recv(self->link, &byte, 1, MSG_DONTWAIT) != 1;) {
        ucp_worker_progress(self->worker);
        if (time(NULL) > end) {
            WANT_TRUE(!"the other end has closed");
            return;
        }
    }
}

static void exchange(party_t *self, int me, int round)
{
    static unsigned char out[MESSAGES][LONGEST], in[MESSAGES][LONGEST], expected[LONGEST];
    ucs_status_ptr_t     sent[MESSAGES], received[MESSAGES];
    ucp_tag_recv_info_t  info;

    /* One tag: the order of the receives is that of the messages. Every other round the messages are unexpected. */
    for (int i = 0; i < MESSAGES; i++) {
        fill(out[i], me, round, i);
        received[i] = round % 2 == 0 ? receive_tag(self, in[i], LONGEST, 1) : NULL;
    }
    meet_at(self, (unsigned)(2 * round + 1));
    party_connect(self, self->theirs, UCP_ERR_HANDLING_MODE_PEER);
    for (int i = 0; i < MESSAGES; i++) {
        sent[i] = send_tag(self, out[i], size_of(i));
    }
    for (int i = 0; i < MESSAGES; i++) {
        if (received[i] == NULL) {
            received[i] = receive_tag(self, in[i], LONGEST, 1);
        }
        WANT(UCS_OK, finish(self, received[i]));
        fill(expected, !me, round, i);
        WANT_TRUE(memcmp(in[i], expected, size_of(i)) == 0);
    }
    for (int i = 0; i < MESSAGES; i++) {
        WANT(UCS_OK, finish(self, sent[i]));
    }
    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &plain)));
    WANT_TRUE(ucp_tag_probe_nb(self->worker, 0, 0, 0, &info) == NULL);
}

static void one_round(ucp_context_h context, int link, int me, int round)
{
    ucp_worker_params_t params = {.field_mask = 0};
    party_t             self   = {.context = context, .link = link};
    ucp_address_t      *address;
    size_t              length;
    ucs_status_t        closed;

    WANT(UCS_OK, ucp_worker_create(context, &params, &self.worker));
    WANT(UCS_OK, ucp_worker_get_address(self.worker, &address, &length));
    WANT_TRUE(send(link, address, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(link, self.theirs, sizeof(self.theirs), 0) > 0);
    ucp_worker_release_address(self.worker, address);
    exchange(&self, me, round);
    meet_at(&self, (unsigned)(2 * round + 2));
    closed = finish(&self, ucp_ep_close_nbx(self.ep, &plain));
    /* The end that closes last may find the other's close first. */
    WANT_TRUE(closed == UCS_OK || is_loss_or_canceled(closed));
    linger(&self);
    WANT_TRUE(self.failures <= 1);
    ucp_worker_destroy(self.worker);
}

static void play(int link, int me)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        one_round(context, link, me, round);
    }
    ucp_cleanup(context);
}

static void both_ends(void)
{
    int links[2], status = -1;

    arrived = mmap(NULL, sizeof(*arrived), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        play(links[1], 1);
        _exit(check_failed());
    }
    play(links[0], 0);
    if (check_failed()) {
        kill(pid, SIGKILL);
    }
    waitpid(pid, &status, 0);
    WANT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const case_t cases[] = {
    {"both_ends: connect, send, close", both_ends},
};

CHECK_MAIN(cases)
