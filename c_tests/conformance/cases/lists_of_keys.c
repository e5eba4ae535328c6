/*
 * Scatter-gather lists whose keys change from piece to piece: memory that UCP has allocated, memory that it has not,
 * many keys, one that gives no access, and threads that share a worker.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "party.h"
#include "../sgl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MANY = 40, REGIONS = 2 * MANY, REGION = 8 << 10, MOST = 2000, GAP = 4, SECONDS = 20, GUARD = 0x5a };
enum { THREADS = 4, ROUNDS = 3 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* A region of the other process. The first MANY are allocated by UCP, the others by malloc. */
typedef struct {
    uint64_t   addr;
    ucp_rkey_h key;
    size_t     used; /* by the pieces of a list */
} region_t;

typedef struct {
    size_t     count;
    void      *buffers[MOST];
    size_t     lengths[MOST];
    uint64_t   addrs[MOST];
    ucp_rkey_h rkeys[MOST];
    size_t     regions[MOST];
} list_t;

static region_t   regions[REGIONS];
static ucp_rkey_h no_access; /* the key of memory of no bytes */
static list_t     list;
static char       near[MOST * (64 + GAP)];
static char       whole[REGION], wanted[REGION];

/* --- the other process --- */

static void send_key(party_t *self, ucp_mem_h memh, uint64_t addr)
{
    void  *packed;
    size_t length;

    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, &addr, sizeof(addr), 0) == sizeof(addr));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
    ucp_rkey_buffer_release(packed);
}

static void expose_region(party_t *self, void *memory, size_t length)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address    = memory,
        .length     = length,
        .flags      = memory == NULL && length > 0 ? UCP_MEM_MAP_ALLOCATE : 0,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h      memh;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_mem_query(memh, &attr));
    send_key(self, memh, (uintptr_t)attr.address);
}

static void expose(party_t *self)
{
    for (int i = 0; i < REGIONS; i++) {
        expose_region(self, i < MANY ? NULL : malloc(REGION), REGION);
    }
    expose_region(self, NULL, 0);
    progress_until_killed(self);
}

/* --- the process that accesses --- */

static uint64_t receive_key(party_t *self, ucp_rkey_h *key)
{
    char     packed[1024];
    uint64_t addr;

    WANT_TRUE(recv(self->link, &addr, sizeof(addr), 0) == sizeof(addr));
    WANT_TRUE(recv(self->link, packed, sizeof(packed), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep, packed, key));
    return addr;
}

static void open_regions(party_t *self)
{
    start(self, UCP_ERR_HANDLING_MODE_PEER, expose);
    for (int i = 0; i < REGIONS; i++) {
        regions[i].addr = receive_key(self, &regions[i].key);
    }
    receive_key(self, &no_access);
}

static void close_regions(party_t *self)
{
    for (int i = 0; i < REGIONS; i++) {
        ucp_rkey_destroy(regions[i].key);
    }
    ucp_rkey_destroy(no_access);
    kill_other(self);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void wait_ok(party_t *self, ucs_status_ptr_t request)
{
    WANT(UCS_OK, finish_on(self->worker, request, SECONDS));
}

static void flush(party_t *self)
{
    wait_ok(self, ucp_ep_flush_nbx(self->ep, &plain));
}

/* Accesses all of a region by its key alone. */
static void put_whole(party_t *self, size_t region)
{
    wait_ok(self, ucp_put_nbx(self->ep, whole, REGION, regions[region].addr, regions[region].key, &plain));
}

static void get_whole(party_t *self, size_t region)
{
    wait_ok(self, ucp_get_nbx(self->ep, whole, REGION, regions[region].addr, regions[region].key, &plain));
}

static char byte_of(size_t piece, size_t at, unsigned round)
{
    return (char)(piece * 31 + at * 7 + round * 3 + piece / 256 + 1);
}

/* --- lists --- */

static void begin_list(void)
{
    list.count = 0;
    for (int i = 0; i < REGIONS; i++) {
        regions[i].used = 0;
    }
}

/* False: there is no room for the piece. */
static bool add_piece(size_t region, size_t length)
{
    size_t used = regions[region].used;

    if (list.count == MOST || used + length + GAP > REGION) {
        return false;
    }
    list.buffers[list.count] = near + list.count * (64 + GAP);
    list.lengths[list.count] = length;
    list.addrs[list.count]   = regions[region].addr + used;
    list.rkeys[list.count]   = regions[region].key;
    list.regions[list.count] = region;
    list.count++;
    regions[region].used += length + GAP;
    return true;
}

/* Pieces in turn of `keys` regions from `first` on. Length 0: pieces of every length, some of them empty. */
static void alternate(size_t count, size_t first, size_t keys, size_t length)
{
    for (size_t i = 0; i < count && add_piece(first + i % keys, length != 0 ? length : i * 5 % 37); i++) {
    }
}

static ucs_status_ptr_t begin_part(party_t *self, bool puts, size_t first, size_t count)
{
    sgl_t sgl = {list.buffers + first, list.lengths + first, list.addrs + first, list.rkeys + first, NULL};

    return sgl_begin(self->ep, puts, &sgl, count);
}

/* The bytes of a region whose pieces have those of a round, all others the guard. */
static void want_bytes(size_t region, unsigned round)
{
    memset(wanted, GUARD, REGION);
    for (size_t i = 0; i < list.count; i++) {
        for (size_t k = 0; list.regions[i] == region && k < list.lengths[i]; k++) {
            wanted[list.addrs[i] - regions[region].addr + k] = byte_of(i, k, round);
        }
    }
}

static void prepare(party_t *self)
{
    memset(near, GUARD, sizeof(near));
    for (size_t i = 0; i < REGIONS; i++) {
        memset(whole, GUARD, REGION);
        put_whole(self, i);
    }
    flush(self);
}

static void fill_near(unsigned round)
{
    memset(near, GUARD, sizeof(near));
    for (size_t i = 0; i < list.count; i++) {
        for (size_t k = 0; k < list.lengths[i]; k++) {
            ((char *)list.buffers[i])[k] = byte_of(i, k, round);
        }
    }
}

static bool is_near(unsigned round)
{
    static char got[sizeof(near)];

    memcpy(got, near, sizeof(near));
    fill_near(round);
    return memcmp(got, near, sizeof(near)) == 0;
}

/* Accesses all pieces of the list. */
typedef void access_t(party_t *self, bool puts);

static void at_once(party_t *self, bool puts)
{
    wait_ok(self, begin_part(self, puts, 0, list.count));
}

/* What a list puts is where it belongs and nowhere else, and so is what it gets. */
static void put_and_get(party_t *self, access_t *access)
{
    prepare(self);
    fill_near(1);
    access(self, true);
    flush(self);
    for (size_t i = 0; i < REGIONS; i++) {
        get_whole(self, i);
        want_bytes(i, 1);
        WANT_TRUE(memcmp(whole, wanted, REGION) == 0);
        want_bytes(i, 2);
        memcpy(whole, wanted, REGION);
        put_whole(self, i);
    }
    flush(self);
    memset(near, GUARD, sizeof(near));
    access(self, false);
    WANT_TRUE(is_near(2));
}

static void keys_alternate(void)
{
    /* First region, regions, pieces, and their length. */
    static const size_t kinds[][4] = {
        {0, 2, 700, 8},         {0, 3, 200, 0},       {MANY, 2, 700, 8},     {MANY, 3, 200, 0},
        {MANY - 1, 2, 300, 0},  {0, MANY, 700, 0},    {MANY, MANY, 700, 8},  {0, REGIONS, 400, 8},
        {0, 2, 2, 8},
    };
    party_t self;

    open_regions(&self);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        begin_list();
        alternate(kinds[i][2], kinds[i][0], kinds[i][1], kinds[i][3]);
        put_and_get(&self, at_once);
    }
    close_regions(&self);
}

