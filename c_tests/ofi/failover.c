/*
 * Endpoints that fail over between two workers of this process, by two providers of the restricted fabric that fail:
 * each message arrives once, in order and whole, each atomic operation is executed once, puts and gets move what they
 * should, and no endpoint fails.
 */
#define _GNU_SOURCE
#include "two_workers.h"

#include <dlfcn.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 8, LONGEST = 300000, AM_ID = 3, PART = 500, WORDS = 4000 };

static const size_t sizes[] = {0, 8, 300, 4000, 20000, 90000, LONGEST, 1};

/* What one end sends and receives. */
static struct {
    unsigned char out[BATCH][LONGEST], in[BATCH][LONGEST], part[PART];
    unsigned      sent, seen; /* active messages */
    uint64_t      words[1 + WORDS]; /* the other end accesses them */
    ucp_mem_h     memory;
    ucp_rkey_h    rkey; /* of the other end's words */
    uint64_t      sum;  /* of what was added to the other end's first word */
} sides[2];

static ucs_status_t on_am(void *argument, const void *header, size_t header_length, void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    unsigned *seen = argument;

    (void)data, (void)param;
    /* In order, none twice. */
    WANT_TRUE(header_length == sizeof(*seen) && memcmp(header, seen, sizeof(*seen)) == 0 && length == PART);
    ++*seen;
    return UCS_OK;
}

/* Maps the words of both ends, and gives each the key of the other's. */
static void share(void)
{
    for (int i = 0; i < 2; i++) {
        ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                        UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                          .id  = AM_ID,
                                          .cb  = on_am,
                                          .arg = &sides[i].seen};
        ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                    .address    = sides[i].words,
                                    .length     = sizeof(sides[i].words)};
        void                  *key;
        size_t                 length;

        WANT(UCS_OK, ucp_worker_set_am_recv_handler(ends[i].worker, &handler));
        must(ucp_mem_map(context, &map, &sides[i].memory), "ucp_mem_map");
        must(ucp_rkey_pack(context, sides[i].memory, &key, &length), "ucp_rkey_pack");
        must(ucp_ep_rkey_unpack(ends[1 - i].ep, key, &sides[1 - i].rkey), "ucp_ep_rkey_unpack");
        ucp_rkey_buffer_release(key);
    }
}

static void unmap(void)
{
    for (int i = 0; i < 2; i++) {
        ucp_rkey_destroy(sides[i].rkey);
        WANT(UCS_OK, ucp_mem_unmap(context, sides[i].memory));
    }
}

/* Waits for a request, which has to end well. */
static void finish(ucs_status_ptr_t request)
{
    for (time_t limit = time(NULL) + 4 * SECONDS; is_pending(request) && time(NULL) < limit;) {
        progress();
    }
    WANT_TRUE(!is_pending(request));
    WANT(UCS_OK, UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request) : UCS_PTR_STATUS(request));
    if (UCS_PTR_IS_PTR(request) && !is_pending(request)) {
        ucp_request_free(request);
    }
}

/* Both ends send a batch of messages of all kinds at once. */
static void exchange(int round)
{
    ucs_status_ptr_t requests[2][4 * BATCH];

    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < BATCH; n++) {
            size_t size = sizes[(round + n) % 8];

            memset(sides[i].out[n], round * 31 + n * 7 + i + 1, size);
            memset(sides[1 - i].in[n], 0, size);
            requests[i][n] = ucp_tag_recv_nbx(ends[1 - i].worker, sides[1 - i].in[n], LONGEST, 5, UINT64_MAX, &plain);
        }
    }
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < BATCH; n++) {
            static unsigned     numbers[2][BATCH];
            static uint64_t     old[2][BATCH], one = 1;
            ucp_request_param_t add = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                       .datatype     = ucp_dt_make_contig(8),
                                       .reply_buffer = &old[i][n]};
            uint64_t            there = (uint64_t)(uintptr_t)sides[1 - i].words;

            requests[i][BATCH + n] =
                ucp_tag_send_nbx(ends[i].ep, sides[i].out[n], sizes[(round + n) % 8], 5, &plain);
            numbers[i][n]              = sides[i].sent++;
            requests[i][2 * BATCH + n] = ucp_am_send_nbx(ends[i].ep, AM_ID, &numbers[i][n], sizeof(unsigned),
                                                         sides[i].part, PART, &plain);
            requests[i][3 * BATCH + n] =
                ucp_atomic_op_nbx(ends[i].ep, UCP_ATOMIC_OP_ADD, &one, 1, there, sides[i].rkey, &add);
            sides[i].sum++;
        }
    }
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 4 * BATCH; n++) {
            finish(requests[i][n]);
        }
    }
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < BATCH; n++) {
            WANT_TRUE(memcmp(sides[i].out[n], sides[1 - i].in[n], sizes[(round + n) % 8]) == 0);
        }
    }
}

