/* A signal is visible only after its data, at every size, in queues and in flags, and flushes and fences cover it. */
#define _GNU_SOURCE
#include "notes.h"

#include "../pattern.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    LARGEST = 5 << 20,
    FLAG    = LARGEST, /* tag of messages behind the data */
    MEMORY  = LARGEST + 4096,
    STREAM  = 5000, /* more than a ring, a window, a socket holds */
    SLOT    = 1024,
    MIXED   = 15, /* puts of which every third is long */
};

static const size_t sizes[] = {0, 1, 8, 32, 100, 4 << 10, 10000, 64 << 10, 300 << 10, LARGEST};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROUNDS = 4 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Every other time at each size one that does not fit into the immediate data of a device. */
static uint64_t value_of(unsigned i)
{
    return (i + i / SIZES) % 2 == 0 ? i : i + (UINT64_C(3) << 31);
}

/* --- in a queue --- */

static void take_each(party_t *self)
{
    unsigned with_data = 0;

    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        size_t size = sizes[i % SIZES];
        with_data += next_is(cq, value_of(i), size, 0);
        WANT_TRUE(first_wrong(there, size, i) == size);
        memset(there, 0, size);
        notify_peer(self);
    }
    /* On reliable connections small values are immediate data. */
    WANT_TRUE(over_queue_pairs() ? with_data >= SIZES * ROUNDS / 4 : with_data == 0);
    WANT_TRUE(wait_notified(self));
    ucpx_cq_destroy(cq);
}

static void each_size(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, take_each);
    char      *data = malloc(LARGEST);

    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        ucpx_signal_t signal = note(0, value_of(i));
        fill(data, sizes[i % SIZES], i);
        signalled(&self, data, sizes[i % SIZES], 0, rkey, &signal);
        WANT_TRUE(wait_notified(&self));
    }
    free(data);
    close_memory(&self, rkey);
}

/* Of different lengths, in order, without waiting. */
static size_t size_in_stream(unsigned i)
{
    return i % 7 == 0 ? 0 : i * 37 % SLOT;
}

static size_t offset_in_stream(unsigned i)
{
    return (size_t)i * SLOT % LARGEST;
}

static void take_stream(party_t *self)
{
    register_memory(self);
    ucpx_cq_h cq = queue(self, 3);
    for (unsigned i = 0; i < STREAM; i++) {
        size_t size = size_in_stream(i), offset = offset_in_stream(i);
        next_is(cq, i, size, offset);
        WANT_TRUE(first_wrong(there + offset, size, i) == size);
    }
    WANT_TRUE(wait_notified(self));
    ucpx_cq_destroy(cq);
}

static void stream(void)
{
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, MEMORY, take_stream);
    char            *data = malloc((size_t)STREAM * SLOT);
    ucs_status_ptr_t puts[STREAM];

    for (unsigned i = 0; i < STREAM; i++) {
        ucpx_signal_t signal = note(3, i);
        char         *from   = data + (size_t)i * SLOT;
        fill(from, size_in_stream(i), i);
        puts[i] = put_signal(&self, from, size_in_stream(i), offset_in_stream(i), rkey, &signal);
    }
    for (unsigned i = 0; i < STREAM; i++) {
        WANT(UCS_OK, finish(&self, puts[i]));
    }
    flushed(&self);
    free(data);
    close_memory(&self, rkey);
}

/* Long and short ones to one queue, each to a place of its own, without waiting: a short one does not overtake. */
static size_t size_among_long(unsigned i)
{
    return i % 3 != 2 ? 64 : i % 2 == 0 ? 65600 : 1 << 20;
}

static size_t offset_among_long(unsigned i)
{
    size_t offset = 0;

    while (i > 0) {
        offset += size_among_long(--i);
    }
    return offset;
}

static void take_mixed(party_t *self)
{
    register_memory(self);
    ucpx_cq_h cq = queue(self, 7);
    for (unsigned round = 0; round < ROUNDS; round++) {
        memset(there, 0, LARGEST);
        notify_peer(self);
        for (unsigned i = 0; i < MIXED; i++) {
            size_t size = size_among_long(i), offset = offset_among_long(i);
            next_is(cq, round * MIXED + i, size, offset);
            WANT_TRUE(first_wrong(there + offset, size, round * MIXED + i) == size);
        }
    }
    WANT_TRUE(wait_notified(self));
    ucpx_cq_destroy(cq);
}

