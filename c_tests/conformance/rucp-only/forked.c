/*
 * A process forks while it communicates with another one. Whatever the child does with inherited objects, the parent's
 * connections are not affected: every message arrives once, in order, with its bytes. The child's own contexts work,
 * with its parent and with others. A peer detects the death of a process whose child lives on.
 */
#define _GNU_SOURCE
#include "party.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 300000, FORKS = 100, TAG = 1, HELLO = 9, WELCOME = 10, LAST = -1 };

typedef struct {
    int64_t       number; /* LAST: there is none behind it */
    size_t        length;
    unsigned char bytes[LONGEST];
} message_t;

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

/* --- messages that are checked --- */

static size_t make(message_t *message, int64_t number)
{
    static const size_t lengths[] = {0, 100, 3000, LONGEST};

    message->number = number;
    message->length = lengths[number & 3];
    memset(message->bytes, (int)number + 1, message->length);
    return offsetof(message_t, bytes) + message->length;
}

static int is_good(const message_t *message, int64_t number)
{
    static message_t wanted;

    return memcmp(message, &wanted, make(&wanted, number)) == 0;
}

/* A message in each direction, with the same contents. */
static void exchange(party_t *self, int64_t number)
{
    static message_t out, in;
    size_t           length = make(&out, number);
    ucs_status_ptr_t back   = receive_tag(self, &in, sizeof(in), TAG);

    WANT(UCS_OK, finish(self, send_tag(self, &out, length)));
    WANT(UCS_OK, finish(self, back));
    WANT_TRUE(is_good(&in, number));
}

static ucp_ep_h connected(ucp_worker_h worker, const void *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_ep_h        ep     = NULL;

    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
    return ep;
}

/* Replies to the sender of an address. */
static void reply_to_hello(party_t *self)
{
    ucp_tag_recv_info_t info;
    char                address[1024];
    party_t             reply = *self;

    if (ucp_tag_probe_nb(self->worker, HELLO, -1, 0, &info) == NULL) {
        return;
    }
    WANT(UCS_OK, finish(self, receive_tag(self, address, sizeof(address), HELLO)));
    reply.ep = connected(self->worker, address);
    WANT(UCS_OK, finish(&reply, ucp_tag_send_nbx(reply.ep, "welcome", 8, WELCOME, &plain)));
    WANT(UCS_OK, finish(&reply, ucp_ep_close_nbx(reply.ep, &plain)));
}

/* The other process: sends back every message, and checks its contents. */
static void answer_all(party_t *self)
{
    static message_t in;

    for (int64_t number = 0;; number++) {
        ucs_status_ptr_t receive = receive_tag(self, &in, sizeof(in), TAG);
        while (UCS_PTR_IS_PTR(receive) && ucp_request_check_status(receive) == UCS_INPROGRESS) {
            ucp_worker_progress(self->worker);
            reply_to_hello(self);
        }
        WANT(UCS_OK, finish(self, receive));
        if (in.number == LAST) {
            break;
        }
        WANT_TRUE(is_good(&in, number));
        WANT(UCS_OK, finish(self, send_tag(self, &in, offsetof(message_t, bytes) + in.length)));
    }
    WANT_TRUE(ucp_tag_probe_nb(self->worker, 0, 0, 0, &(ucp_tag_recv_info_t){0}) == NULL);
    WANT_TRUE(self->failures == 0);
    WANT(UCS_OK, finish(self, ucp_ep_close_nbx(self->ep, &plain)));
    notify_peer(self);
    WANT_TRUE(wait_notified(self));
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
    _exit(check_failed());
}

/* Both sides close in order. */
static void part(party_t *self, int64_t number)
{
    static message_t last = {.number = LAST};
    int              status;

    exchange(self, number);
    WANT_TRUE(self->failures == 0);
    WANT(UCS_OK, finish(self, send_tag(self, &last, offsetof(message_t, bytes))));
    WANT_TRUE(wait_notified(self));
    WANT_TRUE(finish(self, ucp_ep_close_nbx(self->ep, &plain)) != UCS_INPROGRESS);
    notify_peer(self);
    WANT_TRUE(waitpid(self->other, &status, 0) == self->other && status == 0);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static party_t parent; /* what a child inherits */

/* Forks, goes on with messages until the child has ended, and afterwards. */
static void with_child(void (*act)(void))
{
    int64_t number = 0;
    int     status;

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, answer_all);
    exchange(&parent, number++);
    pid_t child = fork();
    if (child == 0) {
        act();
        exit(check_failed());
    }
    do {
        exchange(&parent, number++);
    } while (waitpid(child, &status, WNOHANG) == 0);
    WANT_TRUE(status == 0);
    for (int i = 0; i < 8; i++) {
        exchange(&parent, number++);
    }
    part(&parent, number);
}

