/*
 * Zero-copy puts and gets: the exact number of their calls into uTofu; their completion when memory is unmapped,
 * cannot be registered, or is reused by its owner before the adapter has finished.
 */
#include "check.h"
#include "finish.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE ((size_t)20 << 20)

enum { SECONDS = 20, MANY = 1024, LONG = 1 << 20, ROUNDS = 50, BUFFERS = 64 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucp_context_h  context;
static ucp_worker_h   worker, peer;
static ucp_ep_h       ep;
static ucp_rkey_h     rkey;
static ucp_mem_h      theirs_h;
static unsigned char *theirs;
static unsigned       failures;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg, (void)failed, (void)status;
    failures++;
}

static void progress(void *arg)
{
    (void)arg;
    ucp_worker_progress(worker);
    ucp_worker_progress(peer);
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_with(request, SECONDS, progress, NULL);
}

static ucs_status_t flush(void)
{
    return finish(ucp_ep_flush_nbx(ep, &none));
}

static unsigned char *fresh(void *at, size_t size, int value)
{
    int            flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED_NOREPLACE : 0);
    unsigned char *bytes = mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    memset(bytes, value, size);
    return bytes;
}

static void open_all(void)
{
    ucp_params_t         params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features   = UCP_FEATURE_RMA | UCP_FEATURE_TAG};
    ucp_worker_params_t  worker_params = {.field_mask = 0};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .length     = SIZE};
    ucp_ep_params_t      ep_params     = {.field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                        UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                          .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
                                          .err_handler = {.cb = on_failure}};
    ucp_address_t       *address;
    size_t               length;
    void                *key;

    failures = 0;
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &peer));
    WANT(UCS_OK, ucp_worker_get_address(peer, &address, &length));
    ep_params.address = address;
    WANT(UCS_OK, ucp_ep_create(worker, &ep_params, &ep));
    ucp_worker_release_address(peer, address);
    theirs      = fresh(NULL, SIZE, 0);
    map.address = theirs;
    WANT(UCS_OK, ucp_mem_map(context, &map, &theirs_h));
    WANT(UCS_OK, ucp_rkey_pack(context, theirs_h, &key, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep, key, &rkey));
    ucp_rkey_buffer_release(key);
    WANT(UCS_OK, finish(ucp_put_nbx(ep, "begin", 5, (uint64_t)theirs, rkey, &none)));
    WANT(UCS_OK, flush());
}

static void close_ep(void)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(rkey);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &param)));
}

static void close_rest(void)
{
    WANT(UCS_OK, ucp_mem_unmap(context, theirs_h));
    ucp_worker_destroy(worker);
    ucp_worker_destroy(peer);
    ucp_cleanup(context);
    munmap(theirs, SIZE);
}

static void close_all(void)
{
    close_ep();
    close_rest();
}

static ucs_status_ptr_t put(const void *from, size_t size)
{
    return ucp_put_nbx(ep, from, size, (uint64_t)theirs, rkey, &none);
}

static ucs_status_ptr_t get(void *into, size_t size)
{
    return ucp_get_nbx(ep, into, size, (uint64_t)theirs, rkey, &none);
}

/* Counters of one operation. */
typedef struct {
    unsigned long posts, puts, piggybacks, gets, tcq_notices, local_notices, registrations;
} cost_t;

static cost_t now(void)
{
    return (cost_t){counter("posts"),       counter("puts"),          counter("piggybacks"),   counter("gets"),
                    counter("tcq_notices"), counter("local_notices"), counter("registrations")};
}

static void want_cost(const char *what, cost_t before, cost_t wanted)
{
    cost_t after = now();
    cost_t spent = {after.posts - before.posts,
                    after.puts - before.puts,
                    after.piggybacks - before.piggybacks,
                    after.gets - before.gets,
                    after.tcq_notices - before.tcq_notices,
                    after.local_notices - before.local_notices,
                    after.registrations - before.registrations};

    if (memcmp(&spent, &wanted, sizeof(spent)) != 0) {
        fprintf(stderr,
                "%s: %lu posts, %lu puts, %lu piggybacks, %lu gets, %lu TCQ notices, %lu local notices, %lu "
                "registrations\n",
                what, spent.posts, spent.puts, spent.piggybacks, spent.gets, spent.tcq_notices, spent.local_notices,
                spent.registrations);
        WANT_TRUE(!"the cost that is wanted");
    }
}

