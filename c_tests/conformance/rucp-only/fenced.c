/*
 * Reads before a fence return nothing of operations behind it, however late their replies are received: this side
 * does not progress until the peer has executed everything. (Where CMA is possible, reads end inside of their call
 * and there is little to see: this test is for TCP, and for processes without the right to use CMA.)
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "../../pattern.h"
#include "../../random.h"
#include "../tools/no_cma.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Fewer than a ring holds, with the operations behind the fences; the long ones are more than socket buffers hold. */
enum { READS = 60, SHORT = 4 << 10, LONG = 512 << 10, SECONDS = 10 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};
/* Later writes put this into the last 8 bytes of everything that is read. */
static const uint64_t mark = ~(uint64_t)0;

static void serve(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
}

/* Writes to its own memory when notified: the message has the length of the memory. */
static void serve_and_write(party_t *self)
{
    uint64_t size = 0;

    register_memory(self);
    WANT(UCS_OK, finish(self, receive_tag(self, &size, sizeof(size), 2)));
    memset(there, 0xff, size);
    WANT_TRUE(wait_notified(self));
}

static void fence(party_t *self)
{
    WANT(UCS_OK, ucp_worker_fence(self->worker));
}

/* Waits for it without progressing. */
static int is_marked(size_t offset)
{
    time_t end = time(NULL) + SECONDS;

    while (__atomic_load_n((uint64_t *)(there + offset), __ATOMIC_ACQUIRE) != mark) {
        if (time(NULL) > end) {
            return 0;
        }
    }
    return 1;
}

typedef ucs_status_ptr_t (*change_t)(party_t *self, size_t size, size_t offset, ucp_rkey_h rkey);

static ucs_status_ptr_t by_put(party_t *self, size_t size, size_t offset, ucp_rkey_h rkey)
{
    (void)size;
    return put(self, &mark, sizeof(mark), offset, rkey);
}

static ucs_status_ptr_t by_atomic(party_t *self, size_t size, size_t offset, ucp_rkey_h rkey)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    (void)size;
    return ucp_atomic_op_nbx(self->ep, UCP_ATOMIC_OP_OR, &mark, 1, (uintptr_t)there + offset, rkey, &param);
}

/* One message, sent behind all reads. */
static ucs_status_ptr_t by_message(party_t *self, size_t size, size_t offset, ucp_rkey_h rkey)
{
    static uint64_t all;

    (void)rkey;
    if (offset != size - sizeof(mark)) {
        return NULL;
    }
    all = READS * size;
    return ucp_tag_send_nbx(self->ep, &all, sizeof(all), 2, &plain);
}

static void reads_and(change_t change, size_t size, void (*act)(party_t *))
{
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, READS * size, act);
    unsigned char   *back = calloc(READS, size);
    ucs_status_ptr_t reads[READS], changes[READS];

    for (unsigned i = 0; i < READS; i++) {
        fill(there + i * size, size, i);
    }
    for (unsigned i = 0; i < READS; i++) {
        reads[i] = get(&self, back + i * size, size, i * size, rkey);
    }
    fence(&self);
    for (unsigned i = 0; i < READS; i++) {
        changes[i] = change(&self, size, (i + 1) * size - sizeof(mark), rkey);
    }
    fence(&self); /* pending requests are sent by it */
    WANT_TRUE(is_marked(READS * size - sizeof(mark)));
    for (unsigned i = 0; i < READS; i++) {
        WANT(UCS_OK, finish(&self, changes[i]));
        WANT(UCS_OK, finish(&self, reads[i]));
        WANT_TRUE(first_wrong(back + i * size, size, i) == size);
    }
    free(back);
    close_memory(&self, rkey);
}

static void short_reads_and_puts(void)
{
    reads_and(by_put, SHORT, serve);
}

static void long_reads_and_puts(void)
{
    reads_and(by_put, LONG, serve);
}

static void short_reads_and_atomics(void)
{
    reads_and(by_atomic, SHORT, serve);
}

static void long_reads_and_atomics(void)
{
    reads_and(by_atomic, LONG, serve);
}

static void short_reads_and_message(void)
{
    reads_and(by_message, SHORT, serve_and_write);
}

static void long_reads_and_message(void)
{
    reads_and(by_message, LONG, serve_and_write);
}

/* A read longer than any receive buffer: it fails, and operations behind the fence go on. */
enum { BEGINNING = 64 << 20 };
static const size_t endless = (size_t)1 << 46;

static void serve_endless(party_t *self)
{
    register_length(self, endless);
    WANT_TRUE(wait_notified(self));
}

