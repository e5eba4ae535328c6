/*
 * Peers that die, on endpoints that handle errors, over shared memory, TCP and queue pairs. (UCX does not use shared
 * memory for such endpoints, so there is no reference: rules 2.3 of c_tests/diff/rules.txt say what must be seen.)
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "party.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE (1 << 20)

/* Not through shared memory. */
static int over_wire(void)
{
    return !transport_has("memory");
}

/* A peer that does not progress acknowledges nothing. */
static int over_datagrams(void)
{
    return !transport_has("delivery");
}

/* The peer executes a put, and the room that it waits for until the peer progresses is not reported; or its end is the
 * peer's progress. */
static int waits_for_room(void)
{
    return !transport_has("put") && (!transport_has("room_event") || !transport_has("cancel"));
}

static void nothing(party_t *self)
{
    (void)self;
}

/* Where the receiver reads (get_zcopy), a canceled send waits for the receiver's acknowledgement. */
static int receiver_reads(void)
{
    const char *scheme = getenv("UCX_RNDV_SCHEME");

    return over_wire() && !over_datagrams() &&
           (transport_has("rndv_get") || (scheme != NULL && strncmp(scheme, "get_", 4) == 0));
}

static void idle(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    kill_and_check(&self);
}

static void notify_and_progress(party_t *self)
{
    notify_peer(self);
    progress_until_killed(self);
}

/* An endpoint without any traffic fails, too; and no new endpoint to a dead peer can be made. */
static void unused(void)
{
    party_t             self, spare;
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_ep_params_t     late   = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, notify_and_progress);
    WANT_TRUE(wait_notified(&self));
    spare = self;
    WANT(UCS_OK, ucp_worker_create(self.context, &params, &spare.worker));
    party_connect(&spare, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(spare.worker);
    }
    WANT_TRUE(spare.failures == 0);
    kill_other(&self);
    time_t end = time(NULL) + 10;
    while (spare.failures == 0 && time(NULL) < end) {
        ucp_worker_progress(spare.worker);
    }
    WANT_TRUE(spare.failures == 1);
    /* unreachable: its socket was closed before the connection was established */
    WANT_TRUE(is_loss_or_canceled(spare.failure) || (over_wire() && spare.failure == UCS_ERR_UNREACHABLE));
    ucp_worker_destroy(spare.worker);
    if (!over_wire()) {
        WANT(UCS_OK, ucp_worker_create(self.context, &params, &spare.worker));
        late.address = (const ucp_address_t *)self.theirs;
        WANT(UCS_ERR_UNREACHABLE, ucp_ep_create(spare.worker, &late, &spare.ep));
        ucp_worker_destroy(spare.worker);
    }
    check_failure(&self);
    check_after_failure(&self);
}

/* Sends that only the receiver can complete. */
static void unmatched_sends(void)
{
    party_t             self;
    ucs_status_ptr_t    sent[6];
    ucp_request_param_t param = {.op_attr_mask = 0};
    char               *data  = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < 3; i++) {
        sent[i]     = send_tag(&self, data, SIZE);
        sent[i + 3] = ucp_tag_send_sync_nbx(self.ep, data, 8, 1, &param);
    }
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    for (int i = 0; i < 6; i++) {
        WANT_TRUE(is_loss_or_canceled(finish(&self, sent[i])));
    }
    check_failure(&self);
    check_after_failure(&self);
    free(data);
}

/* More small sends than the receiver, which does not progress, has room for. */
static void flood(void)
{
    enum { COUNT = 100000 };
    static ucs_status_ptr_t sent[COUNT];
    static uint64_t         value;
    party_t                 self;
    int                     lost = 0, other = 0;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < COUNT; i++) {
        sent[i] = send_tag(&self, &value, 8);
    }
    kill_other(&self);
    for (int i = 0; i < COUNT; i++) {
        ucs_status_t status = finish(&self, sent[i]);
        lost += is_loss_or_canceled(status);
        other += !is_loss_or_canceled(status) && status != UCS_OK;
    }
    /* Bytes in a socket buffer count as sent: the buffers can hold all of these messages. */
    WANT_TRUE(lost > 0 || over_wire());
    WANT_TRUE(other == 0);
    check_failure(&self);
    check_after_failure(&self);
}

