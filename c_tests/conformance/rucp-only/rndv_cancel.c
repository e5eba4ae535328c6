/*
 * A rendezvous whose sender cancels it by a forced close while the receiver copies: the memory is the
 * sender's again, and the receiver must not take the bytes it copies for the message.
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "party.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SIZE (64 << 20)
/* Of a message that is requested by RTR and, without a reply, copied by both sides. */
#define MIDDLE (64 << 10)

/* Bytes of the message that cancel_send() sends. */
static size_t size = SIZE;

static const ucp_request_param_t none = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

/* The sender: sends an RTS, and when notified cancels it and overwrites the memory. */
static void cancel_send(party_t *self)
{
    char            *data = malloc(size), byte;
    ucs_status_ptr_t sent;

    memset(data, 1, size);
    sent = send_tag(self, data, size);
    WANT_TRUE(UCS_PTR_IS_PTR(sent));
    notify_peer(self);
    while (recv(self->link, &byte, 1, MSG_DONTWAIT) != 1) {
        ucp_worker_progress(self->worker);
    }
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self->ep, &force));
    WANT(UCS_ERR_CANCELED, finish(self, sent));
    memset(data, 2, size);
    notify_peer(self);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/* Canceled in the middle of the copy. */
static void in_flight(void)
{
    party_t self;
    char   *data = malloc(SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancel_send);
    wait_notified_blocking(&self);
    ucs_status_ptr_t received = receive_tag(&self, data, SIZE, 1);
    for (int i = 0; i < 3; i++) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(ucp_request_check_status(received) == UCS_INPROGRESS);
    notify_peer(&self);
    wait_notified_blocking(&self); /* the memory is overwritten, and this process has not received the cancel yet */
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    check_failure(&self);
    kill_other(&self);
    check_after_failure(&self);
    free(data);
}

/* Canceled before a receive matches, known and not known to the receiver: no receive gets the message. */
static void unmatched(int known)
{
    party_t             self;
    ucp_tag_recv_info_t info;
    char               *data = malloc(size);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancel_send);
    wait_notified_blocking(&self);
    for (int i = 0; known && i < 1000000 && ucp_tag_probe_nb(self.worker, 1, -1, 0, &info) == NULL; i++) {
        ucp_worker_progress(self.worker);
    }
    notify_peer(&self);
    if (transport_has("cancel")) {
        wait_notified_blocking(&self);
    } else {
        /* The sender waits for the receiver, which drops the message. */
        WANT_TRUE(wait_notified(&self));
        known = 0;
    }
    if (!known) {
        check_failure(&self);
        WANT_TRUE(ucp_tag_probe_nb(self.worker, 1, -1, 0, &info) == NULL);
    }
    ucs_status_ptr_t received = receive_tag(&self, data, size, 1);
    if (known) {
        WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
        check_failure(&self);
    } else {
        WANT_TRUE(ucp_request_check_status(received) == UCS_INPROGRESS);
        ucp_request_cancel(self.worker, received);
        WANT(UCS_ERR_CANCELED, finish(&self, received));
    }
    kill_other(&self);
    check_after_failure(&self);
    free(data);
}

static void unmatched_known(void)
{
    unmatched(1);
}

/* So short that it is copied in one piece, inside of the call that posts the receive. */
static void unmatched_short(void)
{
    size = 256 << 10;
    unmatched(1);
}

static void unmatched_unknown(void)
{
    unmatched(0);
}

/* A message that a probe has removed: only the user's handle refers to it. */
static void removed(void)
{
    party_t             self;
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message = NULL;
    ucp_request_param_t param   = {.op_attr_mask = 0};
    char               *data    = malloc(SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, cancel_send);
    wait_notified_blocking(&self);
    while (message == NULL) {
        ucp_worker_progress(self.worker);
        message = ucp_tag_probe_nb(self.worker, 1, -1, 1, &info);
    }
    notify_peer(&self);
    wait_notified_blocking(&self);
    check_failure(&self);
    ucs_status_t status = finish(&self, ucp_tag_msg_recv_nbx(self.worker, data, SIZE, message, &param));
    WANT_TRUE(is_loss_or_canceled(status));
    kill_other(&self);
    check_after_failure(&self);
    free(data);
}