static void mixed(void)
{
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, MEMORY, take_mixed);
    char            *data = malloc(LARGEST);
    ucs_status_ptr_t puts[MIXED];

    for (unsigned round = 0; round < ROUNDS; round++) {
        WANT_TRUE(wait_notified(&self));
        for (unsigned i = 0; i < MIXED; i++) {
            ucpx_signal_t signal = note(7, round * MIXED + i);
            char         *from   = data + offset_among_long(i);
            fill(from, size_among_long(i), round * MIXED + i);
            puts[i] = put_signal(&self, from, size_among_long(i), offset_among_long(i), rkey, &signal);
        }
        for (unsigned i = 0; i < MIXED; i++) {
            WANT(UCS_OK, finish(&self, puts[i]));
        }
    }
    flushed(&self);
    free(data);
    close_memory(&self, rkey);
}

/* The target does not poll, and the queue is created late: every entry arrives, in order. */
static void take_late(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
    ucpx_cq_h cq = queue(self, 200);
    for (unsigned i = 0; i < STREAM; i++) {
        next_is(cq, i, 0, 0);
    }
    ucpx_cq_entry_t entry;
    WANT_TRUE(ucpx_cq_poll(cq, &entry, 1) == 0);
    WANT_TRUE(ucpx_cq_poll(cq, &entry, 0) == 0);
    ucpx_cq_params_t params = {.field_mask = UCPX_CQ_PARAM_FIELD_ID, .id = 200};
    ucpx_cq_h        twice;
    WANT(UCS_ERR_ALREADY_EXISTS, ucpx_cq_create(self->worker, &params, &twice));
    ucpx_cq_destroy(cq);
    WANT(UCS_OK, ucpx_cq_create(self->worker, &params, &twice));
    ucpx_cq_destroy(twice);
    WANT_TRUE(wait_notified(self));
}

static void kept(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, take_late);

    for (unsigned i = 0; i < STREAM; i++) {
        ucpx_signal_t signal = note(200, i);
        WANT(UCS_OK, finish(&self, ucpx_put_signal_nbx(self.ep, NULL, 0, 0, NULL, &signal, &plain)));
    }
    flushed(&self);
    notify_peer(&self);
    close_memory(&self, rkey);
}

/* --- in a flag --- */

static uint64_t read_flag(size_t offset)
{
    return __atomic_load_n((uint64_t *)(there + offset), __ATOMIC_ACQUIRE);
}

static int flag_becomes(party_t *self, size_t offset, uint64_t value)
{
    time_t end = time(NULL) + 10;

    while (read_flag(offset) != value) {
        ucp_worker_progress(self->worker);
        if (time(NULL) > end) {
            return 0;
        }
    }
    return 1;
}

static void poll_flags(party_t *self)
{
    uint64_t sum = 0;

    register_memory(self);
    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        size_t size = sizes[i % SIZES];
        sum += value_of(i);
        WANT_TRUE(flag_becomes(self, FLAG, value_of(i) + 1));
        WANT_TRUE(first_wrong(there, size, i) == size);
        notify_peer(self);
        WANT_TRUE(flag_becomes(self, FLAG + 64, sum));
        WANT_TRUE(first_wrong(there, size, i + 1) == size);
        notify_peer(self);
    }
    WANT_TRUE(wait_notified(self));
}

static void flags(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, poll_flags);
    char      *data = malloc(LARGEST);

    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        size_t        size = sizes[i % SIZES];
        ucpx_signal_t set  = flag(UCPX_SIGNAL_OP_SET, FLAG, value_of(i) + 1, rkey);
        ucpx_signal_t add  = flag(UCPX_SIGNAL_OP_ADD, FLAG + 64, value_of(i), rkey);
        fill(data, size, i);
        signalled(&self, data, size, 0, rkey, &set);
        WANT_TRUE(wait_notified(&self));
        fill(data, size, i + 1);
        if (size > 0) {
            add.field_mask &= ~(uint64_t)UCPX_SIGNAL_FIELD_FLAG_RKEY; /* that of the data */
        }
        signalled(&self, data, size, 0, rkey, &add);
        WANT_TRUE(wait_notified(&self));
    }
    free(data);
    close_memory(&self, rkey);
}

/* --- in order with others --- */

static void take_fenced(party_t *self)
{
    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        size_t size = sizes[i % SIZES];
        next_is(cq, i, 0, 0);
        WANT_TRUE(first_wrong(there, size, i) == size);
        memset(there, 0, size);
        notify_peer(self);
    }
    WANT_TRUE(wait_notified(self));
}

static void fenced(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, take_fenced);
    char      *data = malloc(LARGEST);

    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        ucpx_signal_t signal = note(0, i);
        fill(data, sizes[i % SIZES], i);
        ucs_status_ptr_t written = put(&self, data, sizes[i % SIZES], 0, rkey);
        WANT(UCS_OK, ucp_worker_fence(self.worker));
        signalled(&self, NULL, 0, 0, rkey, &signal);
        WANT(UCS_OK, finish(&self, written));
        WANT_TRUE(wait_notified(&self));
    }
    free(data);
    close_memory(&self, rkey);
}

