/*
 * Zero-copy transfers: a buffer whose request has completed, with or without an error, is not accessed any more; and no
 * request waits for ever for a peer that has died, closed its endpoint or destroyed its worker during the transfer.
 *
 * To be run with a slow wire (delay_us), short work requests (UCX_RMA_ZCOPY_MAX_SEG_SIZE) and short queues
 * (UCX_RC_TX_QUEUE_LEN), so that a transfer is interrupted in its middle.
 */
#define _GNU_SOURCE
#include "counters.h"
#include "exposed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE ((size_t)64 << 20)
#include "transfer.h"

/* Progresses until the first byte has arrived. */
static void begun(party_t *self, const volatile unsigned char *bytes)
{
    time_t end = time(NULL) + 20;

    while (bytes[0] == NOTHING && time(NULL) < end) {
        ucp_worker_progress(self->worker);
    }
    WANT_TRUE(bytes[0] == SENT);
}

/* Sends, and reports the status of completion: 'g' for UCS_OK. */
static void sends(party_t *self)
{
    unsigned char *bytes = memory(SENT);
    ucs_status_t   status;

    status = finish(self, send_tag(self, bytes, SIZE));
    WANT_TRUE(send(self->link, status == UCS_OK ? "g" : status == UCS_INPROGRESS ? "?" : "b", 1, MSG_NOSIGNAL) == 1);
    progress_until_killed(self);
}

static char receive_verdict(party_t *self)
{
    char word = 0;

    WANT_TRUE(recv(self->link, &word, 1, 0) == 1);
    return word;
}

static ucs_status_ptr_t receive_begun(party_t *self, unsigned char *bytes)
{
    ucs_status_ptr_t received = receive_tag(self, bytes, SIZE, 1);

    begun(self, bytes);
    WANT_TRUE(ucp_request_check_status(received) == UCS_INPROGRESS);
    WANT_TRUE(bytes[SIZE - 1] == NOTHING);
    return received;
}

static void whole(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);
    long           words = counter("words");

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends);
    WANT(UCS_OK, finish(&self, receive_tag(&self, bytes, SIZE, 1)));
    WANT_TRUE(count(bytes, SENT) == SIZE);
    /* The last bytes arrive with the whole message. */
    WANT_TRUE(!has_counters() || counter("words") == words + 1);
    WANT_TRUE(receive_verdict(&self) == 'g');
    kill_other(&self);
    check_failure(&self);
    check_after_failure(&self);
}

static void sender_killed(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends);
    ucs_status_ptr_t received = receive_begun(&self, bytes);
    kill_other(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    check_failure(&self);
    check_after_failure(&self);
}

static void receives(party_t *self)
{
    unsigned char *bytes = memory(NOTHING);

    receive_begun(self, bytes);
    notify_peer(self);
    progress_until_killed(self);
}

static void receiver_killed(void)
{
    party_t        self;
    unsigned char *bytes = memory(SENT);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, receives);
    ucs_status_ptr_t sent = send_tag(&self, bytes, SIZE);
    WANT_TRUE(wait_notified(&self));
    kill_other(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, sent)));
    check_failure(&self);
    check_after_failure(&self);
}

/* The sender cancels a transfer in flight: its buffer is free on completion, and the receiver gets no message. */
static void closes(party_t *self)
{
    unsigned char   *bytes = memory(SENT);
    ucs_status_ptr_t sent  = send_tag(self, bytes, SIZE);

    WANT_TRUE(wait_notified(self));
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self->ep, &force));
    WANT(UCS_ERR_CANCELED, finish(self, sent));
    WANT_TRUE(munmap(bytes, SIZE) == 0);
    notify_peer(self);
    progress_until_killed(self);
}

static void sender_closes(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, closes);
    ucs_status_ptr_t received = receive_begun(&self, bytes);
    notify_peer(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    memset(bytes, OWN, SIZE);
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(count(bytes, OWN) == SIZE);
    check_failure(&self);
    kill_other(&self);
    check_after_failure(&self);
}

/* --- workers that are destroyed --- */

static ucs_status_t ended;

static void on_end(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *bytes)
{
    (void)request;
    (void)info;
    ended = status;
    memset(bytes, OWN, SIZE);
}

