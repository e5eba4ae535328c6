/*
 * Completion queues: completions of operations, sleep, threads, many senders, peers that die, and invalid parameters.
 */
#define _GNU_SOURCE
#include "notes.h"

#include "../pattern.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MEMORY = 2 << 20, FLAG = MEMORY - 64, LONG = 1 << 20, SENDERS = 8, THREADS = 4, EACH = 2000 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void nothing(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
}

/* --- completions of operations --- */

/* The operations that completions name. */
typedef struct {
    ucpx_cq_h cq;
    int       number;
} op_t;

static ucp_request_param_t to_queue(op_t *op)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.send      = ucpx_cq_push_send,
        .user_data    = op,
    };
}

/* Waits for the completion of that operation, and frees its request. */
static ucpx_cq_entry_t end_of(op_t *op, ucs_status_ptr_t request)
{
    ucpx_cq_entry_t entry = next(op->cq);

    WANT_TRUE(entry.kind == UCPX_CQ_ENTRY_COMPLETION);
    WANT_TRUE(entry.user_data == op && entry.request == request && UCS_PTR_IS_PTR(request));
    WANT_TRUE(((op_t *)entry.user_data)->number == op->number);
    ucp_request_free(entry.request);
    return entry;
}

static void answer(party_t *self)
{
    char *data = calloc(1, LONG);

    register_memory(self);
    WANT_TRUE(wait_notified(self));
    for (int i = 0; i < 2; i++) {
        WANT(UCS_OK, finish(self, ucp_tag_send_nbx(self->ep, data, i == 0 ? 8 : LONG, 70 + i, &plain)));
    }
    WANT_TRUE(wait_notified(self));
    free(data);
}

static void ends(void)
{
    party_t             self;
    ucp_rkey_h          rkey = open_memory(&self, MEMORY, answer);
    ucpx_cq_h           cq   = queue(&self, 9);
    op_t                op   = {.cq = cq, .number = 1};
    ucp_request_param_t send = to_queue(&op), recv = to_queue(&op);
    char               *data = calloc(1, LONG);
    ucpx_signal_t       set  = flag(UCPX_SIGNAL_OP_SET, FLAG, 5, rkey);

    for (size_t size = 0; size <= LONG; size = size == 0 ? 1 : size * 32) {
        ucs_status_ptr_t put = ucpx_put_signal_nbx(self.ep, data, size, (uintptr_t)there, rkey, &set, &send);
        WANT(UCS_OK, end_of(&op, put).status);
        op.number++;
    }
    WANT(UCS_OK, end_of(&op, ucp_ep_flush_nbx(self.ep, &send)).status);
    WANT_TRUE(*(volatile uint64_t *)(there + FLAG) == 5);
    recv.cb.recv = ucpx_cq_push_tag_recv;
    for (int i = 0; i < 2; i++) {
        ucs_status_ptr_t request = ucp_tag_recv_nbx(self.worker, data, LONG, 70 + i, -1, &recv);
        if (i == 0) {
            notify_peer(&self);
        }
        ucpx_cq_entry_t entry = end_of(&op, request);
        WANT(UCS_OK, entry.status);
        WANT_TRUE(entry.value == 70 + (unsigned)i && entry.length == (i == 0 ? 8 : LONG));
    }
    ucpx_cq_destroy(cq);
    free(data);
    close_memory(&self, rkey);
}

/* --- sleep --- */

static void sleep_until_signalled(party_t *self)
{
    struct pollfd   fd = {.events = POLLIN};
    ucpx_cq_entry_t entry;

    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    WANT(UCS_OK, ucp_worker_get_efd(self->worker, &fd.fd));
    notify_peer(self);
    for (unsigned i = 0; i < 50; i++) {
        while (ucpx_cq_poll(cq, &entry, 1) == 0) {
            if (ucp_worker_arm(self->worker) == UCS_OK) {
                WANT_TRUE(poll(&fd, 1, 10000) == 1);
            }
        }
        WANT_TRUE(entry.value == i);
        notify_peer(self);
    }
    WANT_TRUE(wait_notified(self));
    /* Two entries at once: a thread that takes one of them does not sleep before the other is taken. */
    WANT_TRUE(wait_notified(self));
    while (ucpx_cq_poll(cq, &entry, 1) == 0) {
    }
    time_t limit = time(NULL) + 10;
    while (ucp_worker_arm(self->worker) == UCS_OK && time(NULL) < limit) {
        ucp_worker_progress(self->worker);
    }
    WANT(UCS_ERR_BUSY, ucp_worker_arm(self->worker));
    WANT_TRUE(ucpx_cq_poll(cq, &entry, 1) == 1 && entry.value == 101);
    WANT_TRUE(wait_notified(self));
}

