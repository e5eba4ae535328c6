/*
 * Peers that die or go away, on endpoints that handle errors, over shared memory. (UCX leaves shared memory aside for
 * such endpoints, so there is nothing to compare with: CONTRACT 2.3 says what must be seen.)
 */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOTICE_SECONDS 10
#define SIZE           (1 << 20)

/* One of two processes and its endpoint to the other. */
typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    int           link;
    pid_t         other; /* at the parent */
    unsigned      failures;
    ucs_status_t  failure;
} party_t;

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    party_t *self = arg;

    self->failures++;
    self->failure = status;
    WANT_TRUE(ep == self->ep);
}

static int is_loss(ucs_status_t status)
{
    return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT;
}

static int is_loss_or_canceled(ucs_status_t status)
{
    return is_loss(status) || status == UCS_ERR_CANCELED;
}

static void party_connect(party_t *self, const void *address, ucp_err_handling_mode_t mode)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = address,
        .err_mode    = mode,
        .err_handler = {.cb = on_failure, .arg = self},
    };

    WANT(UCS_OK, ucp_ep_create(self->worker, &params, &self->ep));
}

static void party_open(party_t *self, ucp_err_handling_mode_t mode)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features = ALL_FEATURES & ~(uint64_t)UCP_FEATURE_WAKEUP};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    char                theirs[1024];
    ucp_address_t      *ours;
    size_t              length;

    WANT(UCS_OK, ucp_init(&params, NULL, &self->context));
    WANT(UCS_OK, ucp_worker_create(self->context, &worker_params, &self->worker));
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &ours, &length));
    WANT_TRUE(send(self->link, ours, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(self->link, theirs, sizeof(theirs), 0) > 0);
    ucp_worker_release_address(self->worker, ours);
    party_connect(self, theirs, mode);
}

static void tell(party_t *self)
{
    WANT_TRUE(send(self->link, "t", 1, MSG_NOSIGNAL) == 1);
}