/* Many pieces of one key, between pieces whose keys alternate. */
static void runs_among_them(void)
{
    party_t self;

    open_regions(&self);
    for (size_t first = 0; first < REGIONS; first += MANY) {
        begin_list();
        alternate(100, first, 1, 8);
        alternate(90, first, 3, 8);
        alternate(31, first + 2, 1, 8);
        alternate(200, first, MANY, 0);
        alternate(40, first + 5, 1, 8);
        alternate(520, first + 1, 2, 20);
        alternate(600, first + 7, 1, 20);
        alternate(9, first + 8, 1, 8);
        put_and_get(&self, at_once);
    }
    close_regions(&self);
}

/* Nothing of a list is accessed if one of its keys gives no access, or a piece has none; the endpoint goes on. */
static void refused(void)
{
    party_t self;

    open_regions(&self);
    for (size_t first = 0; first < REGIONS; first += MANY) {
        for (int i = 0; i < 4; i++) {
            begin_list();
            alternate(1000, first, i % 2 == 0 ? 2 : MANY, 8);
            prepare(&self);
            fill_near(1);
            list.rkeys[997] = i / 2 == 0 ? NULL : no_access;
            for (int puts = 0; puts < 2; puts++) {
                ucs_status_ptr_t request = begin_part(&self, puts, 0, list.count);

                WANT(UCS_ERR_INVALID_PARAM, UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK);
            }
            flush(&self);
            WANT_TRUE(is_near(1));
            list.count = 0;
            for (size_t k = 0; k < REGIONS; k++) {
                get_whole(&self, k);
                want_bytes(k, 1);
                WANT_TRUE(memcmp(whole, wanted, REGION) == 0);
            }
        }
        begin_list();
        alternate(1000, first, 2, 8);
        put_and_get(&self, at_once);
    }
    close_regions(&self);
}

/* --- threads of one worker --- */

typedef struct {
    party_t *self;
    bool     puts;
    size_t   first;
} part_t;

static void *access_part(void *arg)
{
    part_t *part = arg;

    for (int i = 0; i < ROUNDS; i++) {
        wait_ok(part->self, begin_part(part->self, part->puts, part->first, list.count / THREADS));
    }
    return NULL;
}

static void by_threads(party_t *self, bool puts)
{
    pthread_t threads[THREADS];
    part_t    parts[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        parts[i] = (part_t){self, puts, i * (list.count / THREADS)};
        WANT_TRUE(pthread_create(&threads[i], NULL, access_part, &parts[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        WANT_TRUE(pthread_join(threads[i], NULL) == 0);
    }
}

static void threads_share_a_worker(void)
{
    party_t self;

    party_thread_mode = UCS_THREAD_MODE_MULTI;
    open_regions(&self);
    for (size_t first = 0; first < REGIONS; first += MANY) {
        begin_list();
        alternate(1000, first, 3, 0);
        alternate(800, first, MANY, 8);
        list.count -= list.count % THREADS;
        put_and_get(&self, by_threads);
    }
    close_regions(&self);
}

static const case_t cases[] = {
    {"lists of keys: keys alternate", keys_alternate},
    {"lists of keys: runs among them", runs_among_them},
    {"lists of keys: a key is refused", refused},
    {"lists of keys: threads share a worker", threads_share_a_worker},
};

CHECK_MAIN(cases)