static void receiver_destroyed(void)
{
    party_t             self;
    unsigned char      *bytes = memory(NOTHING);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv      = on_end,
                                 .user_data    = bytes};

    start(&self, UCP_ERR_HANDLING_MODE_PEER, sends);
    WANT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(self.worker, bytes, SIZE, 1, -1, &param)));
    begun(&self, bytes);
    ucp_worker_destroy(self.worker);
    WANT(UCS_ERR_CANCELED, ended);
    WANT_TRUE(receive_verdict(&self) == 'b');
    WANT_TRUE(count(bytes, OWN) == SIZE);
    kill_other(&self);
    ucp_cleanup(self.context);
}

static void goes(party_t *self)
{
    unsigned char *bytes = memory(SENT);

    WANT_TRUE(UCS_PTR_IS_PTR(send_tag(self, bytes, SIZE)));
    WANT_TRUE(wait_notified(self));
    ucp_worker_destroy(self->worker);
    memset(bytes, OWN, SIZE);
}

static void sender_destroyed(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, goes);
    ucs_status_ptr_t received = receive_begun(&self, bytes);
    notify_peer(&self);
    ucs_status_t status = finish(&self, received);
    WANT_TRUE(is_loss_or_canceled(status) || (status == UCS_OK && count(bytes, SENT) == SIZE));
    WANT_TRUE(wait_notified(&self));
    WANT_TRUE(count(bytes, OWN) == 0);
    kill_other(&self);
    check_failure(&self);
    check_after_failure(&self);
}

/* --- puts and gets --- */

static void get_closed(void)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);
    ucp_rkey_h     rkey  = open_memory(&self, SIZE, register_memory);

    memset(there, SENT, SIZE);
    ucs_status_ptr_t got = get(&self, bytes, SIZE, 0, rkey);
    begun(&self, bytes);
    WANT_TRUE(ucp_request_check_status(got) == UCS_INPROGRESS);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self.ep, &force));
    WANT(UCS_ERR_CANCELED, finish(&self, got));
    memset(bytes, OWN, SIZE);
    /* Operations posted before this one are complete, or never take effect. */
    ucp_rkey_destroy(rkey);
    ucp_worker_destroy(self.worker);
    WANT_TRUE(count(bytes, OWN) == SIZE);
    kill_other(&self);
    ucp_cleanup(self.context);
}

static void put_and_get(void)
{
    party_t        self;
    unsigned char *bytes = memory(SENT);
    ucp_rkey_h     rkey  = open_memory(&self, SIZE, register_memory);

    WANT(UCS_OK, finish(&self, put(&self, bytes, SIZE - 4099, 4099, rkey)));
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(self.ep, &none)));
    WANT_TRUE(there[4098] != SENT && there[4099] == SENT && there[SIZE - 1] == SENT);
    memset(bytes, NOTHING, SIZE);
    WANT(UCS_OK, finish(&self, get(&self, bytes, SIZE - 4099, 4099, rkey)));
    WANT_TRUE(count(bytes, SENT) == SIZE - 4099);
    close_memory(&self, rkey);
}

/* --- memory that cannot be registered --- */

static void sends_unregistered(party_t *self)
{
    setenv("SOFT_HCA_MR_LONGEST", "1048576", 1);
    sends(self);
}

static void unregistered(void (*other)(party_t *), const char *longest)
{
    party_t        self;
    unsigned char *bytes = memory(NOTHING);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, other);
    if (longest != NULL) {
        setenv("SOFT_HCA_MR_LONGEST", longest, 1);
    }
    WANT(UCS_OK, finish(&self, receive_tag(&self, bytes, SIZE, 1)));
    WANT_TRUE(count(bytes, SENT) == SIZE);
    WANT_TRUE(receive_verdict(&self) == 'g');
    kill_other(&self);
    check_failure(&self);
    check_after_failure(&self);
}

static void unregistered_at_sender(void)
{
    unregistered(sends_unregistered, NULL);
}

static void unregistered_at_receiver(void)
{
    unregistered(sends, "1048576");
}

static const case_t cases[] = {
    {"zcopy: whole", whole},
    {"zcopy: the sender is killed", sender_killed},
    {"zcopy: the receiver is killed", receiver_killed},
    {"zcopy: the sender closes by force", sender_closes},
    {"zcopy: the receiver's worker is destroyed", receiver_destroyed},
    {"zcopy: the sender's worker is destroyed", sender_destroyed},
    {"zcopy: a get whose endpoint is closed by force", get_closed},
    {"zcopy: put and get", put_and_get},
    {"zcopy: cannot be registered at the sender", unregistered_at_sender},
    {"zcopy: cannot be registered at the receiver", unregistered_at_receiver},
};

CHECK_MAIN(cases)
