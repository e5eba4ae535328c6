/*
 * Scatter-gather lists to memory of another process that UCP did not allocate: the kernel copies many pieces with a
 * call, where it may. Pieces arrive where they belong and nowhere else, and what cannot be copied has a status.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "../sgl.h"
#include "../tools/no_cma.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PIECES = 1000, PLACE = 160, LONGEST = 150, SIZE = PIECES * PLACE, GUARD = 0x5a };

static struct {
    char      *near;
    void      *buffers[PIECES];
    size_t     lengths[PIECES], theirs[PIECES];
    uint64_t   addrs[PIECES];
    ucp_rkey_h rkeys[PIECES];
} list;

static void expose(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
}

/* Piece i lies at the i-th place here, the last but i-th there. Length 0: of varying length, and none is empty. */
static void fill_list(ucp_rkey_h rkey, size_t length)
{
    for (size_t i = 0; i < PIECES; i++) {
        list.buffers[i] = list.near + i * PLACE;
        list.lengths[i] = list.theirs[i] = length != 0 ? length : 10 + i % (LONGEST - 9);
        list.addrs[i]   = (uintptr_t)there + (PIECES - 1 - i) * PLACE + i % 8;
        list.rkeys[i]   = rkey;
    }
}

static ucp_rkey_h open_list(party_t *self, void (*act)(party_t *))
{
    ucp_rkey_h rkey = open_memory(self, SIZE, act);

    list.near = malloc(SIZE);
    fill_list(rkey, 0);
    return rkey;
}

static void close_list(party_t *self, ucp_rkey_h rkey)
{
    close_memory(self, rkey);
    free(list.near);
}

static ucs_status_ptr_t begin(party_t *self, bool puts)
{
    sgl_t sgl = {list.buffers, list.lengths, list.addrs, list.rkeys, list.theirs};

    return sgl_begin(self->ep, puts, &sgl, PIECES);
}

static ucs_status_t transfer(party_t *self, bool puts)
{
    return finish(self, begin(self, puts));
}

static void flush(party_t *self)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};

    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &plain)));
}

static char byte_of(size_t piece, size_t at)
{
    return (char)(piece * 31 + at * 7 + 1);
}

static void fill(void)
{
    memset(list.near, GUARD, SIZE);
    memset(there, GUARD, SIZE);
    for (size_t i = 0; i < PIECES; i++) {
        for (size_t k = 0; k < list.lengths[i]; k++) {
            list.near[i * PLACE + k] = byte_of(i, k);
        }
    }
}

/* Whether all bytes there, or here, are those of the pieces, and the others are the guard. */
static bool is_transferred(bool to_there)
{
    char *wanted = malloc(SIZE);

    memset(wanted, GUARD, SIZE);
    for (size_t i = 0; i < PIECES; i++) {
        size_t at = to_there ? list.addrs[i] - (uintptr_t)there : i * PLACE;

        for (size_t k = 0; k < list.lengths[i]; k++) {
            wanted[at + k] = byte_of(i, k);
        }
    }
    bool is_equal = memcmp(to_there ? (char *)there : list.near, wanted, SIZE) == 0;
    free(wanted);
    return is_equal;
}

/* The pieces of a list are put, and are there. */
static void want_put(party_t *self)
{
    fill();
    WANT(UCS_OK, transfer(self, true));
    flush(self);
    WANT_TRUE(is_transferred(true));
}

/* They come back. */
static void want_got(party_t *self)
{
    memset(list.near, GUARD, SIZE);
    WANT(UCS_OK, transfer(self, false));
    WANT_TRUE(is_transferred(false));
}

static void pieces_arrive(void)
{
    static const size_t lengths[] = {0, 1, 8, 16, LONGEST};
    party_t             self;
    ucp_rkey_h          rkey = open_list(&self, expose);

    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        fill_list(rkey, lengths[i]);
        want_put(&self);
        want_got(&self);
    }
    close_list(&self, rkey);
}

static void expose_twice(party_t *self)
{
    register_memory(self);
    expose(self);
}