/* Each end puts words into the other's memory, and reads them again. */
static void put_and_get(int round)
{
    for (int i = 0; i < 2; i++) {
        static uint64_t out[WORDS], in[WORDS];
        uint64_t        there = (uint64_t)(uintptr_t)&sides[1 - i].words[1];

        memset(in, 0, sizeof(in));
        for (int n = 0; n < WORDS; n++) {
            out[n] = (uint64_t)(round * 100000 + n + i);
        }
        finish(ucp_put_nbx(ends[i].ep, out, sizeof(out), there, sides[i].rkey, &plain));
        finish(ucp_ep_flush_nbx(ends[i].ep, &plain));
        WANT_TRUE(memcmp(&sides[1 - i].words[1], out, sizeof(out)) == 0);
        finish(ucp_get_nbx(ends[i].ep, in, sizeof(in), there, sides[i].rkey, &plain));
        WANT_TRUE(memcmp(in, out, sizeof(out)) == 0);
    }
}

/* The device of an endpoint's lane. */
static const char *device_of(int i)
{
    static ucp_transport_entry_t entry;
    ucp_ep_attr_t                attr = {.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                                         .transports = {&entry, 1, sizeof(entry)}};

    WANT(UCS_OK, ucp_ep_query(ends[i].ep, &attr));
    return attr.transports.num_entries == 1 ? entry.device_name : "";
}

static void start_with(const char *rules, uint64_t feature)
{
    err_mode = UCP_ERR_HANDLING_MODE_FAILOVER;
    begin(rules, UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | feature);
    share();
}

static void start(const char *rules)
{
    start_with(rules, 0);
}

static void stop(void)
{
    WANT_TRUE(ends[0].failures == 0 && ends[1].failures == 0);
    for (int i = 0; i < 2; i++) {
        WANT_TRUE(sides[i].words[0] == sides[1 - i].sum && sides[i].seen == sides[1 - i].sent);
    }
    unmap();
    end();
}

/* How often the lane of the first endpoint was found by another device than before. */
static unsigned play(int rounds)
{
    char     device[64] = "shm";
    unsigned moves      = 0;

    for (int round = 0; round < rounds && !check_failed(); round++) {
        exchange(round);
        put_and_get(round);
        moves += strcmp(device, device_of(0)) != 0;
        snprintf(device, sizeof(device), "%s", device_of(0));
    }
    return moves;
}

static void under(const char *rules, int rounds)
{
    start(rules);
    WANT_TRUE(play(rounds) > 0);
    stop();
}

/* The first provider fails for good, amid messages: the other one carries them from then on. */
static void dead(void)
{
    start("dies_after=150");
    WANT_TRUE(play(30) == 1 && strcmp(device_of(0), "shm") != 0);
    stop();
}

/* All completions of the first provider of a worker are errors, and what arrives is lost, from the requests to connect
 * on. */
static void failed_request(void)
{
    start("error_nth=1,error_queues=1");
    WANT_TRUE(play(5) == 1 && strcmp(device_of(0), "shm") != 0);
    stop();
}

/* Completions of the first provider of both workers are errors. */
static void one_provider(void)
{
    start("error_nth=97,error_queues=5");
    WANT_TRUE(play(30) == 1 && strcmp(device_of(1), "shm") != 0);
    stop();
}

/* Both providers fail now and then, so that connections move there and back. */
static void both_providers(void)
{
    under("error_nth=701", 25);
}

static void reset_connections(void)
{
    under("error_nth=907,error_code=104", 20);
}

static void lost_messages(void)
{
    under("lose_nth=400", 12);
}

