/*
 * Active messages: rank 0 sends numbers, a few and many; the handler of rank 1 squares them and sends them back by the
 * endpoint that came with the message for replies. A long message arrives by rendezvous: its handler gets a descriptor
 * instead of the data, and chooses the memory for the data.
 */
#include "example.h"

#include <string.h>

enum { SQUARE = 1, SQUARED = 2, MESSAGES = 2, MANY = 100000 };

/* A message at the receiver, from its handler until it is processed. */
typedef struct message {
    ucp_ep_h  reply_ep;
    uint64_t *numbers;
    size_t    length; /* bytes */
    void (*handle)(struct message *message);
} message_t;

static ucp_worker_h worker;
static int          handled; /* messages that this process has handled */

static void answered(void *request, ucs_status_t status, void *message)
{
    must(status, "answer");
    free(((message_t *)message)->numbers);
    free(message);
    ucp_request_free(request);
    handled++;
}

static void square(message_t *message)
{
    /* Without an immediate completion the callback runs in every case. */
    const ucp_request_param_t param = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
            .cb.send      = answered,
            .user_data    = message};
    ucs_status_ptr_t request;

    for (size_t i = 0; i < message->length / sizeof(uint64_t); i++) {
        message->numbers[i] *= message->numbers[i];
    }
    request = ucp_am_send_nbx(message->reply_ep, SQUARED, NULL, 0, message->numbers, message->length, &param);
    expect(UCS_PTR_IS_PTR(request), "ucp_am_send_nbx");
}

static void check(message_t *message)
{
    for (size_t i = 0; i < message->length / sizeof(uint64_t); i++) {
        expect(message->numbers[i] == i * i, "squares");
    }
    printf("%zu squares have come back\n", message->length / sizeof(uint64_t));
    free(message->numbers);
    free(message);
    handled++;
}

/* The data of a rendezvous has been received. */
static void fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    message_t *message = user_data;

    must(status, "ucp_am_recv_data_nbx");
    expect(length == message->length, "length");
    ucp_request_free(request);
    message->handle(message);
}

/* Called by ucp_worker_progress. `data` is the data, or a descriptor of it. */
static ucs_status_t arrived(void *handle, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *recv)
{
    message_t                *message = malloc(sizeof(*message));
    const ucp_request_param_t param   = {
              .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
              .cb.recv_am   = fetched,
              .user_data    = message};

    (void)header;
    (void)header_length;
    expect(message != NULL, "malloc");
    message->handle   = *(void (**)(message_t *))handle;
    message->reply_ep = recv->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? recv->reply_ep : NULL;
    message->length   = length;
    message->numbers  = malloc(length);
    expect(message->numbers != NULL, "malloc");
    if (recv->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker, data, message->numbers, length, &param);
        expect(UCS_PTR_IS_PTR(request), "ucp_am_recv_data_nbx");
        return UCS_INPROGRESS;
    }
    memcpy(message->numbers, data, length);
    message->handle(message);
    return UCS_OK;
}

int main(void)
{
    static const size_t       counts[MESSAGES] = {4, MANY};
    static uint64_t           numbers[MANY];
    const ucp_request_param_t param      = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
    pair_t                    pair       = pair_start();
    void (*handle)(message_t *)          = pair.rank == 0 ? check : square;
    ucp_am_handler_param_t am_handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                       UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                         .id         = pair.rank == 0 ? SQUARED : SQUARE,
                                         .cb         = arrived,
                                         .arg        = &handle};
    ucp_context_h             context;
    ucp_ep_h                  ep;

    set_up(UCP_FEATURE_AM, &context, &worker);
    MUST(ucp_worker_set_am_recv_handler(worker, &am_handler));
    ep = pair_connect(&pair, worker);

    if (pair.rank == 0) {
        for (size_t i = 0; i < MANY; i++) {
            numbers[i] = i;
        }
        for (int i = 0; i < MESSAGES; i++) {
            wait_for(worker, ucp_am_send_nbx(ep, SQUARE, NULL, 0, numbers, counts[i] * sizeof(*numbers), &param));
        }
    }
    while (handled < MESSAGES) {
        ucp_worker_progress(worker);
    }
    return pair_finish(&pair, context, worker, ep);
}