/* Two workers of one process: even the mapping of the memory is gone. */
static void in_one_process(void)
{
    fixture_t      a = fixture_open(ALL_FEATURES), b = fixture_open(ALL_FEATURES);
    party_t        from = {.worker = a.worker}, to = {.worker = b.worker};
    char          *in   = malloc(SIZE), *out;
    ucp_address_t *address;
    size_t         length;

    out = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WANT(UCS_OK, ucp_worker_get_address(b.worker, &address, &length));
    party_connect(&from, address, UCP_ERR_HANDLING_MODE_PEER);
    ucp_worker_release_address(b.worker, address);
    ucs_status_ptr_t received = receive_tag(&to, in, SIZE, 1), sent = send_tag(&from, out, SIZE);
    for (int i = 0; i < 5; i++) {
        ucp_worker_progress(b.worker);
    }
    WANT_TRUE(ucp_request_check_status(received) == UCS_INPROGRESS);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(from.ep, &force));
    WANT(UCS_ERR_CANCELED, finish(&from, sent));
    WANT_TRUE(munmap(out, SIZE) == 0);
    WANT_TRUE(is_loss_or_canceled(finish(&to, received)));
    fixture_works(&a);
    fixture_works(&b);
    fixture_close(&a);
    fixture_close(&b);
    free(in);
}

/* The sender destroys its worker, its process stays. */
static void go(party_t *self)
{
    char *data = malloc(SIZE);

    memset(data, 1, SIZE);
    send_tag(self, data, SIZE);
    notify_peer(self);
    wait_notified_blocking(self);
    ucp_worker_destroy(self->worker);
    memset(data, 2, SIZE);
    notify_peer(self);
    pause();
}

static void destroyed(void)
{
    party_t self;
    char   *data = malloc(SIZE);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, go);
    wait_notified_blocking(&self);
    ucs_status_ptr_t received = receive_tag(&self, data, SIZE, 1);
    for (int i = 0; i < 3; i++) {
        ucp_worker_progress(self.worker);
    }
    notify_peer(&self);
    wait_notified_blocking(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, received)));
    check_failure(&self);
    kill_other(&self);
    check_after_failure(&self);
    free(data);
}

/* Cancels one of two messages and stops progressing before it can name it: the ring to the receiver is full. */
static void take_back_and_leave(party_t *self)
{
    static char     data[2][MIDDLE], small[64];
    ucp_ep_h        first = self->ep;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address    = (const void *)self->theirs,
        .err_mode   = UCP_ERR_HANDLING_MODE_PEER,
    };

    memset(data, 1, sizeof(data));
    ucs_status_ptr_t kept = send_tag(self, data[0], MIDDLE);
    WANT(UCS_OK, ucp_ep_create(self->worker, &params, &self->ep));
    ucs_status_ptr_t lost = send_tag(self, data[1], MIDDLE), sent;
    do {
        sent = ucp_tag_send_nbx(first, small, sizeof(small), 2, &none);
    } while (sent == NULL);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self->ep, &force));
    WANT(UCS_ERR_CANCELED, finish(self, lost));
    memset(data[1], 2, MIDDLE);
    notify_peer(self);
    wait_notified_blocking(self);
    WANT(UCS_OK, finish(self, kept));
    WANT(UCS_OK, finish(self, sent));
}

/* Memory of this process, KiB. */
static long resident(void)
{
    char  line[256];
    long  size = -1;
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && size < 0 && fgets(line, sizeof(line), file) != NULL) {
        sscanf(line, "VmRSS: %ld", &size);
    }
    WANT_TRUE(file != NULL && fclose(file) == 0 && size > 0);
    return size;
}

/*
 * No copy can be trusted before the cancel message has arrived. The receiver waits, and does not request the other one
 * repeatedly.
 */
static void cancel_not_sent(void)
{
    static char data[MIDDLE];
    party_t     self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, take_back_and_leave);
    wait_notified_blocking(&self);
    ucs_status_ptr_t received = receive_tag(&self, data, MIDDLE, 1);
    long             before = resident();
    for (time_t end = time(NULL) + 2; time(NULL) < end;) {
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(ucp_request_check_status(received) == UCS_INPROGRESS);
    WANT_TRUE(resident() < before + 2048);
    notify_peer(&self);
    WANT(UCS_OK, finish(&self, received));
    WANT_TRUE(data[0] == 1 && data[MIDDLE - 1] == 1);
    kill_other(&self);
    check_failure(&self);
    check_after_failure(&self);
}

static const case_t cases[] = {
    {"rndv_cancel: in flight", in_flight},
    {"rndv_cancel: unmatched, known", unmatched_known},
    {"rndv_cancel: unmatched, known, short", unmatched_short},
    {"rndv_cancel: unmatched, unknown", unmatched_unknown},
    {"rndv_cancel: taken out by a probe", removed},
    {"rndv_cancel: in one process", in_one_process},
    {"rndv_cancel: the worker is destroyed", destroyed},
    {"rndv_cancel: the cancel is not sent", cancel_not_sent},
};

CHECK_MAIN(cases)