static void calls(void)
{
    unsigned char       *own = fresh(NULL, SIZE, 1), *other = fresh(NULL, SIZE, 2);
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .address    = own,
                                .length     = SIZE};
    ucp_mem_h            own_h;
    cost_t               before;

    open_all();
    WANT(UCS_OK, ucp_mem_map(context, &map, &own_h));
    before = now();
    WANT(UCS_OK, finish(put(own, 8)));
    WANT(UCS_OK, finish(put(own, 32)));
    want_cost("puts of 8 and 32 B", before, (cost_t){.posts = 2, .piggybacks = 2});
    WANT(UCS_OK, finish(get(own, 64)));
    before = now();
    WANT(UCS_OK, finish(put(own + 4000, 64)));
    want_cost("put of 64 B from registered memory", before, (cost_t){.posts = 1, .puts = 1, .tcq_notices = 1});
    before = now();
    WANT(UCS_OK, finish(get(own + LONG, 64)));
    want_cost("get of 64 B to registered memory", before, (cost_t){.posts = 1, .gets = 1, .local_notices = 1});
    before = now();
    WANT(UCS_OK, finish(get(own, 8)));
    want_cost("get of 8 B", before, (cost_t){.posts = 1, .gets = 1, .local_notices = 1});
    before = now();
    WANT(UCS_OK, finish(put(other, LONG)));
    want_cost("put of 1 MiB", before, (cost_t){.posts = 1, .puts = 1, .tcq_notices = 1, .registrations = 1});
    before = now();
    WANT(UCS_OK, finish(put(other + 100, LONG - 100)));
    want_cost("the same again", before, (cost_t){.posts = 1, .puts = 1, .tcq_notices = 1});
    before = now();
    WANT(UCS_OK, finish(put(own, SIZE)));
    want_cost("put of 20 MiB", before, (cost_t){.posts = 2, .puts = 2, .tcq_notices = 2});
    before = now();
    WANT(UCS_OK, finish(get(other, LONG)));
    want_cost("get of 1 MiB", before, (cost_t){.posts = 1, .gets = 1, .local_notices = 1});
    WANT(UCS_OK, flush());
    WANT_TRUE(memcmp(theirs, own, SIZE) == 0 && memcmp(other, own, LONG) == 0 && other[LONG] == 2);
    WANT(UCS_OK, ucp_mem_unmap(context, own_h));
    close_all();
    munmap(own, SIZE);
    munmap(other, SIZE);
}

static ucs_status_ptr_t message(const void *from, size_t size)
{
    return ucp_tag_send_nbx(ep, from, size, 1, &none);
}

/* A long message is one get of the receiver: no payload goes through rings. */
static void messages(void)
{
    unsigned char   *own = fresh(NULL, SIZE, 1), *other = fresh(NULL, SIZE, 2);
    ucs_status_ptr_t sent, received;
    unsigned long    gets, puts;

    open_all();
    for (int round = 0; round < 3; round++) {
        memset(own, 10 + round, SIZE);
        gets     = counter("gets");
        puts     = counter("puts");
        received = ucp_tag_recv_nbx(peer, other, SIZE, 1, 0, &none);
        sent     = message(own, LONG);
        WANT(UCS_OK, finish(sent));
        WANT(UCS_OK, finish(received));
        WANT_TRUE(counter("gets") == gets + 1);
        /* RTS and ATS. */
        WANT_TRUE(counter("puts") < puts + 8);
        WANT_TRUE(memcmp(own, other, LONG) == 0 && other[LONG] == 2);
    }
    close_all();
    munmap(own, SIZE);
    munmap(other, SIZE);
}