/* Flushed data has arrived, whichever flush reports it. */
static void take_flushed(party_t *self)
{
    ucpx_cq_entry_t entry;
    unsigned        looks;

    register_memory(self);
    ucpx_cq_h cq = queue(self, 0);
    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        size_t size = sizes[i % SIZES];
        WANT_TRUE(wait_notified(self));
        for (looks = 0; looks < 1000 && ucpx_cq_poll(cq, &entry, 1) == 0; looks++) {
        }
        WANT_TRUE(looks < 1000 && entry.value == i && entry.length == size);
        WANT_TRUE(entry.peer_uid == uid_of(self, self->theirs));
        WANT_TRUE(read_flag(FLAG) == i + 1);
        WANT_TRUE(first_wrong(there, size, i) == size);
        notify_peer(self);
    }
    WANT_TRUE(wait_notified(self));
}

static void flush(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, MEMORY, take_flushed);
    char      *data = malloc(LARGEST);

    for (unsigned i = 0; i < SIZES * ROUNDS; i++) {
        ucpx_signal_t signal = note(0, i), set = flag(UCPX_SIGNAL_OP_SET, FLAG, i + 1, rkey);
        size_t        size   = sizes[i % SIZES];
        fill(data, size, i);
        ucs_status_ptr_t first  = put_signal(&self, data, size, 0, rkey, &signal);
        ucs_status_ptr_t second = put_signal(&self, NULL, 0, 0, NULL, &set);
        flushed(&self);
        WANT(UCS_OK, finish(&self, first));
        WANT(UCS_OK, finish(&self, second));
        notify_peer(&self);
        WANT_TRUE(wait_notified(&self));
    }
    free(data);
    close_memory(&self, rkey);
}

/* --- rejected --- */

static void take_none(party_t *self)
{
    register_memory(self);
    for (int i = 0; i < 2; i++) {
        wait_notified_blocking(self);
        for (int calls = 0; calls < 10000; calls++) {
            ucp_worker_progress(self->worker);
        }
        notify_peer(self);
    }
    WANT_TRUE(wait_notified(self));
}

/*
 * The first endpoint's signal is rejected, before it is closed or afterwards: a flush of the next endpoint reports no
 * error.
 */
static void refused_before(int answered)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_params_t           again = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                     UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                       .err_mode   = UCP_ERR_HANDLING_MODE_PEER};
    party_t                   self;
    ucp_rkey_h                rkey   = open_memory(&self, MEMORY, take_none);
    ucpx_signal_t             invalid = flag(UCPX_SIGNAL_OP_SET, 4 * MEMORY, 1, rkey);
    ucp_ep_h                  first  = self.ep;

    /* A rejection is reported once, by the flush behind it. */
    WANT(UCS_OK, finish(&self, put_signal(&self, NULL, 0, 0, NULL, &invalid)));
    notify_peer(&self);
    WANT_TRUE(wait_notified(&self));
    WANT(UCS_ERR_INVALID_ADDR, finish(&self, ucp_ep_flush_nbx(self.ep, &plain)));
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(self.ep, &plain)));

    WANT(UCS_OK, finish(&self, put_signal(&self, NULL, 0, 0, NULL, &invalid)));
    if (answered) {
        notify_peer(&self);
        WANT_TRUE(wait_notified(&self));
        for (int calls = 0; calls < 10000; calls++) {
            ucp_worker_progress(self.worker);
        }
    }
    again.address = (const ucp_address_t *)self.theirs;
    WANT(UCS_OK, finish(&self, ucp_ep_close_nbx(first, &force)));
    WANT(UCS_OK, ucp_ep_create(self.worker, &again, &self.ep));
    if (!answered) {
        notify_peer(&self);
        WANT_TRUE(wait_notified(&self));
    }
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(self.ep, &plain)));
    WANT(UCS_OK, finish(&self, ucp_worker_flush_nbx(self.worker, &plain)));
    ucp_rkey_destroy(rkey);
    WANT(UCS_OK, finish(&self, ucp_ep_close_nbx(self.ep, &force)));
    kill_other(&self);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static void refused_and_closed(void)
{
    refused_before(1);
}

static void closed_and_refused(void)
{
    refused_before(0);
}

static const case_t cases[] = {
    {"signals: each size", each_size},
    {"signals: a stream", stream},
    {"signals: long among short", mixed},
    {"signals: kept", kept},
    {"signals: flags", flags},
    {"signals: behind a fence", fenced},
    {"signals: flushed", flush},
    {"signals: refused, then closed", refused_and_closed},
    {"signals: closed, then refused", closed_and_refused},
};
CHECK_MAIN(cases)