static void send_long(party_t *self)
{
    send_tag(self, calloc(1, SIZE), SIZE);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

/* The sender of a long message dies between its RTS and the transfer. */
static void announced(void)
{
    party_t             self;
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message = NULL;
    ucp_request_param_t param   = {.op_attr_mask = 0};
    char               *data    = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_long);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < 1000000 && message == NULL; i++) {
        ucp_worker_progress(self.worker);
        message = ucp_tag_probe_nb(self.worker, 1, -1, 1, &info);
    }
    WANT_TRUE(message != NULL);
    kill_other(&self);
    if (message != NULL) {
        ucs_status_t status = finish(&self, ucp_tag_msg_recv_nbx(self.worker, data, SIZE, message, &param));
        WANT_TRUE(is_loss_or_canceled(status));
    }
    check_failure(&self);
    check_after_failure(&self);
    free(data);
}

/* The message stays in the queue of unexpected ones; a receive that is posted after the failure ends, as on UCX. */
static void announced_before(void)
{
    party_t             self;
    ucp_tag_recv_info_t info;
    int                 seen = 0;
    char               *data = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_long);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < 1000000 && !seen; i++) {
        ucp_worker_progress(self.worker);
        seen = ucp_tag_probe_nb(self.worker, 1, -1, 0, &info) != NULL;
    }
    WANT_TRUE(seen);
    kill_other(&self);
    check_failure(&self);
    WANT_TRUE(ucp_tag_probe_nb(self.worker, 1, -1, 0, &info) != NULL && info.length == SIZE);
    WANT(UCS_ERR_CANCELED, finish(&self, receive_tag(&self, data, SIZE, 1)));
    WANT_TRUE(ucp_tag_probe_nb(self.worker, 1, -1, 0, &info) == NULL);
    check_after_failure(&self);
    free(data);
}

static void expose(party_t *self, unsigned flags)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address    = flags & UCP_MEM_MAP_ALLOCATE ? NULL : calloc(1, SIZE),
        .length     = SIZE,
        .flags      = flags,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h      memh;
    void          *packed;
    size_t         length;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_mem_query(memh, &attr));
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, &attr.address, sizeof(attr.address), 0) == sizeof(attr.address));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
}

static void expose_own(party_t *self)
{
    expose(self, 0);
}

static void expose_allocated(party_t *self)
{
    expose(self, UCP_MEM_MAP_ALLOCATE);
}

/* The other's memory, before and after its death. */
typedef struct {
    party_t    self;
    uint64_t   remote;
    ucp_rkey_h rkey;
} reach_t;

static void reach_open(reach_t *reach, void (*act)(party_t *))
{
    char key[1024];

    start(&reach->self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(recv(reach->self.link, &reach->remote, sizeof(reach->remote), 0) == sizeof(reach->remote));
    WANT_TRUE(recv(reach->self.link, key, sizeof(key), 0) > 0);
    WANT_TRUE(wait_notified(&reach->self));
    WANT(UCS_OK, ucp_ep_rkey_unpack(reach->self.ep, key, &reach->rkey));
}

static ucs_status_t put(reach_t *reach, const void *data, size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(&reach->self, ucp_put_nbx(reach->self.ep, data, size, reach->remote, reach->rkey, &param));
}

static ucs_status_t get(reach_t *reach, void *data, size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return finish(&reach->self, ucp_get_nbx(reach->self.ep, data, size, reach->remote, reach->rkey, &param));
}

static ucs_status_t add(reach_t *reach)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    uint64_t            one   = 1;

    return finish(&reach->self, ucp_atomic_op_nbx(reach->self.ep, UCP_ATOMIC_OP_ADD, &one, 1, reach->remote,
                                                  reach->rkey, &param));
}

/* Memory of a dead process: a put may succeed before the death is detected, but no get. */
static void own_memory(void)
{
    reach_t reach;
    char   *data = calloc(1, SIZE);

    reach_open(&reach, expose_own);
    WANT(UCS_OK, put(&reach, data, 8));
    kill_other(&reach.self);
    WANT_TRUE(put(&reach, data, SIZE) != UCS_INPROGRESS);
    WANT_TRUE(is_loss_or_canceled(get(&reach, data, SIZE)));
    WANT_TRUE(is_loss_or_canceled(get(&reach, data, 8)));
    WANT_TRUE(add(&reach) != UCS_INPROGRESS);
    check_failure(&reach.self);
    ucp_rkey_destroy(reach.rkey);
    check_after_failure(&reach.self);
    free(data);
}