/* The sender cancels its message while it is being read: the buffer is free when it is not read any more. */
static void message_canceled(void)
{
    unsigned char      *own = fresh(NULL, LONG, 1), *other = fresh(NULL, LONG, 2);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t    sent, received, closed;
    ucs_status_t        status;
    unsigned long       gets;
    time_t              end = time(NULL) + SECONDS;

    open_all();
    /* A connection in the other direction. */
    received = ucp_tag_recv_nbx(peer, other, LONG, 1, 0, &none);
    WANT(UCS_OK, finish(message(own, LONG)));
    WANT(UCS_OK, finish(received));
    gets     = counter("gets");
    received = ucp_tag_recv_nbx(peer, other, LONG, 1, 0, &none);
    sent     = message(own, LONG);
    fault("delay_us=100000");
    while (counter("gets") == gets && time(NULL) < end) {
        progress(NULL);
    }
    WANT_TRUE(counter("gets") == gets + 1);
    ucp_rkey_destroy(rkey);
    closed = ucp_ep_close_nbx(ep, &param);
    status = finish(sent);
    WANT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET || status == UCS_OK);
    status = finish(received);
    WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_OK);
    WANT(UCS_OK, finish(closed));
    fault("delay_us=0");
    close_rest();
    munmap(own, LONG);
    munmap(other, LONG);
}

/* All of them are posted before the first completes: there is no progress in between. */
static void many_gets(void)
{
    static uint64_t         into[MANY];
    static ucs_status_ptr_t requests[MANY];
    unsigned long           gets, notices;

    open_all();
    for (int i = 0; i < MANY; i++) {
        ((uint64_t *)theirs)[i] = 1000000 + i;
    }
    for (int round = 0; round < 3; round++) {
        memset(into, 0, sizeof(into));
        gets    = counter("gets");
        notices = counter("local_notices");
        for (int i = 0; i < MANY; i++) {
            requests[i] = ucp_get_nbx(ep, &into[i], 8, (uint64_t)theirs + 8 * i, rkey, &none);
        }
        ucp_worker_progress(worker);
        WANT_TRUE(counter("gets") == gets + MANY);
        for (int i = 0; i < MANY; i++) {
            WANT(UCS_OK, finish(requests[i]));
            WANT_TRUE(into[i] == (uint64_t)(1000000 + i));
        }
        WANT_TRUE(counter("local_notices") == notices + MANY);
    }
    close_all();
}

/*
 * Memory is mapped again at the same address repeatedly: puts read the new contents, and gets write to the new memory.
 */
static void unmapped(void)
{
    unsigned char *bytes = fresh(NULL, LONG, 0);
    unsigned long  registrations, deregistrations;

    open_all();
    registrations   = counter("registrations");
    deregistrations = counter("deregistrations");
    for (int round = 1; round <= ROUNDS; round++) {
        munmap(bytes, LONG);
        WANT_TRUE(fresh(bytes, LONG, round) == bytes);
        WANT(UCS_OK, finish(put(bytes, LONG)));
        WANT(UCS_OK, flush());
        WANT_TRUE(theirs[0] == round && theirs[LONG - 1] == round);
        munmap(bytes, LONG);
        WANT_TRUE(fresh(bytes, LONG, 0) == bytes);
        WANT(UCS_OK, finish(get(bytes, LONG)));
        WANT_TRUE(bytes[0] == round && bytes[LONG - 1] == round);
    }
    WANT_TRUE(counter("registrations") == registrations + 2 * ROUNDS);
    WANT_TRUE(counter("deregistrations") >= deregistrations + 2 * ROUNDS - 1);
    close_all();
    munmap(bytes, LONG);
}