/* Waits, progressing, for the other's word. 0 when it does not come. */
static int heard(party_t *self)
{
    time_t end = time(NULL) + NOTICE_SECONDS;
    char   byte;

    while (recv(self->link, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(self->worker);
        if (time(NULL) > end) {
            return 0;
        }
    }
    return 1;
}

static ucs_status_t finish(party_t *self, ucs_status_ptr_t request)
{
    time_t end = time(NULL) + NOTICE_SECONDS;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(self->worker);
    }
    ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static ucs_status_ptr_t send_tag(party_t *self, const void *data, size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_tag_send_nbx(self->ep, data, size, 1, &param);
}

static ucs_status_ptr_t receive_tag(party_t *self, void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return ucp_tag_recv_nbx(self->worker, data, size, tag, -1, &param);
}

/* A message there and one back, so that both endpoints are connected in fact. */
static void meet(party_t *self, int first)
{
    uint64_t value = 5, got = 0;

    if (first) {
        WANT(UCS_OK, finish(self, send_tag(self, &value, 8)));
    }
    WANT(UCS_OK, finish(self, receive_tag(self, &got, 8, 1)));
    if (!first) {
        WANT(UCS_OK, finish(self, send_tag(self, &value, 8)));
    }
}

/* Starts the other process, which does `act` and then waits to be killed. */
static void start(party_t *self, ucp_err_handling_mode_t mode, void (*act)(party_t *))
{
    int links[2];

    memset(self, 0, sizeof(*self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = fork();
    self->link  = links[self->other == 0];
    close(links[self->other != 0]);
    if (self->other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    party_open(self, mode);
    meet(self, self->other != 0);
    if (self->other == 0) {
        act(self);
        if (check_failed()) {
            _exit(1); /* without a word, which the parent then misses */
        }
        tell(self);
        for (;;) {
            pause();
        }
    }
}

static void kill_other(party_t *self)
{
    WANT_TRUE(kill(self->other, SIGKILL) == 0);
    waitpid(self->other, NULL, 0);
}

/* The handler is called in time, and once. */
static void failure_seen(party_t *self)
{
    time_t end = time(NULL) + NOTICE_SECONDS;

    while (self->failures == 0 && time(NULL) < end) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
    WANT_TRUE(is_loss(self->failure));
    for (int i = 0; i < 10000; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
}

/* What is sent afterwards fails; the endpoint can be closed; the worker lives on. */
static void aftermath(party_t *self)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    uint64_t            value = 1;
    fixture_t           alone;

    WANT_TRUE(is_loss_or_canceled(finish(self, send_tag(self, &value, 8))));
    WANT_TRUE(finish(self, ucp_ep_flush_nbx(self->ep, &force)) != UCS_INPROGRESS);
    WANT_TRUE(finish(self, ucp_ep_close_nbx(self->ep, &force)) != UCS_INPROGRESS);
    WANT_TRUE(self->failures == 1);
    alone = fixture_open(ALL_FEATURES);
    fixture_works(&alone);
    fixture_close(&alone);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void nothing(party_t *self)
{
    (void)self;
}

static void idle(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
    kill_other(&self);
    failure_seen(&self);
    aftermath(&self);
}

/* Sends that only the receiver can complete. */
static void unmatched_sends(void)
{
    party_t             self;
    ucs_status_ptr_t    sent[6];
    ucp_request_param_t param = {.op_attr_mask = 0};
    char               *data  = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
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
    failure_seen(&self);
    aftermath(&self);
    free(data);
}

/* More small sends than the receiver, who looks away, has room for. */
static void flood(void)
{
    enum { COUNT = 100000 };
    static ucs_status_ptr_t sent[COUNT];
    static uint64_t         value;
    party_t                 self;
    int                     lost = 0, other = 0;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
    for (int i = 0; i < COUNT; i++) {
        sent[i] = send_tag(&self, &value, 8);
    }
    kill_other(&self);
    for (int i = 0; i < COUNT; i++) {
        ucs_status_t status = finish(&self, sent[i]);
        lost += is_loss_or_canceled(status);
        other += !is_loss_or_canceled(status) && status != UCS_OK;
    }
    WANT_TRUE(lost > 0);
    WANT_TRUE(other == 0);
    failure_seen(&self);
    aftermath(&self);
}

static void send_long(party_t *self)
{
    send_tag(self, calloc(1, SIZE), SIZE);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

/* A long message was announced; its sender dies before it is fetched. */
static void announced(void)
{
    party_t             self;
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message = NULL;
    ucp_request_param_t param   = {.op_attr_mask = 0};
    char               *data    = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_long);
    WANT_TRUE(heard(&self));
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
    failure_seen(&self);
    aftermath(&self);
    free(data);
}

static void expose(party_t *self)
{
    void                *memory = calloc(1, SIZE), *packed;
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = memory, .length = SIZE};
    ucp_mem_h            memh;
    size_t               length;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, &memory, sizeof(memory), 0) == sizeof(memory));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
}

/* One-sided operations on memory that went with its owner. */
static void one_sided(void)
{
    party_t             self;
    uint64_t            remote, value = 1;
    char                key[1024], *data = calloc(1, SIZE);
    ucp_rkey_h          rkey;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_request_param_t typed = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, expose);
    WANT_TRUE(recv(self.link, &remote, sizeof(remote), 0) == sizeof(remote));
    WANT_TRUE(recv(self.link, key, sizeof(key), 0) > 0);
    WANT_TRUE(heard(&self));
    WANT(UCS_OK, ucp_ep_rkey_unpack(self.ep, key, &rkey));
    WANT(UCS_OK, finish(&self, ucp_put_nbx(self.ep, &value, 8, remote, rkey, &param)));
    kill_other(&self);
    /* a put may be gone before the death is noticed, but what must bring something back cannot succeed */
    WANT_TRUE(finish(&self, ucp_put_nbx(self.ep, data, SIZE, remote, rkey, &param)) != UCS_INPROGRESS);
    WANT_TRUE(is_loss_or_canceled(finish(&self, ucp_get_nbx(self.ep, data, SIZE, remote, rkey, &param))));
    WANT_TRUE(is_loss_or_canceled(finish(&self, ucp_get_nbx(self.ep, data, 8, remote, rkey, &param))));
    WANT_TRUE(finish(&self, ucp_atomic_op_nbx(self.ep, UCP_ATOMIC_OP_ADD, &value, 1, remote, rkey, &typed)) !=
              UCS_INPROGRESS);
    failure_seen(&self);
    ucp_rkey_destroy(rkey);
    aftermath(&self);
    free(data);
}

/* One's own forced close: outstanding requests are canceled, no handler is called, the other one is told. */
static void forced_close(void)
{
    party_t             self;
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    char               *data  = calloc(1, SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(heard(&self));
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

static void close_forced(party_t *self)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    finish(self, ucp_ep_close_nbx(self->ep, &force));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

static void close_flushing(party_t *self)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    finish(self, ucp_ep_close_nbx(self->ep, &param));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

static void destroy_worker(party_t *self)
{
    ucp_worker_destroy(self->worker);
}

static void leave_orderly(party_t *self)
{
    close_flushing(self);
    destroy_worker(self);
    if (!check_failed()) {
        tell(self);
    }
    exit(0);
}

static void leave_at_once(party_t *self)
{
    if (!check_failed()) {
        tell(self);
    }
    exit(0);
}

static void lost_by(void (*act)(party_t *))
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(heard(&self));
    failure_seen(&self);
    kill(self.other, SIGKILL);
    waitpid(self.other, NULL, 0);
    aftermath(&self);
}

static void other_forces(void)
{
    lost_by(close_forced);
}

static void other_closes(void)
{
    lost_by(close_flushing);
}

static void other_destroys(void)
{
    lost_by(destroy_worker);
}

static void other_leaves(void)
{
    lost_by(leave_orderly);
}

static void other_exits(void)
{
    lost_by(leave_at_once);
}

/* Without error handling nobody is called, and the process still lives and can end in order. */
static void not_handled(void)
{
    party_t  self;
    uint64_t value = 1;

    start(&self, UCP_ERR_HANDLING_MODE_NONE, nothing);
    WANT_TRUE(heard(&self));
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

/* Endpoints to oneself handle errors, too. */
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

static const case_t cases[] = {
    {"killed: idle", idle},
    {"killed: unmatched sends", unmatched_sends},
    {"killed: flood", flood},
    {"killed: announced", announced},
    {"killed: one-sided", one_sided},
    {"killed: forced close", forced_close},
    {"killed: the other forces", other_forces},
    {"killed: the other closes", other_closes},
    {"killed: the other destroys its worker", other_destroys},
    {"killed: the other leaves in order", other_leaves},
    {"killed: the other exits", other_exits},
    {"killed: not handled", not_handled},
    {"killed: oneself", oneself},
};

CHECK_MAIN(cases)
