/*
 * Puts, gets and messages of lists of pieces (UCP_DATATYPE_IOV): long and short ones, few and many. A transport with
 * the capability `get` reads into pieces while the owner of the memory does not progress.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "finish.h"

#include <stdlib.h>
#include <string.h>

enum { SIZE = 4 << 20, PIECES = 100, SECONDS = 10 };

/* Lengths of the pieces of a list, again and again. */
static const size_t even[]  = {40000};
static const size_t mixed[] = {17, 70000, 0, 16384, 1, 50001};
static const size_t tiny[]  = {3, 8, 1};

static ucp_dt_iov_t   list[PIECES];
static unsigned char *memory;

/* Makes a list of so many pieces, with gaps of 5 bytes between them; returns their bytes. */
static size_t list_make(const size_t *lengths, size_t kinds, size_t count)
{
    size_t total = 0, at = 0;

    for (size_t i = 0; i < count; i++) {
        list[i].buffer = memory + at;
        list[i].length = lengths[i % kinds];
        at += list[i].length + 5;
        total += list[i].length;
    }
    WANT_TRUE(at <= 2 * SIZE && total <= SIZE);
    return total;
}

static unsigned char expected(size_t at, unsigned seed)
{
    return (unsigned char)((at * 7 + at / 251 + seed) & 0xFF);
}

/* Fills the pieces, which are one sequence of bytes. */
static void list_fill(size_t count, unsigned seed)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < list[i].length; k++) {
            ((unsigned char *)list[i].buffer)[k] = expected(at++, seed);
        }
    }
}

/* Whether the pieces have these bytes, and the gaps between them have zeros. */
static int list_is(size_t count, unsigned seed)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        const unsigned char *piece = list[i].buffer;

        for (size_t k = 0; k < list[i].length; k++) {
            if (piece[k] != expected(at++, seed)) {
                return 0;
            }
        }
        for (size_t k = 0; k < 5; k++) {
            if (piece[list[i].length + k] != 0) {
                return 0;
            }
        }
    }
    return 1;
}

static const ucp_request_param_t as_list = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE,
                                            .datatype     = ucp_dt_make_iov()};

static ucs_status_t get_list(party_t *self, size_t count, size_t offset, ucp_rkey_h rkey)
{
    memset(memory, 0, 2 * SIZE);
    return finish_on(self->worker, ucp_get_nbx(self->ep, list, count, (uintptr_t)there + offset, rkey, &as_list),
                     SECONDS);
}

static void put_and_get(party_t *self, size_t count, size_t total, size_t offset, ucp_rkey_h rkey)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    unsigned                         seed  = (unsigned)(count + total);

    memset(memory, 0, 2 * SIZE);
    list_fill(count, seed);
    WANT(UCS_OK, finish_on(self->worker,
                           ucp_put_nbx(self->ep, list, count, (uintptr_t)there + offset, rkey, &as_list), SECONDS));
    WANT(UCS_OK, finish_on(self->worker, ucp_ep_flush_nbx(self->ep, &plain), SECONDS));
    int is_there = 1;
    for (size_t i = 0; i < total; i++) {
        is_there &= there[offset + i] == expected(i, seed);
    }
    WANT_TRUE(is_there);
    WANT(UCS_OK, get_list(self, count, offset, rkey));
    WANT_TRUE(list_is(count, seed));
}

static void expose_and_progress(party_t *self)
{
    register_memory(self);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

static void expose(party_t *self)
{
    register_memory(self);
    notify_peer(self);
}

static void both(void)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 9, 64, 65, PIECES};
    party_t             self;
    ucp_rkey_h          rkey = open_memory(&self, SIZE + 64, expose_and_progress);

    memory = malloc(2 * SIZE);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        put_and_get(&self, counts[i], list_make(even, 1, counts[i]), 0, rkey);
        put_and_get(&self, counts[i], list_make(mixed, 6, counts[i]), 3, rkey);
        put_and_get(&self, counts[i], list_make(tiny, 3, counts[i]), 1, rkey);
    }
    ucp_rkey_destroy(rkey);
    kill_other(&self);
}

static void get_alone(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, SIZE + 64, expose);

    memory = malloc(2 * SIZE);
    WANT_TRUE(wait_notified(&self));
    for (size_t count = 1; count <= 64; count *= 4) {
        size_t total = list_make(even, 1, count);
        for (size_t i = 0; i < total; i++) {
            there[i + 7] = expected(i, (unsigned)count);
        }
        WANT(UCS_OK, get_list(&self, count, 7, rkey));
        WANT_TRUE(list_is(count, (unsigned)count));
    }
    ucp_rkey_destroy(rkey);
    kill_other(&self);
}

/* Counts of pieces of the messages, and how their lengths are chosen; each is sent twice. */
static const size_t messages[] = {2, 64, 65};

static size_t message_make(size_t number, unsigned round)
{
    return round == 0 ? list_make(even, 1, messages[number]) : list_make(mixed, 6, messages[number]);
}

static void send_lists(party_t *self)
{
    memory = malloc(2 * SIZE);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
            for (unsigned time = 0; time < 2; time++) {
                message_make(i, round);
                list_fill(messages[i], time);
                WANT(UCS_OK, finish_on(self->worker, ucp_tag_send_nbx(self->ep, list, messages[i], 1, &as_list),
                                       SECONDS));
            }
        }
    }
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/* Messages from a list: the first one of two into contiguous memory, the second one into a list. */
static void lists_received(void)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    party_t                          self;
    unsigned char                   *whole = malloc(SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_lists);
    memory = malloc(2 * SIZE);
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
            size_t total = message_make(i, round), good = 0;
            WANT(UCS_OK, finish_on(self.worker, ucp_tag_recv_nbx(self.worker, whole, SIZE, 1, -1, &plain), SECONDS));
            while (good < total && whole[good] == expected(good, 0)) {
                good++;
            }
            WANT_TRUE(good == total);
            memset(memory, 0, 2 * SIZE);
            WANT(UCS_OK, finish_on(self.worker, ucp_tag_recv_nbx(self.worker, list, messages[i], 1, -1, &as_list),
                                   SECONDS));
            WANT_TRUE(list_is(messages[i], 1));
        }
    }
    kill_other(&self);
}

static const case_t cases[] = {
    {"pieces: messages", lists_received},
    {"pieces: put and get", both},
    {"pieces: get without the peer", get_alone},
};

CHECK_MAIN(cases)