/* No cached registration can be evicted for it. */
static void not_registered(void)
{
    unsigned char *bytes = fresh(NULL, LONG, 7), *into = fresh(NULL, LONG, 0);
    unsigned long  puts;

    open_all();
    fault("reg_fail_nth=1");
    puts = counter("puts");
    WANT(UCS_OK, finish(put(bytes, LONG)));
    WANT(UCS_OK, flush());
    WANT_TRUE(counter("puts") >= puts + LONG / 4096);
    WANT_TRUE(memcmp(theirs, bytes, LONG) == 0);
    fault("reg_fail_nth=1");
    WANT(UCS_OK, finish(get(into, LONG)));
    WANT_TRUE(memcmp(into, bytes, LONG) == 0);
    close_all();
    munmap(bytes, LONG);
    munmap(into, LONG);
}

/* More registrations than the control queue has stags: see SOFT_TOFU_STAGS. */
static void too_many(void)
{
    unsigned char *bytes[BUFFERS];

    open_all();
    for (int i = 0; i < BUFFERS; i++) {
        bytes[i] = fresh(NULL, LONG, i + 1);
    }
    for (int i = 0; i < 2 * BUFFERS; i++) {
        WANT(UCS_OK, finish(put(bytes[i % BUFFERS], LONG)));
        WANT(UCS_OK, flush());
        WANT_TRUE(theirs[LONG - 1] == i % BUFFERS + 1);
    }
    close_all();
    for (int i = 0; i < BUFFERS; i++) {
        munmap(bytes[i], LONG);
    }
}

/*
 * Cached registrations are evicted when stags are needed: a new connection gets a ring, an rkey a stag, reads get
 * buffers.
 */
static void makes_room(void)
{
    enum { GETS = 256 };
    static uint64_t       into[GETS];
    ucs_status_ptr_t      requests[GETS], received;
    unsigned char        *bytes[BUFFERS], *mapped = fresh(NULL, LONG, 77), *other = fresh(NULL, LONG, 0);
    ucp_worker_params_t   worker_params = {.field_mask = 0};
    ucp_mem_map_params_t  map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                    .address    = mapped,
                                    .length     = LONG};
    ucp_ep_params_t       params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_worker_h          new_worker;
    ucp_address_t        *address;
    ucp_mem_h             mapped_h;
    ucp_rkey_h            mapped_key;
    ucp_ep_h              back;
    ucs_status_ptr_t      request;
    size_t                length;
    void                 *key;
    unsigned long         before;
    char                  text[8] = "newcome", received_text[8] = "";
    time_t                end     = time(NULL) + SECONDS;

    open_all();
    for (int i = 0; i < BUFFERS; i++) {
        bytes[i] = fresh(NULL, LONG, i + 1);
        WANT(UCS_OK, finish(i % 2 == 0 ? put(bytes[i], LONG) : get(bytes[i], LONG)));
    }
    WANT(UCS_OK, flush());
    WANT(UCS_OK, ucp_mem_map(context, &map, &mapped_h));
    WANT(UCS_OK, ucp_rkey_pack(context, mapped_h, &key, &length));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &new_worker));
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &length));
    params.address = address;
    WANT(UCS_OK, ucp_ep_create(new_worker, &params, &back));
    ucp_worker_release_address(worker, address);
    WANT(UCS_OK, ucp_ep_rkey_unpack(back, key, &mapped_key));
    ucp_rkey_buffer_release(key);

    received = ucp_tag_recv_nbx(worker, received_text, sizeof(received_text), 2, ~0ull, &none);
    request  = ucp_tag_send_nbx(back, text, sizeof(text), 2, &none);
    while (ucp_request_check_status(received) == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(new_worker);
        progress(NULL);
    }
    WANT(UCS_OK, finish(received));
    WANT(UCS_OK, finish(request));
    before  = counter("gets");
    request = ucp_get_nbx(back, other, LONG, (uint64_t)mapped, mapped_key, &none);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(new_worker);
        progress(NULL);
    }
    WANT(UCS_OK, finish(request));
    WANT_TRUE(memcmp(received_text, text, sizeof(text)) == 0);
    WANT_TRUE(counter("gets") == before + 1);
    WANT_TRUE(memcmp(other, mapped, LONG) == 0);

    for (int i = 0; i < BUFFERS; i++) {
        WANT(UCS_OK, finish(put(bytes[i], LONG)));
    }
    WANT(UCS_OK, flush());
    before = counter("gets");
    for (int i = 0; i < GETS; i++) {
        requests[i] = ucp_get_nbx(ep, &into[i], 8, (uint64_t)theirs, rkey, &none);
    }
    WANT_TRUE(counter("gets") == before + GETS);
    for (int i = 0; i < GETS; i++) {
        WANT(UCS_OK, finish(requests[i]));
        WANT_TRUE(into[i] == *(uint64_t *)theirs && into[i] != 0);
    }
    /* The evicted registrations are made again. */
    WANT(UCS_OK, finish(put(bytes[0], LONG)));
    WANT(UCS_OK, flush());
    WANT_TRUE(theirs[0] == bytes[0][0] && theirs[LONG - 1] == bytes[0][0]);
    ucp_rkey_destroy(mapped_key);
    WANT(UCS_OK, ucp_mem_unmap(context, mapped_h));
    ucp_worker_destroy(new_worker);
    close_all();
    for (int i = 0; i < BUFFERS; i++) {
        munmap(bytes[i], LONG);
    }
    munmap(mapped, LONG);
    munmap(other, LONG);
}