/* Memory that this process has mapped as well exists as long as its key: any status is right, but no crash. */
static void allocated_memory(void)
{
    reach_t reach;
    char   *data = calloc(1, SIZE);
    void   *pointer;

    reach_open(&reach, expose_allocated);
    WANT_TRUE(put(&reach, data, SIZE) == UCS_OK || over_datagrams() || waits_for_room());
    if (over_wire()) {
        WANT(UCS_ERR_UNREACHABLE, ucp_rkey_ptr(reach.rkey, reach.remote, &pointer));
        pointer = data;
    } else {
        WANT(UCS_OK, ucp_rkey_ptr(reach.rkey, reach.remote, &pointer));
    }
    kill_other(&reach.self);
    memset(pointer, 1, SIZE);
    WANT_TRUE(put(&reach, data, SIZE) != UCS_INPROGRESS);
    WANT_TRUE(get(&reach, data, SIZE) != UCS_INPROGRESS);
    WANT_TRUE(add(&reach) != UCS_INPROGRESS);
    check_failure(&reach.self);
    WANT_TRUE(is_loss_or_canceled(put(&reach, data, 8)));
    WANT_TRUE(is_loss_or_canceled(get(&reach, data, 8)));
    memset(pointer, 2, SIZE);
    ucp_rkey_destroy(reach.rkey);
    check_after_failure(&reach.self);
    free(data);
}

/* A forced close: outstanding requests are canceled, no local handler is called, the peer's handler is called. */
static void forced_close(void)
{
    party_t             self;
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    char               *data  = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, receiver_reads() ? notify_and_progress : nothing);
    WANT_TRUE(wait_notified(&self));
    ucs_status_ptr_t sent = send_tag(&self, data, SIZE);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self.ep, &force));
    WANT(UCS_ERR_CANCELED, finish(&self, sent));
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
    for (int i = 0; i < 100000; i++) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(self.failures == 0);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
    free(data);
}

/* Without error handling no handler is called, and the process lives and can close in order. */
static void not_handled(void)
{
    party_t  self;
    uint64_t value = 1;

    start(&self, UCP_ERR_HANDLING_MODE_NONE, nothing);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    time_t end = time(NULL) + 2;
    while (time(NULL) < end) {
        ucp_worker_progress(self.worker);
    }
    for (int i = 0; i < 1000; i++) {
        send_tag(&self, &value, 8);
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(self.failures == 0);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

/* Endpoints to the own worker handle errors, too. */
static void oneself(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    party_t             self    = {.worker = fixture.worker};
    ucp_request_param_t force   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    char               *data    = calloc(1, SIZE);
    ucp_address_t      *address;
    size_t              length;

    WANT(UCS_OK, ucp_worker_get_address(fixture.worker, &address, &length));
    party_connect(&self, address, UCP_ERR_HANDLING_MODE_PEER);
    ucp_worker_release_address(fixture.worker, address);
    meet(&self, 1);
    WANT(UCS_OK, finish(&self, send_tag(&self, data, 8)));
    meet(&self, 0);
    WANT(UCS_OK, finish(&self, receive_tag(&self, data, 8, 1)));
    ucs_status_ptr_t sent = send_tag(&self, data, SIZE);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self.ep, &force));
    WANT(UCS_ERR_CANCELED, finish(&self, sent));
    WANT_TRUE(self.failures == 0);
    fixture_works(&fixture);
    fixture_close(&fixture);
    free(data);
}

static void send_stream(party_t *self)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    WANT(UCS_OK, finish(self, ucp_stream_send_nbx(self->ep, "abcdefgh", 8, &param)));
}