static void damaged_messages(void)
{
    under("damage_nth=500,damage_at=8", 12);
}

static void without_order(void)
{
    under("reorder_nth=5,eagain_nth=7,error_nth=811", 12);
}

/* Reads of long messages, and of the other end's memory, fail: what they have not read arrives another way. */
static void reads(void)
{
    under("fail_read_nth=7", 20);
}

/* Each provider wants the memory registered in its domain. */
static void reads_of_registered(void)
{
    under("fail_read_nth=11,mr_local=1,mr_prov_key=1,mr_endpoint=1", 12);
}

/* The first provider fails for good, and does not report a read of the first worker. */
static void dead_amid_reads(void)
{
    start("dies_at_read=9");
    WANT_TRUE(play(10) == 1 && strcmp(device_of(0), "shm") != 0);
    stop();
}

/* Where no other interface leads to the peer the endpoints fail, as they do without failover. */
static void no_other(void)
{
    setenv("UCX_OFI_PROVIDER", "tcp", 1);
    start("error_nth=61");
    for (time_t limit = time(NULL) + SECONDS; !ends[0].failed && !ends[1].failed && time(NULL) < limit;) {
        ucs_status_ptr_t request = ucp_tag_send_nbx(ends[0].ep, sides[0].out, 100, 5, &plain);

        while (is_pending(request) && !ends[0].failed && time(NULL) < limit) {
            progress();
        }
        end_of(ends[0].worker, request);
    }
    WANT_TRUE(ends[0].failed || ends[1].failed);
    unmap();
    end();
}

