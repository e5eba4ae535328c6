/*
 * Endpoints that fail over between two processes with several ports each. While the ports fail in turn, each message
 * arrives once and in order, each atomic operation is executed once, a stream has every byte, and no endpoint reports a
 * failure.
 *
 *   failover "failover: NAME"
 *
 * HCACTL names the program that makes ports fail; SOFT_HCA_DEVICES is the number of devices.
 */
#define _GNU_SOURCE
#include "counters.h"
#include "party.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 40, BATCH = 16, LONGEST = 20000, ADDS = 10, PART = 700 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

/* Takes the ports down that have a bit here, and all others up. */
static void fail(unsigned ports)
{
    char command[256];

    snprintf(command, sizeof(command), "%s port_down=%u", getenv("HCACTL"), ports);
    WANT_TRUE(system(command) == 0);
}

static unsigned devices(void)
{
    return (unsigned)atoi(getenv("SOFT_HCA_DEVICES"));
}

/* The lane of the endpoint, as "transport/device". */
static void way(party_t *self, char *text, size_t length)
{
    ucp_transport_entry_t entry = {NULL, NULL};
    ucp_ep_attr_t         attr  = {.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                                   .transports = {&entry, 1, sizeof(entry)}};

    WANT(UCS_OK, ucp_ep_query(self->ep, &attr));
    snprintf(text, length, "%s/%s", entry.transport_name, entry.device_name);
}

static size_t length_of(int round, int i)
{
    static const size_t lengths[] = {0, 1, 8, 300, 1500, 4096, 9000, LONGEST};

    return lengths[(round * 5 + i) % 8];
}

static unsigned char byte_of(int from, int round, int i, size_t at)
{
    return (unsigned char)(at * 13 + (size_t)(from * 91 + round * 7 + i * 3));
}

static ucs_status_t on_am(void *argument, const void *header, size_t header_length, void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    (void)data;
    (void)param;
    /* Messages arrive in order, none twice. */
    WANT_TRUE(header_length == sizeof(int) && *(const int *)header == *(int *)argument);
    WANT_TRUE(length == PART);
    ++*(int *)argument;
    return UCS_OK;
}

/* Address and rkey of the other's memory. */
typedef struct {
    uint64_t   *word;
    ucp_mem_h   memory;
    uint64_t    remote;
    ucp_rkey_h  rkey;
} shared_t;

static void tag_both(party_t *self, const void *out, size_t out_length, void *in, size_t in_length)
{
    ucs_status_ptr_t receive = receive_tag(self, in, in_length, 99);

    WANT(UCS_OK, finish(self, ucp_tag_send_nbx(self->ep, out, out_length, 99, &none)));
    WANT(UCS_OK, finish(self, receive));
}

/* Exchanges rkeys in both directions. */
static void share(party_t *self, shared_t *shared)
{
    struct {
        uint64_t address, length;
        char     key[512];
    } mine = {0}, theirs;
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH};
    size_t               length;
    void                *key;

    shared->word = aligned_alloc(4096, 4096);
    memset(shared->word, 0, 4096);
    map.address = shared->word;
    map.length  = 4096;
    WANT(UCS_OK, ucp_mem_map(self->context, &map, &shared->memory));
    WANT(UCS_OK, ucp_rkey_pack(self->context, shared->memory, &key, &length));
    WANT_TRUE(length <= sizeof(mine.key));
    memcpy(mine.key, key, length);
    ucp_rkey_buffer_release(key);
    mine.address = (uint64_t)(uintptr_t)shared->word;
    tag_both(self, &mine, sizeof(mine), &theirs, sizeof(theirs));
    shared->remote = theirs.address;
    WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep, theirs.key, &shared->rkey));
}

/* Exchanges a few messages; each end waits for the other's. */
static void exchange_words(party_t *self)
{
    for (int i = 0; i < 100 && check_failed() == 0; i++) {
        meet(self, self->other != 0);
    }
}