/* A receive that waits for more of a stream ends with the failure; bytes received before can be read after it. */
static void stream(void)
{
    party_t              self;
    ucp_request_param_t  param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    ucp_request_param_t  plain = {.op_attr_mask = 0};
    ucp_stream_poll_ep_t ready;
    char                 buffer[16];
    size_t               length = 0;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_stream);
    WANT_TRUE(wait_notified(&self));
    while (ucp_stream_worker_poll(self.worker, &ready, 1, 0) == 0) {
        ucp_worker_progress(self.worker);
    }
    ucs_status_ptr_t waits = ucp_stream_recv_nbx(self.ep, buffer, 16, &length, &param);
    WANT_TRUE(UCS_PTR_IS_PTR(waits));
    kill_other(&self);
    check_failure(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, waits)));
    WANT_PTR(UCS_OK, ucp_stream_recv_nbx(self.ep, buffer, 4, &length, &plain));
    WANT_TRUE(length == 4 && memcmp(buffer, "abcd", 4) == 0);
    void *data = ucp_stream_recv_data_nb(self.ep, &length);
    WANT_TRUE(UCS_PTR_IS_PTR(data) && length == 4 && memcmp(data, "efgh", 4) == 0);
    ucp_stream_data_release(self.ep, data);
    WANT_TRUE(is_loss_or_canceled(UCS_PTR_STATUS(ucp_stream_recv_nbx(self.ep, buffer, 4, &length, &plain))));
    WANT_TRUE(is_loss_or_canceled(UCS_PTR_STATUS(ucp_stream_recv_data_nb(self.ep, &length))));
    WANT_TRUE(is_loss_or_canceled(UCS_PTR_STATUS(ucp_stream_send_nbx(self.ep, buffer, 4, &plain))));
    check_after_failure(&self);
}

/* A flushing close of a failed endpoint returns the status of the failure, as UCX does; FAILOVER is like PEER. */
static void closed_after(void)
{
    party_t             self;
    ucp_request_param_t flush = {.op_attr_mask = 0};

    start(&self, UCP_ERR_HANDLING_MODE_FAILOVER, nothing);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    check_failure(&self);
    WANT_PTR(self.failure, ucp_ep_flush_nbx(self.ep, &flush));
    WANT_PTR(UCS_OK, ucp_worker_flush_nbx(self.worker, &flush));
    WANT_PTR(self.failure, ucp_ep_close_nbx(self.ep, &flush));
    WANT_TRUE(self.failures == 1);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

/* The peer dies while a flushing close waits for messages that it does not take. Returns the status of the close. */
static ucs_status_t closed_during(ucp_err_handling_mode_t mode)
{
    enum { COUNT = 4000, LENGTH = 4000 };
    static ucs_status_ptr_t sent[COUNT];
    static char             data[LENGTH];
    party_t                 self;
    ucp_request_param_t     flush = {.op_attr_mask = 0};

    start(&self, mode, nothing);
    WANT_TRUE(wait_notified(&self));
    for (int i = 0; i < COUNT; i++) {
        sent[i] = send_tag(&self, data, LENGTH);
    }
    ucs_status_ptr_t closing = ucp_ep_close_nbx(self.ep, &flush);
    WANT_TRUE(UCS_PTR_IS_PTR(closing) && ucp_request_check_status(closing) == UCS_INPROGRESS);
    kill_other(&self);
    ucs_status_t status = finish(&self, closing);
    for (int i = 0; i < COUNT; i++) {
        ucs_status_t send = finish(&self, sent[i]);
        WANT_TRUE(send == UCS_OK || is_loss_or_canceled(send));
    }
    WANT_TRUE(self.failures == 0);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
    return status;
}

/* It gives what a close gives that begins after the peer's death: the failure, or UCS_OK without error handling. */
static void closed_meanwhile(void)
{
    WANT_TRUE(is_loss_or_canceled(closed_during(UCP_ERR_HANDLING_MODE_PEER)));
}

static void closed_meanwhile_not_handled(void)
{
    WANT(UCS_OK, closed_during(UCP_ERR_HANDLING_MODE_NONE));
}

static const case_t cases[] = {
    {"killed: stream", stream},
    {"killed: flushing close afterwards", closed_after},
    {"killed: during a flushing close", closed_meanwhile},
    {"killed: during a flushing close, not handled", closed_meanwhile_not_handled},
    {"killed: idle", idle},
    {"killed: never used", unused},
    {"killed: unmatched sends", unmatched_sends},
    {"killed: flood", flood},
    {"killed: announced", announced},
    {"killed: announced, received later", announced_before},
    {"killed: own memory", own_memory},
    {"killed: allocated memory", allocated_memory},
    {"killed: forced close", forced_close},
    {"killed: not handled", not_handled},
    {"killed: oneself", oneself},
};

CHECK_MAIN(cases)
