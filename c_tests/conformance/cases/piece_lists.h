/* Lists of pieces of memory that another process exposes by three keys. */
#ifndef PIECE_LISTS_H
#define PIECE_LISTS_H

#include "exposed.h"
#include "finish.h"
#include "../sgl.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { SIZE = 4 << 20, MOST = 100000, MANY = 20000, KEYS = 3, SECONDS = 20, GUARD = 0x5a };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* The arrays of a list; pieces lie in `near` and in `there` at the same distance from the beginning. */
typedef struct {
    size_t      count;
    void       *buffers[MOST];
    size_t      lengths[MOST];
    uint64_t    addrs[MOST];
    ucp_rkey_h  rkeys[MOST];
} list_t;

static list_t        list;
static char         *near;
static unsigned      seed;
static ucp_rkey_h    keys[KEYS];

static inline unsigned random_below(unsigned end)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % end;
}

static inline char byte_at(size_t at, unsigned round)
{
    return (char)(at * 7 + at / 253 + round * 31 + 1);
}

/* --- the other process --- */

/* Its memory has three keys, as it is registered three times. */
static inline void expose(party_t *self)
{
    for (int i = 0; i < KEYS; i++) {
        register_memory(self);
        wait_notified(self);
    }
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

static inline void open_lists(party_t *self)
{
    char packed[1024];

    keys[0] = open_memory(self, SIZE, expose);
    for (int i = 1; i < KEYS; i++) {
        notify_peer(self);
        WANT_TRUE(recv(self->link, packed, sizeof(packed), 0) > 0);
        WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep, packed, &keys[i]));
    }
    notify_peer(self);
    near = malloc(SIZE);
}

static inline void destroy_keys(void)
{
    for (int i = 0; i < KEYS; i++) {
        ucp_rkey_destroy(keys[i]);
    }
}

/* --- lists --- */

/* Pieces of up to `longest` bytes, one in eight of them empty, with gaps; `keyed`: pieces with a key in sequence. */
static inline void make_list(size_t count, size_t longest, size_t keyed)
{
    size_t at = random_below(64);

    list.count = 0;
    for (size_t i = 0; i < count; i++) {
        size_t length = random_below(8) == 0 ? 0 : random_below((unsigned)longest + 1);

        if (at + length > SIZE) {
            break;
        }
        list.buffers[i] = near + at;
        list.lengths[i] = length;
        list.addrs[i]   = (uintptr_t)there + at;
        list.rkeys[i]   = keys[i / keyed % KEYS];
        list.count++;
        at += length + random_below(9);
    }
    /* In another order at the same places. */
    for (size_t i = list.count; i > 1; i--) {
        size_t k      = random_below((unsigned)i), last = i - 1;
        void  *buffer = list.buffers[k];
        size_t length = list.lengths[k];
        uint64_t addr = list.addrs[k];

        list.buffers[k]    = list.buffers[last];
        list.lengths[k]    = list.lengths[last];
        list.addrs[k]      = list.addrs[last];
        list.buffers[last] = buffer;
        list.lengths[last] = length;
        list.addrs[last]   = addr;
    }
}

/* Accesses so many pieces from `first` on. */
static inline ucs_status_ptr_t begin_part(party_t *self, bool puts, size_t first, size_t count)
{
    sgl_t sgl = {list.buffers + first, list.lengths + first, list.addrs + first, list.rkeys + first, NULL};

    return sgl_begin(self->ep, puts, &sgl, count);
}

static inline ucs_status_ptr_t begin(party_t *self, bool puts)
{
    return begin_part(self, puts, 0, list.count);
}

static inline void wait_ok(party_t *self, ucs_status_ptr_t request)
{
    WANT(UCS_OK, finish_on(self->worker, request, SECONDS));
}

static inline void flush(party_t *self)
{
    wait_ok(self, ucp_ep_flush_nbx(self->ep, &plain));
}

static inline void fill(char *memory, unsigned round)
{
    for (size_t i = 0; i < SIZE; i++) {
        memory[i] = byte_at(i, round);
    }
}

/* Whether the bytes of the pieces are those of a round, and all others the guard. */
static inline bool has_pieces(const char *memory, unsigned round)
{
    char *wanted = malloc(SIZE);

    memset(wanted, GUARD, SIZE);
    for (size_t i = 0; i < list.count; i++) {
        size_t at = list.addrs[i] - (uintptr_t)there;

        for (size_t k = at; k < at + list.lengths[i]; k++) {
            wanted[k] = byte_at(k, round);
        }
    }
    bool is_equal = memcmp(memory, wanted, SIZE) == 0;
    free(wanted);
    return is_equal;
}

/* Has the time of a case for itself: where each piece is a message, a list takes seconds on a loaded machine. */
static inline void put_and_get(party_t *self, unsigned round)
{
    check_restart_limit();
    fill(near, round);
    memset(there, GUARD, SIZE);
    wait_ok(self, begin(self, true));
    flush(self);
    WANT_TRUE(has_pieces((char *)there, round));
    fill((char *)there, round + 1);
    memset(near, GUARD, SIZE);
    wait_ok(self, begin(self, false));
    WANT_TRUE(has_pieces(near, round + 1));
}

static inline void close_lists(party_t *self)
{
    destroy_keys();
    kill_other(self);
    free(near);
}

#endif