/* --- actions of children --- */

static void exit_at_once(void)
{
    exit(0);
}

static void exit_without_handlers(void)
{
    _exit(0);
}

static void destroy_all(void)
{
    SURVIVE(ucp_ep_close_nbx(parent.ep, &force));
    SURVIVE_VOID(ucp_worker_destroy(parent.worker));
    SURVIVE_VOID(ucp_cleanup(parent.context));
}

static void close_in_order(void)
{
    WANT_TRUE(finish(&parent, ucp_ep_close_nbx(parent.ep, &plain)) != UCS_INPROGRESS);
    destroy_all();
}

static void progress_for_long(void)
{
    unsigned events = 0;

    for (int i = 0; i < 1000000; i++) {
        events += ucp_worker_progress(parent.worker);
    }
    WANT_TRUE(events == 0);
}

static void use_all(void)
{
    static message_t    message;
    static const size_t lengths[] = {0, 8, 64, 1000, 20000, LONGEST};
    ucp_tag_recv_info_t info;
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker;
    ucp_ep_params_t     to     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address    = (const ucp_address_t *)parent.theirs};
    ucp_ep_h            ep;

    for (int i = 0; i < 300; i++) {
        size_t length = lengths[i % 6];
        WANT_PTR(UCS_ERR_NOT_CONNECTED, send_tag(&parent, &message, length));
        WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_tag_send_sync_nbx(parent.ep, &message, length, TAG, &plain));
        WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_am_send_nbx(parent.ep, 3, NULL, 0, &message, length, &plain));
        WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_am_send_nbx(parent.ep, 3, &info, 8, &message, length, &plain));
        WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_stream_send_nbx(parent.ep, &message, length, &plain));
        WANT_PTR(UCS_ERR_UNSUPPORTED, receive_tag(&parent, &message, length, TAG));
    }
    WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_ep_flush_nbx(parent.ep, &plain));
    WANT_PTR(UCS_ERR_UNSUPPORTED, ucp_worker_flush_nbx(parent.worker, &plain));
    WANT_PTR(UCS_ERR_UNSUPPORTED, ucp_worker_flush_nbx(parent.worker, &plain));
    WANT(UCS_ERR_UNSUPPORTED, ucp_worker_fence(parent.worker));
    WANT_TRUE(ucp_tag_probe_nb(parent.worker, 0, 0, 1, &info) == NULL);
    WANT(UCS_ERR_UNSUPPORTED, ucp_worker_create(parent.context, &params, &worker));
    WANT(UCS_ERR_UNSUPPORTED, ucp_ep_create(parent.worker, &to, &ep));
}

/* The child has a worker of its own, and communicates with the peer of its parent. */
static void exchange_with_third(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t none   = {.field_mask = 0};
    party_t             own    = {.other = 0};
    ucp_address_t      *address;
    size_t              length;
    char                word[8];
    fixture_t           alone;

    WANT(UCS_OK, ucp_init(&params, NULL, &own.context));
    WANT(UCS_OK, ucp_worker_create(own.context, &none, &own.worker));
    WANT(UCS_OK, ucp_worker_get_address(own.worker, &address, &length));
    own.ep = connected(own.worker, parent.theirs);
    WANT(UCS_OK, finish(&own, ucp_tag_send_nbx(own.ep, address, length, HELLO, &plain)));
    WANT(UCS_OK, finish(&own, receive_tag(&own, word, sizeof(word), WELCOME)));
    WANT_TRUE(memcmp(word, "welcome", 8) == 0);
    WANT(UCS_OK, finish(&own, ucp_ep_close_nbx(own.ep, &plain)));
    ucp_worker_release_address(own.worker, address);
    ucp_worker_destroy(own.worker);
    ucp_cleanup(own.context);
    alone = fixture_open(ALL_FEATURES);
    fixture_works(&alone);
    fixture_close(&alone);
}

