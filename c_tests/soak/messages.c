//! Tagged and active messages of the soak test.
#include "soak.h"

#include <stdlib.h>
#include <string.h>

atomic_long active_received, active_open;

/* --- tagged messages: to the same thread of another process, or of its own --- */

static ucp_tag_t tag_of(int thread, int from)
{
    return (ucp_tag_t)thread << 32 | (ucp_tag_t)from;
}

void post_receive(thread_t *t, unsigned slot)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    /* From any sender: the mask leaves the sender open. */
    t->receive[slot].request = ucp_tag_recv_nbx(worker, t->receive[slot].buffer, largest, tag_of(t->number, 0),
                                                0xffffffff00000000ull, &param);
    CHECK(UCS_PTR_IS_PTR(t->receive[slot].request), "ucp_tag_recv_nbx");
}

void look_at_receives(thread_t *t)
{
    unsigned slot = t->oldest % RECEIVES;
    ucp_tag_recv_info_t info;
    message_t head;
    ucs_status_t status;

    while ((status = ucp_tag_recv_request_test(t->receive[slot].request, &info)) != UCS_INPROGRESS) {
        check_status(status, "receive");
        CHECK(info.length >= sizeof(head), "a message of %zu bytes", info.length);
        memcpy(&head, t->receive[slot].buffer, sizeof(head));
        CHECK(head.length == info.length && head.from < (unsigned)processes &&
                  info.sender_tag == tag_of(t->number, (int)head.from),
              "the head of a message: length %u instead of %zu, from %u", head.length, info.length, head.from);
        CHECK((long)head.sequence == t->expected[head.from], "message %lu of process %u arrived instead of %ld",
              (unsigned long)head.sequence, head.from, t->expected[head.from]);
        t->expected[head.from]++;
        verify(t->receive[slot].buffer, sizeof(head), info.length, head.seed, "tagged message");
        ucp_request_free(t->receive[slot].request);
        post_receive(t, slot);
        t->received++;
        slot = ++t->oldest % RECEIVES;
    }
}

/**
 * Waits for a message to be sent. It may wait for a receive of the other side, whose thread may wait here for one of
 * ours: by rendezvous nothing is sent before it has been received. So this thread's receives go on meanwhile.
 */
static void wait_for_send(thread_t *t, void *request)
{
    double since = now();
    ucs_status_t status;

    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        look_at_receives(t);
        progress();
        CHECK(now() - since < STUCK_SECONDS, "stuck: a message is not sent");
    }
    check_status(status, "send");
    ucp_request_free(request);
}

unsigned char *send_buffer(thread_t *t)
{
    unsigned slot = t->sends % IN_FLIGHT;

    if (t->send[slot].request != NULL) {
        wait_for_send(t, t->send[slot].request);
        t->send[slot].request = NULL;
    }
    return t->send[slot].buffer;
}

static void keep_send(thread_t *t, ucs_status_ptr_t request)
{
    CHECK(!UCS_PTR_IS_ERR(request), "send: %s", ucs_status_string(UCS_PTR_STATUS(request)));
    t->send[t->sends++ % IN_FLIGHT].request = request;
}

static size_t make_message(thread_t *t, unsigned char *buffer, uint64_t sequence)
{
    size_t length = sizeof(message_t) + draw_length(t, largest - sizeof(message_t));
    message_t head = {(unsigned)me, (unsigned)t->number, draw(t), (unsigned)length, sequence};

    memcpy(buffer, &head, sizeof(head));
    fill(buffer, sizeof(head), length, head.seed);
    return length;
}

void send_tagged(thread_t *t, int to)
{
    unsigned char *buffer = send_buffer(t);
    ucp_request_param_t param = {.op_attr_mask = 0};
    size_t length = make_message(t, buffer, (uint64_t)t->next[to]);
    ucp_dt_iov_t pieces[3];
    ucp_tag_t tag = tag_of(t->number, me);

    if (t->next[to]++ % SYNC_EVERY == SYNC_EVERY - 1) {
        keep_send(t, ucp_tag_send_sync_nbx(endpoints[to], buffer, length, tag, &param));
    } else if (draw(t) % 8 == 0 && length < 2000) {
        /* In pieces; the list must live until the end, so this one is waited for. */
        size_t third = length / 3;

        pieces[0] = (ucp_dt_iov_t){buffer, third};
        pieces[1] = (ucp_dt_iov_t){buffer + third, 0};
        pieces[2] = (ucp_dt_iov_t){buffer + third, length - third};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ucp_dt_make_iov();
        ucs_status_ptr_t request = ucp_tag_send_nbx(endpoints[to], pieces, 3, tag, &param);

        if (UCS_PTR_IS_PTR(request)) {
            wait_for_send(t, request);
        } else {
            check_status(UCS_PTR_RAW_STATUS(request), "send of a list");
        }
    } else {
        keep_send(t, ucp_tag_send_nbx(endpoints[to], buffer, length, tag, &param));
    }
    atomic_fetch_add(&shared->sent[me][to][t->number], 1);
    count(TAGGED, length);
}

/* --- active messages: handled by any thread that progresses --- */

static void check_active(const message_t *head, const unsigned char *data, size_t length)
{
    CHECK(head->length == length && head->from < (unsigned)processes, "active message of %zu bytes, should be %u",
          length, head->length);
    verify(data, sizeof(message_t), length, head->seed, "active message");
    CHECK(length < sizeof(*head) || memcmp(data, head, sizeof(*head)) == 0, "the head of an active message");
    atomic_fetch_add(&active_received, 1);
}

typedef struct fetch {
    message_t     head;
    unsigned char data[];
} fetch_t;

static void on_fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    fetch_t *fetch = user_data;

    check_status(status, "data of an active message");
    check_active(&fetch->head, fetch->data, length);
    free(fetch);
    ucp_request_free(request);
    atomic_fetch_sub(&active_open, 1);
}

ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                       const ucp_am_recv_param_t *info)
{
    (void)arg;
    CHECK(header_length == sizeof(message_t), "a header of %zu bytes", header_length);
    if (!(info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        message_t head;

        memcpy(&head, header, sizeof(head));
        check_active(&head, data, length);
        return UCS_OK;
    }
    fetch_t *fetch = malloc(sizeof(*fetch) + length);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv_am = on_fetched, .user_data = fetch};

    memcpy(&fetch->head, header, sizeof(fetch->head));
    atomic_fetch_add(&active_open, 1);
    CHECK(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(worker, data, fetch->data, length, &param)), "ucp_am_recv_data_nbx");
    return UCS_INPROGRESS;
}

void send_active(thread_t *t, int to)
{
    unsigned char *buffer = send_buffer(t);
    size_t length = make_message(t, buffer, 0);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};

    /* The header is the beginning of the message itself, which stays as it is until the message has been sent. */
    switch (draw(t) % 4) {
    case 0:
        param.flags = UCP_AM_SEND_FLAG_RNDV;
        break;
    case 1:
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        break;
    }
    keep_send(t, ucp_am_send_nbx(endpoints[to], AM_ID, buffer, sizeof(message_t), buffer, length, &param));
    atomic_fetch_add(&shared->sent_active[me][to], 1);
    count(ACTIVE, length);
}