/* Sends a message to the second worker, and progresses both. */
static void send_one(void)
{
    ucs_status_ptr_t request = ucp_tag_send_nbx(ends[0].ep, sides[0].out, 100, 5, &plain);

    for (int i = 0; i < 100 && is_pending(request) && !ends[0].failed; i++) {
        progress();
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

/* Both providers of the first worker fail when the connection is open: both ends fail, the second one by a reset. */
static void none_left(void)
{
    start("error_after=40,error_nth=1,error_code=104,error_queues=3");
    for (time_t limit = time(NULL) + 2 * SECONDS; !(ends[0].failed && ends[1].failed) && time(NULL) < limit;) {
        ends[0].failed ? progress() : send_one();
    }
    WANT_TRUE(ends[0].failed && is_connection_lost(&ends[0]));
    WANT_TRUE(ends[1].failed && ends[1].why == UCS_ERR_CONNECTION_RESET);
    unmap();
    end();
}

/* The first worker moves the connection, does not get the answer, and does nothing any more: the second end fails. */
static void silent(void)
{
    time_t limit = time(NULL) + 2 * SECONDS;

    start("error_after=40,error_nth=1,error_code=104,error_queues=3");
    while (!ends[0].failed && strcmp(device_of(1), "shm") == 0 && time(NULL) < limit) {
        send_one();
    }
    WANT_TRUE(!ends[0].failed && !ends[1].failed);
    while (!ends[1].failed && time(NULL) < limit) {
        ucp_worker_progress(ends[1].worker);
    }
    WANT_TRUE(ends[1].failed && ends[1].why == UCS_ERR_ENDPOINT_TIMEOUT);
    while (!ends[0].failed && time(NULL) < limit) {
        progress();
    }
    WANT_TRUE(ends[0].failed);
    unmap();
    end();
}

/* Of a clock that only goes on. */
static long long milliseconds(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000LL + at.tv_nsec / 1000000;
}

/* Waits for a request of the first worker, which sleeps whenever that is allowed. */
static void finish_asleep(ucs_status_ptr_t request, int descriptor)
{
    while (is_pending(request) && !check_failed()) {
        for (int i = 0; i < 200; i++) {
            ucp_worker_progress(ends[1].worker);
        }
        /* One call may find the failure, and the next one would move the connection. */
        ucp_worker_progress(ends[0].worker);
        /* Less than the time after which it asks for an answer again. */
        WANT_TRUE(!is_pending(request) || ucp_worker_arm(ends[0].worker) != UCS_OK || wakes_within(descriptor, 700));
    }
    finish(request);
}

/* The first provider of a worker that sleeps fails for good: the worker wakes, and moves its connection. */
static void asleep(void)
{
    int descriptor;

    setenv("UCX_KEEPALIVE_INTERVAL", "inf", 1); /* no probe wakes it */
    start_with("dies_after=150", UCP_FEATURE_WAKEUP);
    must(ucp_worker_get_efd(ends[0].worker, &descriptor), "ucp_worker_get_efd");
    for (int i = 0; i < 500 && !check_failed() && strcmp(device_of(0), "shm") == 0; i++) {
        ucs_status_ptr_t receive = ucp_tag_recv_nbx(ends[1].worker, sides[1].in[0], PART, 5, UINT64_MAX, &plain);

        /* It waits for an answer, and for no room, which would keep the worker awake. */
        finish_asleep(ucp_tag_send_sync_nbx(ends[0].ep, sides[0].out[0], PART, 5, &plain), descriptor);
        finish(receive);
    }
    WANT_TRUE(strcmp(device_of(0), "shm") != 0);
    stop();
}

/* A message is read in parts, of which one fails, and another one is not reported: it may still be written, so that the
 * message cannot arrive another way, and the peer fails. */
static void unreported_read(void)
{
    time_t limit = time(NULL) + 3 * SECONDS;

    start("max_msg=65536,fail_read_nth=4,hide_read_nth=5");
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(ends[0].worker, sides[0].in[0], LONGEST, 6, UINT64_MAX, &plain);
    ucs_status_ptr_t send    = ucp_tag_send_nbx(ends[1].ep, sides[1].out[0], LONGEST, 6, &plain);
    while (!ends[0].failed && strcmp(device_of(0), "shm") == 0 && time(NULL) < limit) {
        send_one();
    }
    WANT_TRUE(!ends[0].failed && is_pending(receive));
    while (!ends[0].failed && time(NULL) < limit) {
        progress();
    }
    WANT_TRUE(ends[0].failed && ends[0].why == UCS_ERR_ENDPOINT_TIMEOUT);
    WANT_TRUE(is_pending(receive));
    (void)send; /* it ends with the worker */
    unmap();
    end();
}

/* How many sends the restricted fabric has refused by the rule full_queues. */
static uint64_t refused_sends(void)
{
    void *fabric = dlopen("libfabric.so.1", RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*count)(void);

    *(void **)&count = fabric == NULL ? NULL : dlsym(fabric, "soft_ofi_refused_sends");
    WANT_TRUE(count != NULL);
    return count == NULL ? 0 : count();
}

/* The first worker moves its connection, for whose answer, and for whose end later, the second one has no room: it does
 * not try for ever to send them. */
static void without_room(void)
{
    time_t   limit = time(NULL) + SECONDS;
    uint64_t before, refused;

    setenv("UCX_OFI_TIMEOUT", "2s", 1);
    start("error_after=40,error_nth=1,error_code=104,error_queues=1,full_queues=8");
    while (!(ends[0].failed && ends[1].failed) && time(NULL) < limit) {
        ends[0].failed ? progress() : send_one();
    }
    WANT_TRUE(ends[0].failed && ends[1].failed && refused_sends() > 0);
    do {
        before = refused_sends();
        for (long long until = milliseconds() + 300; milliseconds() < until;) {
            progress();
        }
        refused = refused_sends();
    } while (refused != before && time(NULL) < limit);
    WANT_TRUE(refused == before);
    unmap();
    end();
}

static const case_t cases[] = {
    {"failover: a dead provider", dead},
    {"failover: a dead provider of a sleeping worker", asleep},
    {"failover: one provider", one_provider},
    {"failover: reads of memory", reads},
    {"failover: reads of registered memory", reads_of_registered},
    {"failover: a dead provider amid reads", dead_amid_reads},
    {"failover: a read that is not reported", unreported_read},
    {"failover: a request to connect that fails", failed_request},
    {"failover: both providers", both_providers},
    {"failover: reset connections", reset_connections},
    {"failover: lost messages", lost_messages},
    {"failover: damaged messages", damaged_messages},
    {"failover: without order", without_order},
    {"failover: no other interface", no_other},
    {"failover: none left", none_left},
    {"failover: a silent peer", silent},
    {"failover: no room for the answer to a request to move", without_room},
};

CHECK_MAIN(cases)