static void endless_read(void)
{
    party_t    self;
    ucp_rkey_h rkey;
    void      *back = mmap(NULL, endless, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    WANT_TRUE(back != MAP_FAILED && mprotect(back, BEGINNING, PROT_READ | PROT_WRITE) == 0);
    WANT_TRUE(forbid_cma() == 0);
    rkey = open_memory(&self, BEGINNING, serve_endless);
    ucs_status_ptr_t read = get(&self, back, endless, 0, rkey);
    fence(&self);
    ucs_status_ptr_t write = put(&self, &mark, sizeof(mark), 0, rkey);
    fence(&self);
    WANT_TRUE(is_marked(0));
    WANT(UCS_ERR_NO_MEMORY, finish(&self, read));
    WANT(UCS_OK, finish(&self, write));
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(self.ep, &plain)));
    close_memory(&self, rkey);
    munmap(back, endless);
}

/* Each round reads the data of the round before, and this side receives no reply before the last round is written. */
static void rounds(void)
{
    enum { ROUNDS = 4, SLOTS = 12, SLOT = 8 << 10 };
    party_t              self;
    ucp_rkey_h           rkey = open_memory(&self, SLOTS * SLOT + sizeof(mark), serve);
    static unsigned char mine[ROUNDS][SLOT], back[ROUNDS][SLOTS][SLOT];
    ucs_status_ptr_t     reads[ROUNDS][SLOTS], writes[ROUNDS][SLOTS], last;

    for (int slot = 0; slot < SLOTS; slot++) {
        fill(there + slot * SLOT, SLOT, 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            reads[round][slot] = get(&self, back[round][slot], SLOT, slot * SLOT, rkey);
        }
        fence(&self);
        fill(mine[round], SLOT, round + 1);
        for (int slot = 0; slot < SLOTS; slot++) {
            writes[round][slot] = put(&self, mine[round], 64, slot * SLOT, rkey);
        }
        fence(&self);
    }
    last = put(&self, &mark, sizeof(mark), SLOTS * SLOT, rkey);
    fence(&self);
    WANT_TRUE(is_marked(SLOTS * SLOT));
    for (int round = 0; round < ROUNDS; round++) {
        for (int slot = 0; slot < SLOTS; slot++) {
            WANT(UCS_OK, finish(&self, reads[round][slot]));
            WANT(UCS_OK, finish(&self, writes[round][slot]));
            WANT_TRUE(first_wrong(back[round][slot], 64, round) == 64);
        }
    }
    WANT(UCS_OK, finish(&self, last));
    close_memory(&self, rkey);
}

/* Reads in flight, and their expected values. */
typedef struct {
    ucs_status_ptr_t request;
    unsigned char   *data;
    size_t           size;
    unsigned         seed;
    int              read;
} access_t;

static void end_access(party_t *self, access_t *access)
{
    WANT(UCS_OK, finish(self, access->request));
    if (access->read) {
        WANT_TRUE(first_wrong(access->data, access->size, access->seed) == access->size);
    }
}

/* Reads and writes at random with fences between them, many in flight at a time. */
static void mixed(void)
{
    enum { STEPS = 20000, WINDOW = 300, SLOTS = 8, LONGEST = 20000 };
    party_t         self;
    ucp_rkey_h      rkey = open_memory(&self, SLOTS * LONGEST, serve);
    unsigned        random = 1, seeds[SLOTS] = {0};
    static access_t window[WINDOW];

    for (int slot = 0; slot < SLOTS; slot++) {
        fill(there + slot * LONGEST, LONGEST, 0);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        access_t *access = &window[step % WINDOW];
        unsigned  slot   = next_random(&random) % SLOTS;

        if (access->data == NULL) {
            access->data = malloc(LONGEST);
        } else {
            end_access(&self, access);
        }
        access->read = next_random(&random) % 4 != 0;
        access->size = access->read ? 1 + next_random(&random) % LONGEST : LONGEST;
        if (access->read) {
            access->seed    = seeds[slot];
            access->request = get(&self, access->data, access->size, slot * LONGEST, rkey);
        } else {
            seeds[slot] = step;
            fill(access->data, LONGEST, step);
            access->request = put(&self, access->data, LONGEST, slot * LONGEST, rkey);
        }
        fence(&self);
        for (unsigned i = next_random(&random) % 4; i > 0; i--) {
            ucp_worker_progress(self.worker);
        }
    }
    for (int i = 0; i < WINDOW; i++) {
        end_access(&self, &window[i]);
        free(window[i].data);
    }
    close_memory(&self, rkey);
}

static const case_t cases[] = {
    {"fenced: short reads, then puts", short_reads_and_puts},
    {"fenced: long reads, then puts", long_reads_and_puts},
    {"fenced: short reads, then atomics", short_reads_and_atomics},
    {"fenced: long reads, then atomics", long_reads_and_atomics},
    {"fenced: short reads, then a message", short_reads_and_message},
    {"fenced: long reads, then a message", long_reads_and_message},
    {"fenced: an endless read", endless_read},
    {"fenced: rounds", rounds},
    {"fenced: mixed", mixed},
};

CHECK_MAIN(cases)