/* One part of several fails: the request ends as the endpoint does, when the adapter has finished with the memory. */
static void failing(int code, int writes)
{
    unsigned char   *bytes = fresh(NULL, SIZE, 9);
    ucs_status_ptr_t request;
    ucs_status_t     status;
    char             order[64];
    time_t           end = time(NULL) + SECONDS;

    open_all();
    snprintf(order, sizeof(order), "fail_nth=2,fail_code=%d", code);
    fault(order);
    request = writes ? put(bytes, SIZE) : get(bytes, SIZE);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    status = finish(request);
    /* A put whose source was read failed at the target, not at the source. */
    WANT_TRUE(status == UCS_ERR_IO_ERROR || status == UCS_ERR_CONNECTION_RESET || (writes && status == UCS_OK));
    while (failures == 0 && time(NULL) < end) {
        progress(NULL);
    }
    WANT_TRUE(failures == 1);
    close_all();
    munmap(bytes, SIZE);
}

static void failing_puts(void)
{
    failing(-131, 1);
    failing(-197, 1);
    failing(-193, 1);
}

static void failing_gets(void)
{
    failing(-196, 0);
    failing(-197, 0);
    failing(-193, 0);
}

/* After a forced close the buffer is free when it is not written any more. */
static void closed_by_force(void)
{
    unsigned char       *bytes = fresh(NULL, LONG, 0);
    ucp_request_param_t  param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t     request, closed;
    ucs_status_t         status;

    open_all();
    memset(theirs, 5, LONG);
    WANT(UCS_OK, finish(get(bytes, LONG)));
    memset(bytes, 0, LONG);
    fault("delay_us=300000");
    request = get(bytes, LONG);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    ucp_rkey_destroy(rkey);
    closed = ucp_ep_close_nbx(ep, &param);
    WANT_TRUE(bytes[0] == 0 && ucp_request_check_status(request) == UCS_INPROGRESS);
    status = finish(request);
    WANT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET);
    /* It could not be stopped: so the data must have arrived by now. */
    WANT_TRUE(bytes[0] == 5 && bytes[LONG - 1] == 5);
    WANT(UCS_OK, finish(closed));
    fault("delay_us=0");
    close_rest();
    munmap(bytes, LONG);
}

static const case_t cases[] = {
    {"zcopy: calls", calls},
    {"zcopy: messages", messages},
    {"zcopy: a canceled message", message_canceled},
    {"zcopy: 1024 gets", many_gets},
    {"zcopy: unmapped memory", unmapped},
    {"zcopy: memory that is not registered", not_registered},
    {"zcopy: too much memory", too_many},
    {"zcopy: cached registrations are evicted", makes_room},
    {"zcopy: puts that fail", failing_puts},
    {"zcopy: gets that fail", failing_gets},
    {"zcopy: closed by force", closed_by_force},
};

CHECK_MAIN(cases)