/* Both ends run every operation repeatedly; meanwhile the parent makes ports fail. */
static void exchange(party_t *self)
{
    static unsigned char out[BATCH][LONGEST], in[BATCH][LONGEST], part[PART], stream[PART];
    int                  from = self->other != 0, heard_am = 0;
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id  = 7,
                                      .cb  = on_am,
                                      .arg = &heard_am};
    uint64_t             sum = 0;
    shared_t             shared;

    WANT(UCS_OK, ucp_worker_set_am_recv_handler(self->worker, &handler));
    share(self, &shared);
    for (int round = 0; round < ROUNDS && check_failed() == 0; round++) {
        ucs_status_ptr_t request[3 * BATCH], reply[ADDS];
        uint64_t         one = 1, old[ADDS];
        size_t           got = 0;

        /* No atomic operation may be on a device now: after a failure its result would be unknown. */
        if (from == 1 && round % 3 == 1) {
            fail(1u << (unsigned)(round / 3) % devices());
        }
        for (int i = 0; i < BATCH; i++) {
            size_t length = length_of(round, i);

            memset(in[i], 0, sizeof(in[i]));
            for (size_t at = 0; at < length; at++) {
                out[i][at] = byte_of(from, round, i, at);
            }
            request[i]             = receive_tag(self, in[i], sizeof(in[i]), 5);
            request[BATCH + i]     = ucp_tag_send_nbx(self->ep, out[i], length, 5, &none);
            int number             = round * BATCH + i;
            request[2 * BATCH + i] = ucp_am_send_nbx(self->ep, 7, &number, sizeof(number), part, PART, &none);
            /* The application owns the header until then. */
            WANT(UCS_OK, finish(self, request[2 * BATCH + i]));
        }
        for (int i = 0; i < ADDS; i++) {
            ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                         .datatype     = ucp_dt_make_contig(8),
                                         .reply_buffer = &old[i]};

            reply[i] = ucp_atomic_op_nbx(self->ep, UCP_ATOMIC_OP_ADD, &one, 1, shared.remote, shared.rkey, &param);
        }
        for (size_t at = 0; at < PART; at++) {
            part[at] = byte_of(from, round, 0, at);
        }
        WANT(UCS_OK, finish(self, ucp_stream_send_nbx(self->ep, part, PART, &none)));
        while (got < PART && check_failed() == 0) {
            ucp_request_param_t whole = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                         .flags        = UCP_STREAM_RECV_FLAG_WAITALL};
            ucs_status_ptr_t    ptr   = ucp_stream_recv_nbx(self->ep, stream, PART, &got, &whole);

            WANT(UCS_OK, finish(self, ptr));
            got = PART;
        }
        for (size_t at = 0; at < PART; at++) {
            WANT_TRUE(stream[at] == byte_of(1 - from, round, 0, at));
        }
        for (int i = 0; i < 2 * BATCH; i++) {
            WANT(UCS_OK, finish(self, request[i]));
        }
        for (int i = 0; i < ADDS; i++) {
            WANT(UCS_OK, finish(self, reply[i]));
            sum += old[i] == sum ? 1 : 1000000;
        }
        for (int i = 0; i < BATCH; i++) {
            size_t length = length_of(round, i), wrong = 0;

            for (size_t at = 0; at < length; at++) {
                wrong += in[i][at] != byte_of(1 - from, round, i, at);
            }
            WANT_TRUE(wrong == 0);
        }
    }
    WANT(UCS_OK, finish(self, ucp_worker_flush_nbx(self->worker, &none)));
    /* Each operation was executed once. */
    WANT_TRUE(sum == (uint64_t)ROUNDS * ADDS);
    meet(self, from);
    WANT_TRUE(*shared.word == (uint64_t)ROUNDS * ADDS);
    WANT_TRUE(heard_am == ROUNDS * BATCH);
    WANT_TRUE(self->failures == 0);
    meet(self, from);
    ucp_rkey_destroy(shared.rkey);
    WANT(UCS_OK, ucp_mem_unmap(self->context, shared.memory));
}

static void in_turn(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_FAILOVER, exchange);
    exchange(&self);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    fail(0);
}

static void nothing(party_t *self)
{
    (void)self;
}

/* The number of the device of the endpoint's lane. */
static unsigned device_of(party_t *self)
{
    char is[128];

    way(self, is, sizeof(is));
    WANT_TRUE(strncmp(is, "ud_verbs/soft", 13) == 0);
    return (unsigned)atoi(is + 13);
}

enum { TRIES = 5 };

static void exchange_for_long(party_t *self)
{
    for (int i = 0; i < 3 * TRIES; i++) {
        exchange_words(self);
    }
}

/* An endpoint that has moved to another port stays there when the first port is up again. After a long time without
 * acknowledgements, as on a busy machine, it may move again, but not in every round. */
static void stays(void)
{
    party_t self;
    int     stayed = 0;

    start(&self, UCP_ERR_HANDLING_MODE_FAILOVER, exchange_for_long);
    for (int i = 0; i < TRIES; i++) {
        exchange_words(&self);
        unsigned first = device_of(&self);
        fail(1u << first);
        exchange_words(&self);
        unsigned second = device_of(&self);
        WANT_TRUE(second != first);
        fail(0);
        exchange_words(&self);
        stayed += device_of(&self) == second;
    }
    WANT_TRUE(stayed > 0);
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
}

/* With every port down the endpoint fails, as it does without failover. */
static void all_fail(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_FAILOVER, nothing);
    WANT_TRUE(wait_notified(&self));
    fail((1u << devices()) - 1);
    WANT(UCS_OK, finish(&self, send_tag(&self, "x", 1)));
    check_failure(&self);
    kill_other(&self);
    fail(0);
    check_after_failure(&self);
}

static void peer_dies(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_FAILOVER, nothing);
    kill_and_check(&self);
}

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)argument, (void)ep;
    WANT_TRUE(status == UCS_OK);
}

/* The port that both ends select fails before the first message of wireup. */
static void fails_first(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t alone  = {.field_mask = 0};
    ucp_ep_params_t     to = {.field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                             UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode    = UCP_ERR_HANDLING_MODE_FAILOVER,
                              .err_handler = {.cb = on_failure}};
    ucp_context_h       context;
    ucp_worker_h        here, there;
    ucp_address_t      *address;
    ucs_status_ptr_t    request;
    size_t              length;
    char                byte = 0;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &alone, &here));
    WANT(UCS_OK, ucp_worker_create(context, &alone, &there));
    WANT(UCS_OK, ucp_worker_get_address(there, &address, &length));
    fail(1);
    to.address = address;
    party_t self = {.context = context, .worker = here};
    WANT(UCS_OK, ucp_ep_create(here, &to, &self.ep));
    ucp_worker_release_address(there, address);
    request = ucp_tag_recv_nbx(there, &byte, 1, 1, UINT64_MAX, &none);
    WANT(UCS_OK, UCS_PTR_IS_PTR(send_tag(&self, "x", 1)) ? UCS_OK : UCS_ERR_IO_ERROR);
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(here);
        ucp_worker_progress(there);
    }
    WANT_TRUE(byte == 'x');
    ucp_request_free(request);
    WANT_TRUE(device_of(&self) != 0);
    fail(0);
    _exit(check_failed());
}

static const case_t cases[] = {
    {"failover: ports fail in turn", in_turn},
    {"failover: no way back", stays},
    {"failover: all fail", all_fail},
    {"failover: the peer dies", peer_dies},
    {"failover: before anything is said", fails_first},
};

CHECK_MAIN(cases)