static void have_a_child(void)
{
    fixture_t own = fixture_open(ALL_FEATURES);
    int       status;

    fixture_works(&own);
    pid_t grandchild = fork();
    if (grandchild == 0) {
        use_all();
        exchange_with_third();
        SURVIVE_VOID(fixture_close(&own));
        destroy_all();
        exit(check_failed());
    }
    fixture_works(&own);
    WANT_TRUE(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    fixture_works(&own);
    destroy_all();
    fixture_works(&own);
    fixture_close(&own);
}

static void exits(void)
{
    with_child(exit_at_once);
}

static void exits_hard(void)
{
    with_child(exit_without_handlers);
}

static void destroys(void)
{
    with_child(destroy_all);
}

static void closes(void)
{
    with_child(close_in_order);
}

static void progresses(void)
{
    with_child(progress_for_long);
}

static void uses(void)
{
    with_child(use_all);
}

static void has_own_context(void)
{
    with_child(exchange_with_third);
}

static void has_a_child(void)
{
    with_child(have_a_child);
}

/* --- the child and its parent --- */

static void exchange_with_parent(void)
{
    ucp_address_t *address;
    size_t         length;
    int            status;

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, answer_all);
    exchange(&parent, 0);
    WANT(UCS_OK, ucp_worker_get_address(parent.worker, &address, &length));
    memcpy(parent.theirs, address, length);
    ucp_worker_release_address(parent.worker, address);
    pid_t child = fork();
    if (child == 0) {
        exchange_with_third(); /* which is the parent here */
        exit(check_failed());
    }
    while (waitpid(child, &status, WNOHANG) == 0) {
        ucp_worker_progress(parent.worker);
        reply_to_hello(&parent);
    }
    WANT_TRUE(status == 0);
    part(&parent, 1);
}

/* --- a fork inside of a callback, from which the child returns --- */

static pid_t forked = -1;

static void fork_here(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)info, (void)user_data;
    WANT(UCS_OK, status);
    forked = fork();
}

static void in_a_callback(void)
{
    static message_t          out, in;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb = {.recv = fork_here}};
    ucs_status_ptr_t          back;
    int                       status;

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, answer_all);
    back = ucp_tag_recv_nbx(parent.worker, &in, sizeof(in), TAG, -1, &param);
    WANT(UCS_OK, finish(&parent, send_tag(&parent, &out, make(&out, 0))));
    WANT(UCS_OK, finish(&parent, back));
    if (forked == 0) {
        for (int i = 0; i < 100000; i++) {
            ucp_worker_progress(parent.worker);
        }
        use_all();
        destroy_all();
        exit(check_failed());
    }
    for (int64_t number = 1; number < 9; number++) {
        exchange(&parent, number);
    }
    WANT_TRUE(waitpid(forked, &status, 0) == forked && status == 0);
    part(&parent, 9);
}

/* --- forks while other threads use the library --- */

static atomic_int enough;

static void *progress_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&enough)) {
        ucp_worker_progress(parent.worker);
    }
    return NULL;
}

/* Contexts, unused listeners and memory are created and destroyed. */
static void *set_up_on(void *arg)
{
    (void)arg;
    while (!atomic_load(&enough)) {
        fixture_t other = fixture_open(ALL_FEATURES);
        fixture_works(&other);
        fixture_close(&other);
    }
    return NULL;
}

static void with_threads(void)
{
    pthread_t threads[3];
    int64_t   number = 0;
    int       status;

    alarm(180); /* instead of the case's own: a hundred contexts are made */
    party_thread_mode = UCS_THREAD_MODE_MULTI;
    start(&parent, UCP_ERR_HANDLING_MODE_PEER, answer_all);
    exchange(&parent, number++);
    for (int i = 0; i < 3; i++) {
        WANT_TRUE(pthread_create(&threads[i], NULL, i < 2 ? progress_on : set_up_on, NULL) == 0);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            if (i % 4 == 0) {
                exchange_with_third();
            }
            WANT_TRUE(ucp_worker_progress(parent.worker) == 0);
            WANT_PTR(UCS_ERR_NOT_CONNECTED, send_tag(&parent, "to no peer", 8));
            WANT_PTR(UCS_ERR_UNSUPPORTED, receive_tag(&parent, &status, 4, TAG));
            destroy_all();
            exit(check_failed());
        }
        exchange(&parent, number++);
        WANT_TRUE(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&enough, 1);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    part(&parent, number);
}

/* --- a child that outlives its parent --- */

static pid_t *survivor; /* shared */

static void leave_a_child(party_t *self)
{
    pid_t child = fork();

    if (child == 0) {
        pause();
    }
    *survivor = child;
    notify_peer(self);
    pause();
}

static void parent_dies(void)
{
    party_t self;

    survivor = mmap(NULL, sizeof(*survivor), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    start(&self, UCP_ERR_HANDLING_MODE_PEER, leave_a_child);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    check_failure(&self);
    kill(*survivor, SIGKILL);
    check_after_failure(&self);
}

int main(int argc, char **argv)
{
    static const case_t cases[] = {
        {"exits", exits},
        {"exits without handlers", exits_hard},
        {"destroys all", destroys},
        {"closes in order", closes},
        {"progresses", progresses},
        {"uses all", uses},
        {"a context of its own", has_own_context},
        {"a child of its own", has_a_child},
        {"exchange with the parent", exchange_with_parent},
        {"in a callback", in_a_callback},
        {"with threads", with_threads},
        {"its parent dies", parent_dies},
    };

    return check_main(cases, sizeof(cases) / sizeof(cases[0]), argc > 1 ? argv[1] : NULL);
}