/* Where no event can wake a sleeping thread, arming returns an error. */
static void never_sleeps(void)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
    };
    ucp_context_h context;

    setenv("UCX_TLS", "tofu", 1);
    WANT(UCS_ERR_NO_DEVICE, ucp_init(&params, NULL, &context));
    params.features = UCP_FEATURE_RMA;
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    ucp_cleanup(context);
}

static void sleeps(void)
{
    if (getenv("AWAKE") != NULL) {
        never_sleeps();
        return;
    }

    party_t self;

    party_features |= UCP_FEATURE_WAKEUP;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, sleep_until_signalled);
    WANT_TRUE(wait_notified(&self));
    for (unsigned i = 0; i < 50; i++) {
        ucpx_signal_t signal = note(0, i);
        signalled(&self, &i, sizeof(i), 0, rkey, &signal);
        WANT_TRUE(wait_notified(&self));
    }
    notify_peer(&self);
    for (unsigned i = 100; i < 102; i++) {
        ucpx_signal_t signal = note(0, i);
        signalled(&self, &i, sizeof(i), 0, rkey, &signal);
    }
    flushed(&self);
    notify_peer(&self);
    close_memory(&self, rkey);
}

/* --- threads --- */

typedef struct {
    party_t   *self;
    ucpx_cq_h  cq;
    ucp_rkey_h rkey;
    uint64_t   number, count, sum;
} share_t;

static uint64_t taken;