/* Pieces with one key, then some with another one, in turn; and empty pieces among them. */
static void keys_and_empty_pieces(void)
{
    party_t    self;
    ucp_rkey_h rkeys[2] = {open_list(&self, expose_twice)};
    char       key[1024];

    WANT_TRUE(recv(self.link, key, sizeof(key), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(self.ep, key, &rkeys[1]));
    for (size_t i = 0; i < PIECES; i++) {
        list.rkeys[i] = rkeys[i / 70 % 2];
    }
    want_put(&self);
    for (size_t i = 0; i < PIECES; i += 9) {
        list.lengths[i] = list.theirs[i] = 0;
        list.buffers[i] = NULL;
        list.rkeys[i]   = NULL;
    }
    want_put(&self);
    ucp_rkey_destroy(rkeys[1]);
    close_list(&self, rkeys[0]);
}

/* A put and a get with the list as it is now are refused, and write nothing. */
static void want_refused(party_t *self, ucp_rkey_h rkey)
{
    for (int puts = 0; puts <= 1; puts++) {
        const char *target = puts ? (char *)there : list.near;

        memset(there, puts ? GUARD : 0, SIZE);
        memset(list.near, puts ? 0 : GUARD, SIZE);
        WANT(UCS_ERR_INVALID_PARAM, transfer(self, puts));
        for (size_t i = 0; i < SIZE; i++) {
            if (target[i] != GUARD) {
                WANT_TRUE(!"a byte was written");
                break;
            }
        }
    }
    fill_list(rkey, 0);
}

/* The wrong piece is the last one, behind others that could be copied. */
static void nothing_is_written(void)
{
    enum { LAST = PIECES - 1 };
    party_t    self;
    ucp_rkey_h rkey = open_list(&self, expose);

    fill();
    list.rkeys[LAST] = NULL;
    want_refused(&self, rkey);
    list.buffers[LAST] = NULL;
    want_refused(&self, rkey);
    list.theirs[LAST]++;
    want_refused(&self, rkey);
    list.addrs[LAST] = UINT64_MAX - 1;
    want_refused(&self, rkey);
    list.lengths[LAST] = list.theirs[LAST] = (size_t)1 << 56;
    want_refused(&self, rkey);
    list.lengths[LAST] = list.theirs[LAST] = (size_t)1 << 62;
    want_refused(&self, rkey);
    list.lengths[LAST] = list.theirs[LAST] = (size_t)1 << 63;
    want_refused(&self, rkey);
    close_list(&self, rkey);
}

/* Only the other process's kernel knows that the address of the last piece does not exist. */
static void memory_that_is_not_there(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_list(&self, expose);

    fill();
    list.addrs[PIECES - 1] = 4096;
    WANT(UCS_ERR_IO_ERROR, transfer(&self, true));
    close_list(&self, rkey);
}

/* The right to use CMA is lost between two lists: the peer executes the pieces by messages. */
static void permission_lost(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_list(&self, expose);

    want_put(&self);
    WANT_TRUE(forbid_cma() == 0);
    want_put(&self);
    want_got(&self);
    close_list(&self, rkey);
}

static void peer_dies(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_list(&self, expose);

    fill();
    kill_other(&self);
    ucs_status_t status = transfer(&self, true);
    if (status == UCS_OK) {
        status = finish(&self, begin(&self, false));
    }
    WANT_TRUE(is_loss_or_canceled(status));
    check_failure(&self);
    ucp_rkey_destroy(rkey);
    check_after_failure(&self);
    free(list.near);
}

static const case_t cases[] = {
    {"kernel lists: pieces arrive", pieces_arrive},
    {"kernel lists: keys, and empty pieces", keys_and_empty_pieces},
    {"kernel lists: nothing is written of a list with a wrong piece", nothing_is_written},
    {"kernel lists: memory that is not there", memory_that_is_not_there},
    {"kernel lists: the permission is lost", permission_lost},
    {"kernel lists: the peer dies", peer_dies},
};

CHECK_MAIN(cases)
