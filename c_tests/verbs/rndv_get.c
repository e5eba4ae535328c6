/*
 * Rendezvous by RDMA read (UCX_RNDV_SCHEME=get_zcopy): senders need not progress, and a send completes only when no
 * device of the receiver can read its buffer any more.
 *
 * To be run with a slow wire (delay_us) and short work requests, so that a transfer is interrupted in its middle.
 */
#define _GNU_SOURCE
#include <string.h>
#include <time.h>

#define SIZE ((size_t)16 << 20)
#include "transfer.h"

/* Shorter than a buffer of SIZE bytes. */
#define SHORTER (SIZE - 4099)

/* Sends an RTS, does not progress until notified, and completes the send then. */
static void sends(party_t *self, size_t size)
{
    ucs_status_ptr_t sent = send_tag(self, memory(SENT), size);

    WANT_TRUE(UCS_PTR_IS_PTR(sent));
    wait_notified_blocking(self);
    WANT_TRUE(ucp_request_check_status(sent) == UCS_INPROGRESS);
    WANT(UCS_OK, finish(self, sent));
    notify_peer(self);
    progress_until_killed(self);
}

static void sends_all(party_t *self)
{
    sends(self, SIZE);
}

static void sends_shorter(party_t *self)
{
    sends(self, SHORTER);
}

static void sent_well(party_t *self)
{
    notify_peer(self);
    WANT_TRUE(wait_notified(self));
    kill_other(self);
    check_failure(self);
    check_after_failure(self);
}

static void sender_computes(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends_all);
    WANT(UCS_OK, finish(&self, receive_tag(&self, bytes, SIZE, 1)));
    WANT_TRUE(count(bytes, SENT) == SIZE);
    sent_well(&self);
}

static void more_room(void)
{
    party_t             self;
    unsigned char      *bytes = memory(NOTHING);
    ucp_tag_recv_info_t info  = {.length = 0};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO, .recv_info.tag_info = &info};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends_shorter);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(self.worker, bytes, SIZE, 1, -1, &param);
    while (ucp_tag_recv_request_test(received, &info) == UCS_INPROGRESS) {
        ucp_worker_progress(self.worker);
    }
    WANT(UCS_OK, finish(&self, received));
    WANT_TRUE(info.length == SHORTER);
    WANT_TRUE(count(bytes, SENT) == SHORTER && bytes[SHORTER - 1] == SENT);
    sent_well(&self);
}

static void too_short(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends_all);
    WANT(UCS_ERR_MESSAGE_TRUNCATED, finish(&self, receive_tag(&self, bytes, SHORTER, 1)));
    WANT_TRUE(bytes[SHORTER] == NOTHING);
    sent_well(&self);
}

/* --- canceled by the sender --- */

/* Closes by force when notified; the send completes no sooner than the receiver agrees; then overwrites the buffer. */
static void cancels(party_t *self)
{
    unsigned char   *bytes = memory(SENT);
    ucs_status_ptr_t sent  = send_tag(self, bytes, SIZE);

    WANT_TRUE(wait_notified(self));
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self->ep, &force));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
    /* The receiver does not progress before this notification. */
    WANT_TRUE(ucp_request_check_status(sent) == UCS_INPROGRESS);
    notify_peer(self);
    WANT(UCS_ERR_CANCELED, finish(self, sent));
    memset(bytes, OWN, SIZE);
    notify_peer(self);
    progress_until_killed(self);
}

/* The sender owns its buffer again: so does this process. */
static void both_own(party_t *self, unsigned char *bytes)
{
    memset(bytes, NOTHING, SIZE);
    WANT_TRUE(wait_notified(self));
    WANT_TRUE(count(bytes, NOTHING) == SIZE);
    check_failure(self);
    kill_other(self);
    check_after_failure(self);
}

static void in_flight(void)
{
    party_t                 self;
    unsigned char          *bytes = memory(NOTHING);
    volatile unsigned char *first = bytes;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancels);
    ucs_status_ptr_t received = receive_tag(&self, bytes, SIZE, 1);
    for (time_t end = time(NULL) + 20; *first == NOTHING && time(NULL) < end;) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(*first == SENT && bytes[SIZE - 1] == NOTHING);
    notify_peer(&self);
    wait_notified_blocking(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    WANT_TRUE(count(bytes, OWN) == 0);
    both_own(&self, bytes);
}

static ucp_tag_message_h probe(party_t *self, int remove)
{
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message;

    while ((message = ucp_tag_probe_nb(self->worker, 1, -1, remove, &info)) == NULL) {
        ucp_worker_progress(self->worker);
    }
    return message;
}

static void unmatched(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancels);
    probe(&self, 0);
    notify_peer(&self);
    wait_notified_blocking(&self);
    ucs_status_ptr_t received = receive_tag(&self, bytes, SIZE, 1);
    /* The RTS was in the unexpected queue: the receive starts before it could detect the cancel. */
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    WANT_TRUE(count(bytes, OWN) == 0);
    both_own(&self, bytes);
}

static void removed(void)
{
    party_t             self;
    unsigned char      *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancels);
    ucp_tag_message_h message = probe(&self, 1);
    notify_peer(&self);
    wait_notified_blocking(&self);
    check_failure(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, ucp_tag_msg_recv_nbx(self.worker, bytes, SIZE, message, &none))));
    WANT_TRUE(count(bytes, NOTHING) == SIZE);
    both_own(&self, bytes);
}

/* The other end never progresses again. The reset of the queue pair suffices. */
static void destroys_worker(party_t *self)
{
    unsigned char *bytes = memory(SENT);

    WANT_TRUE(UCS_PTR_IS_PTR(send_tag(self, bytes, SIZE)));
    WANT_TRUE(wait_notified(self));
    ucp_worker_destroy(self->worker);
    memset(bytes, OWN, SIZE);
    notify_peer(self);
}

static void worker_destroyed(void)
{
    party_t                 self;
    unsigned char          *bytes = memory(NOTHING);
    volatile unsigned char *first = bytes;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, destroys_worker);
    ucs_status_ptr_t received = receive_tag(&self, bytes, SIZE, 1);
    while (*first == NOTHING) {
        ucp_worker_progress(self.worker);
    }
    notify_peer(&self);
    wait_notified_blocking(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    WANT_TRUE(count(bytes, OWN) == 0);
    kill_other(&self);
    check_failure(&self);
    check_after_failure(&self);
}

static const case_t cases[] = {
    {"rndv_get: the sender computes", sender_computes},
    {"rndv_get: into more room", more_room},
    {"rndv_get: truncated", too_short},
    {"rndv_get: canceled in flight", in_flight},
    {"rndv_get: canceled before the receive", unmatched},
    {"rndv_get: canceled after a probe has removed it", removed},
    {"rndv_get: the sender's worker is destroyed", worker_destroyed},
};

CHECK_MAIN(cases)
