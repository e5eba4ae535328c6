/*
 * Work in flight when the peer is lost or the endpoint is closed: operations of every kind are posted in each state of
 * a connection, and the peer is killed, or the endpoint is closed, in order or by force. Each request completes with a
 * status, its callback is called once, the error handler is called once where a peer is lost and never where this end
 * closes by force, and the process goes on.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "posted.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HUGE = 32 << 20, KEY_MAX = 1024, SECONDS = 10 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

/* --- the other process --- */

static void map_window(void)
{
    window = mmap(NULL, 2 * LONG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(window != MAP_FAILED);
}

static void send_key(party_t *self)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = window, .length = 2 * LONG};
    ucp_mem_h            memh;
    void                *packed;
    size_t               length;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
}

static ucp_rkey_h receive_key(party_t *self)
{
    char       key[KEY_MAX];
    ucp_rkey_h rkey = NULL;

    WANT_TRUE(recv(self->link, key, sizeof(key), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep, key, &rkey));
    return rkey;
}

static void open_worker(party_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    must(ucp_init(&params, NULL, &self->context), "ucp_init");
    must(ucp_worker_create(self->context, &worker_params, &self->worker), "ucp_worker_create");
}

/* Another process with a worker that never progresses, and no endpoint between the two. */
static void start_unconnected(party_t *self)
{
    int            links[2];
    ucp_address_t *address;
    size_t         length;

    memset(self, 0, sizeof(*self));
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = fork();
    self->link  = links[self->other == 0];
    open_worker(self);
    if (self->other != 0) {
        WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(ucp_worker_get_address(self->worker, &address, &length), "ucp_worker_get_address");
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    send_key(self);
    for (;;) {
        pause();
    }
}

/* --- loss of the peer --- */

/* The worker and the process go on; the endpoint can be closed. */
static void check_lost(party_t *self, ucp_rkey_h rkey)
{
    for (time_t end = time(NULL) + SECONDS; self->failures == 0 && time(NULL) < end;) {
        ucp_worker_progress(self->worker);
    }
    for (int i = 0; i < 2000; i++) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(self->failures == 1);
    WANT_TRUE(may_be_lost(self->failure) && self->failure != UCS_OK && self->failure != UCS_ERR_CANCELED);
    if (rkey != NULL) {
        ucp_rkey_destroy(rkey);
    }
    WANT_TRUE(finish(self, ucp_ep_close_nbx(self->ep, &force)) != UCS_INPROGRESS);
    WANT_TRUE(self->failures == 1);
    fixture_t alone = fixture_open(party_features);
    fixture_works(&alone);
    fixture_close(&alone);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void post_all(party_t *self, ucp_rkey_h rkey)
{
    char *data = calloc(1, LONG), *into = calloc(1, LONG);

    post_messages(self, data);
    post_accesses(self, rkey, data, into);
    post_flushes(self);
}

/* Killed before there is an endpoint: it cannot be created, or it fails. */
static void before_connect(void)
{
    party_t         self;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    char            data[SHORT] = {0};

    map_window();
    start_unconnected(&self);
    kill_other(&self);
    params.address      = (const ucp_address_t *)self.theirs;
    ucs_status_t status = ucp_ep_create(self.worker, &params, &self.ep);
    WANT_TRUE(status == UCS_OK || status == UCS_ERR_UNREACHABLE);
    if (status != UCS_OK) {
        ucp_worker_destroy(self.worker);
        ucp_cleanup(self.context);
        return;
    }
    WANT_TRUE(finish(&self, ucp_ep_close_nbx(self.ep, &force)) != UCS_INPROGRESS);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    note("tag, short", ucp_tag_send_nbx(self.ep, data, SHORT, TAG, next()));
    note("active message, short", ucp_am_send_nbx(self.ep, AM, data, SHORT, data, SHORT, next()));
    post_flushes(&self);
    check_posted(&self, may_be_lost);
    check_lost(&self, NULL);
}

/* Killed while the connection is being established, with operations of every kind that wait for it. */
static void during_wireup(void)
{
    party_t self;

    map_window();
    start_unconnected(&self);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    ucp_rkey_h rkey = receive_key(&self);
    post_all(&self, rkey);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
    check_posted(&self, may_be_lost);
    check_lost(&self, rkey);
}

static void lose_connected(int post_first)
{
    party_t self;

    map_window();
    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_key);
    ucp_rkey_h rkey = receive_key(&self);
    WANT_TRUE(wait_notified(&self));
    if (post_first) {
        post_all(&self, rkey);
        for (int i = 0; i < 1000; i++) {
            ucp_worker_progress(self.worker);
        }
    }
    WANT_TRUE(self.failures == 0);
    kill_other(&self);
    if (!post_first) {
        post_all(&self, rkey);
    }
    check_posted(&self, may_be_lost);
    check_lost(&self, rkey);
}

/* Killed while idle: operations are posted before the loss is detected. */
static void idle(void)
{
    lose_connected(0);
}

/* Killed with operations of every kind and flushes in flight. */
static void with_operations(void)
{
    lose_connected(1);
}

static void receive_huge(party_t *self)
{
    receive_tag(self, calloc(1, HUGE), HUGE, TAG_LONG);
    notify_peer(self);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/* Killed while a rendezvous to it is in transfer. */
static void rndv_to_peer(void)
{
    party_t self;
    char   *data = calloc(1, HUGE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, receive_huge);
    WANT_TRUE(wait_notified(&self));
    note("tag, huge", ucp_tag_send_nbx(self.ep, data, HUGE, TAG_LONG, next()));
    post_flushes(&self);
    for (int i = 0; i < 20; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    check_posted(&self, may_be_lost);
    check_lost(&self, NULL);
}

static void send_huge(party_t *self)
{
    ucp_tag_send_nbx(self->ep, calloc(1, HUGE), HUGE, TAG_LONG, &plain);
    notify_peer(self);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/* Killed while a rendezvous from it is in transfer: the receive completes, whole or with an error. */
static void rndv_from_peer(void)
{
    party_t             self;
    char               *data = malloc(HUGE);
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message = NULL;

    memset(data, 1, HUGE);
    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_huge);
    WANT_TRUE(wait_notified(&self));
    for (time_t end = time(NULL) + SECONDS; message == NULL && time(NULL) < end;) {
        ucp_worker_progress(self.worker);
        message = ucp_tag_probe_nb(self.worker, TAG_LONG, -1, 1, &info);
    }
    WANT_TRUE(message != NULL && info.length == HUGE);
    ucs_status_ptr_t received = ucp_tag_msg_recv_nbx(self.worker, data, HUGE, message, &plain);
    for (int i = 0; i < 20; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    ucs_status_t status = finish(&self, received);
    WANT_TRUE(status == UCS_OK || is_loss_or_canceled(status));
    WANT_TRUE(status != UCS_OK || (data[0] == 0 && memcmp(data, data + 1, HUGE - 1) == 0));
    check_lost(&self, NULL);
}

/* Killed while a close in order waits for it. */
static void in_close(void)
{
    party_t self;

    map_window();
    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_key);
    ucp_rkey_h rkey = receive_key(&self);
    WANT_TRUE(wait_notified(&self));
    post_all(&self, rkey);
    ucp_rkey_destroy(rkey);
    note("close", ucp_ep_close_nbx(self.ep, next()));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    check_posted(&self, may_be_lost);
    WANT_TRUE(self.failures <= 1);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

/* --- close --- */

static int messages;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    party_t *self = arg;

    (void)header, (void)header_length;
    messages++;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        ucp_am_recv_data_nbx(self->worker, data, malloc(length), length, &plain);
        return UCS_INPROGRESS;
    }
    return UCS_OK;
}

/* Receives everything that post_messages() sends, checks it, and progresses on. */
static void receive_all(party_t *self)
{
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM,
        .cb         = on_message,
        .arg        = self,
    };
    ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    char               *in  = calloc(1, LONG);
    size_t              length;

    WANT(UCS_OK, ucp_worker_set_am_recv_handler(self->worker, &handler));
    send_key(self);
    ucs_status_ptr_t streamed = ucp_stream_recv_nbx(self->ep, in, STREAM, &length, &all);
    for (int i = 0; i < MANY; i++) {
        WANT(UCS_OK, finish(self, receive_tag(self, in, LONG, TAG)));
    }
    for (int i = 0; i < 2; i++) {
        memset(in, 0, LONG);
        WANT(UCS_OK, finish(self, receive_tag(self, in, LONG, TAG_LONG)));
        WANT_TRUE(in[0] == 3 && in[SHORT - 1] == 3 && in[LONG - 1] == (i == 0 ? 3 : 0));
    }
    WANT(UCS_OK, finish(self, streamed));
    for (time_t end = time(NULL) + SECONDS; messages < 2 && time(NULL) < end;) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(messages == 2);
    if (check_failed()) {
        _exit(1);
    }
    notify_peer(self);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/*
 * A close in order completes after everything before it but what waits for a receive, which completes later: all of it
 * arrives.
 */
static void close_in_order(void)
{
    party_t self;
    char   *data = malloc(LONG), *into = calloc(1, LONG);

    memset(data, 3, LONG);
    map_window();
    start(&self, UCP_ERR_HANDLING_MODE_PEER, receive_all);
    ucp_rkey_h rkey = receive_key(&self);
    post_messages(&self, data);
    post_accesses(&self, rkey, data, into);
    WANT(UCS_OK, finish(&self, ucp_ep_close_nbx(self.ep, &plain)));
    for (int i = 0; i < count; i++) {
        int waits = strcmp(posted[i].what, "tag, synchronous") == 0 || strcmp(posted[i].what, "tag, long") == 0 ||
                    strcmp(posted[i].what, "active message, long") == 0;
        if (!waits && UCS_PTR_IS_PTR(posted[i].request) &&
            ucp_request_check_status(posted[i].request) == UCS_INPROGRESS) {
            check(__FILE__, __LINE__, posted[i].what, 0, "in progress after the close");
        }
    }
    check_posted(&self, must_be_ok);
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(*(uint64_t *)(void *)window == 2);
    WANT_TRUE(window[SHORT] == 3 && window[2 * SHORT - 1] == 3 && window[LONG] == 3 && window[2 * LONG - 1] == 3);
    WANT_TRUE(self.failures == 0);
    ucp_rkey_destroy(rkey);
    kill_other(&self);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

/* A forced close cancels what is in flight to a peer that does not progress; no handler is called here. */
static void close_by_force(void)
{
    party_t self;

    map_window();
    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_key);
    ucp_rkey_h rkey = receive_key(&self);
    WANT_TRUE(wait_notified(&self));
    post_all(&self, rkey);
    ucp_rkey_destroy(rkey);
    ucs_status_ptr_t close = ucp_ep_close_nbx(self.ep, &force);
    kill_other(&self);
    WANT(UCS_OK, finish(&self, close));
    check_posted(&self, may_be_canceled);
    WANT_TRUE(self.failures == 0);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
}

static const case_t cases[] = {
    {"in_flight: lost before it connects", before_connect},
    {"in_flight: lost during wireup", during_wireup},
    {"in_flight: lost while idle", idle},
    {"in_flight: lost with operations", with_operations},
    {"in_flight: lost in a rendezvous to it", rndv_to_peer},
    {"in_flight: lost in a rendezvous from it", rndv_from_peer},
    {"in_flight: lost in a close", in_close},
    {"in_flight: closed in order", close_in_order},
    {"in_flight: closed by force", close_by_force},
};

CHECK_MAIN(cases)