static void *take_some(void *arg)
{
    share_t        *share = arg;
    ucpx_cq_entry_t entries[16];
    time_t          end = time(NULL) + 10;

    while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < THREADS * EACH && time(NULL) < end) {
        size_t n = ucpx_cq_poll(share->cq, entries, 16);
        for (size_t i = 0; i < n; i++) {
            share->sum += entries[i].value;
        }
        __atomic_fetch_add(&taken, n, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *signal_some(void *arg)
{
    share_t *share = arg;

    for (uint64_t i = 0; i < EACH; i++) {
        ucpx_signal_t signal = note(0, share->number * EACH + i);
        signalled(share->self, &i, i % 3 == 0 ? 0 : sizeof(i), share->number * 8, share->rkey, &signal);
    }
    return NULL;
}

static void together(party_t *self, ucpx_cq_h cq, ucp_rkey_h rkey, void *(*run)(void *), share_t shares[THREADS])
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        shares[i] = (share_t){.self = self, .cq = cq, .rkey = rkey, .number = i};
        WANT_TRUE(pthread_create(&threads[i], NULL, run, &shares[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void take_together(party_t *self)
{
    share_t  shares[THREADS];
    uint64_t sum = 0, all = THREADS * EACH;

    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    together(self, cq, NULL, take_some, shares);
    for (unsigned i = 0; i < THREADS; i++) {
        sum += shares[i].sum;
    }
    WANT_TRUE(taken == all && sum == all * (all - 1) / 2);
    notify_peer(self);
    WANT_TRUE(wait_notified(self));
}

static void threads(void)
{
    party_t self;
    share_t shares[THREADS];

    party_thread_mode = UCS_THREAD_MODE_MULTI;
    ucp_rkey_h rkey   = open_memory(&self, MEMORY, take_together);
    together(&self, NULL, rkey, signal_some, shares);
    flushed(&self);
    WANT_TRUE(wait_notified(&self));
    close_memory(&self, rkey);
}

/* --- many senders --- */

static void signal_from_many(party_t *self)
{
    ucp_worker_params_t mode = {.field_mask = 0};
    party_t             others[SENDERS];

    register_memory(self);
    WANT_TRUE(wait_notified(self));
    for (unsigned i = 0; i < SENDERS; i++) {
        ucp_address_t *address;
        size_t         length;
        ucpx_signal_t  signal = note(1, i);
        others[i]             = *self;
        WANT(UCS_OK, ucp_worker_create(self->context, &mode, &others[i].worker));
        party_connect(&others[i], self->theirs, UCP_ERR_HANDLING_MODE_PEER);
        WANT(UCS_OK, ucp_worker_get_address(others[i].worker, &address, &length));
        uint64_t uid = uid_of(&others[i], address);
        WANT_TRUE(send(self->link, &uid, sizeof(uid), 0) == sizeof(uid));
        ucp_worker_release_address(others[i].worker, address);
        signalled(&others[i], NULL, 0, 0, NULL, &signal);
        flushed(&others[i]);
    }
    WANT_TRUE(wait_notified(self));
}

static void many(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, signal_from_many);
    ucpx_cq_h  cq   = queue(&self, 1);

    notify_peer(&self);
    for (unsigned i = 0; i < SENDERS; i++) {
        uint64_t        uid   = 0;
        ucpx_cq_entry_t entry = next(cq);
        WANT_TRUE(recv(self.link, &uid, sizeof(uid), 0) == sizeof(uid));
        WANT_TRUE(entry.value == i && entry.peer_uid == uid);
    }
    ucpx_cq_destroy(cq);
    close_memory(&self, rkey);
}

/* --- peers that die, and invalid parameters --- */

/* Every operation completes, and the queue has an entry of each. */
static void killed(void)
{
    enum { PUTS = 200 };
    party_t             self;
    ucp_rkey_h          rkey = open_memory(&self, MEMORY, nothing);
    ucpx_cq_h           cq   = queue(&self, 0);
    op_t                op   = {.cq = cq};
    ucp_request_param_t send = to_queue(&op);
    char               *data = calloc(1, LONG);
    unsigned            left = 0;

    kill_other(&self);
    for (unsigned i = 0; i < PUTS; i++) {
        ucpx_signal_t    signal = note(0, i);
        size_t           size   = i % 4 == 0 ? LONG : i;
        ucs_status_ptr_t put    = ucpx_put_signal_nbx(self.ep, data, size, (uintptr_t)there, rkey, &signal, &send);
        left += UCS_PTR_IS_PTR(put);
        WANT_TRUE(UCS_PTR_IS_PTR(put) || UCS_PTR_STATUS(put) == UCS_OK || is_loss_or_canceled(UCS_PTR_STATUS(put)));
    }
    for (; left > 0; left--) {
        ucpx_cq_entry_t entry = next(cq);
        WANT_TRUE(entry.status == UCS_OK || is_loss_or_canceled(entry.status));
        ucp_request_free(entry.request);
    }
    check_failure(&self);
    ucpx_signal_t signal = note(0, 1);
    WANT_TRUE(is_loss_or_canceled(finish(&self, put_signal(&self, NULL, 0, 0, NULL, &signal))));
    ucpx_cq_destroy(cq);
    free(data);
    ucp_rkey_destroy(rkey);
    check_after_failure(&self);
}

/* A forced close cancels the signals with the data. */
static void wait_silently(party_t *self)
{
    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    wait_notified_blocking(self);
    for (time_t end = time(NULL) + 10; ucpx_cq_poll(cq, &(ucpx_cq_entry_t){.value = 0}, 1) == 1 && time(NULL) < end;) {
    }
    WANT_TRUE(wait_notified(self));
}

static void closed(void)
{
    enum { PUTS = 2000 };
    party_t             self;
    ucp_rkey_h          rkey  = open_memory(&self, MEMORY, wait_silently);
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t    puts[PUTS];
    char               *data = calloc(1, LONG);

    for (unsigned i = 0; i < PUTS; i++) {
        ucpx_signal_t signal = note(0, i);
        puts[i]              = put_signal(&self, data, i % 100 == 99 ? LONG : 4000, 0, rkey, &signal);
    }
    WANT_TRUE(finish(&self, ucp_ep_close_nbx(self.ep, &force)) != UCS_INPROGRESS);
    for (unsigned i = 0; i < PUTS; i++) {
        ucs_status_t status = finish(&self, puts[i]);
        WANT_TRUE(status == UCS_OK || status == UCS_ERR_CANCELED);
    }
    notify_peer(&self);
    free(data);
    ucp_rkey_destroy(rkey);
    kill_other(&self);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static void register_half(party_t *self)
{
    register_length(self, MEMORY / 2);
    ucpx_cq_h cq = queue(self, 0);
    WANT_TRUE(wait_notified(self));
    next_is(cq, 2, 8, 0);
    ucpx_cq_entry_t entry;
    for (int i = 0; i < 1000; i++) {
        WANT_TRUE(ucpx_cq_poll(cq, &entry, 1) == 0);
    }
    WANT_TRUE(wait_notified(self));
}

static void wrong(void)
{
    party_t          self;
    ucp_rkey_h       rkey      = open_memory(&self, MEMORY, register_half);
    ucpx_signal_t    signal    = note(0, 1);
    ucpx_signal_t    crooked   = flag(UCPX_SIGNAL_OP_SET, FLAG / 2 + 1, 1, rkey);
    ucpx_signal_t    keyless   = flag(UCPX_SIGNAL_OP_ADD, FLAG / 2, 1, NULL);
    ucpx_signal_t    nowhere   = {.field_mask = UCPX_SIGNAL_FIELD_OP, .op = UCPX_SIGNAL_OP_SET};
    ucpx_signal_t    unknown   = {.field_mask = UCPX_SIGNAL_FIELD_OP, .op = (ucpx_signal_op_t)77};
    ucp_dt_iov_t     iov[2]    = {{.buffer = &signal, .length = 4}, {.buffer = &signal, .length = 4}};
    ucp_request_param_t list   = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    ucp_request_param_t sgl    = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_sgl()};
    uint64_t         at        = (uintptr_t)there;
    ucpx_cq_h        cq        = queue(&self, 0);

    WANT_PTR(INVALID, ucpx_put_signal_nbx(NULL, &at, 8, at, rkey, &signal, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, NULL, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, &signal, NULL));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, NULL, &signal, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, &crooked, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, &keyless, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, &nowhere, &plain));
    WANT_PTR(INVALID, ucpx_put_signal_nbx(self.ep, &at, 8, at, rkey, &unknown, &plain));
    WANT_PTR(UCS_ERR_UNSUPPORTED, ucpx_put_signal_nbx(self.ep, &at, 1, at, rkey, &signal, &sgl));
    WANT(INVALID, ucpx_cq_create(NULL, NULL, &cq));
    WANT(INVALID, ucpx_cq_create(self.worker, NULL, NULL));
    WANT_TRUE(ucpx_cq_poll(NULL, NULL, 1) == 0);
    WANT_TRUE(ucpx_cq_poll(cq, NULL, 1) == 0);
    SURVIVE_VOID(ucpx_cq_destroy(NULL));
    /* Where the peer has to write, it rejects the data, and with that the signal. */
    if (over_network()) {
        char *data = calloc(1, MEMORY);
        signalled(&self, data, 64, MEMORY / 2 - 8, rkey, &signal);
        WANT(UCS_ERR_INVALID_ADDR, finish(&self, ucp_ep_flush_nbx(self.ep, &plain)));
        free(data);
    }
    signal = note(0, 2);
    WANT(UCS_OK, finish(&self, ucpx_put_signal_nbx(self.ep, iov, 2, at, rkey, &signal, &list)));
    flushed(&self);
    notify_peer(&self);
    ucpx_cq_destroy(cq);
    close_memory(&self, rkey);
}

static const case_t cases[] = {
    {"queues: ends of operations", ends},
    {"queues: sleep", sleeps},
    {"queues: threads", threads},
    {"queues: many senders", many},
    {"queues: a peer dies", killed},
    {"queues: a forced close", closed},
    {"queues: what is wrong", wrong},
};
CHECK_MAIN(cases)
