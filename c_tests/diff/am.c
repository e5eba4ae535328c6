/* Active messages: headers, sizes, kept data, reply endpoints, flags; new-style and old-style handlers. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

enum { ID_PLAIN = 3, ID_PERSISTENT = 4, ID_WHOLE = 65535, ID_OLD = 77, ID_UNHANDLED = 500 };

#define ALIGNMENT 128

/* Record of the last message in the handler, with its data once all have arrived. */
typedef struct {
    ucp_worker_h     worker;
    volatile unsigned calls;
    size_t           header_length, length;
    uint8_t         *header;
    uint8_t         *data;
    void            *kept; /* to be released by the script */
    ucs_status_ptr_t receiving;
    ucp_ep_h         reply_ep;
    uint64_t         attr;
    int              aligned;
} seen_t;

static seen_t seen;

static void seen_reset(void)
{
    free(seen.header);
    free(seen.data);
    ucp_worker_h worker = seen.worker;
    memset(&seen, 0, sizeof(seen));
    seen.worker = worker;
}

static void seen_header(const void *header, size_t header_length, size_t length)
{
    seen.header_length = header_length;
    seen.header        = malloc(header_length + 1);
    seen.length        = length;
    seen.data          = calloc(1, length + 1);
    if (header_length > 0) {
        memcpy(seen.header, header, header_length);
    }
}

/* Accepts the data in every form: by rendezvous, persistent, or only valid in the handler. */
static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    static const ucp_request_param_t receive = {.op_attr_mask = 0};

    (void)arg;
    seen_header(header, header_length, length);
    seen.attr     = param->recv_attr;
    seen.reply_ep = param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? param->reply_ep : NULL;
    seen.calls++;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        seen.receiving = ucp_am_recv_data_nbx(seen.worker, data, seen.data, length, &receive);
        return UCS_INPROGRESS;
    }
    seen.aligned = (uintptr_t)data % ALIGNMENT == 0;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
        seen.kept = data;
        return UCS_INPROGRESS;
    }
    memcpy(seen.data, data, length);
    return UCS_OK;
}

static ucs_status_t on_old_message(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    (void)arg;
    seen_header(NULL, 0, length);
    seen.reply_ep = reply_ep;
    seen.calls++;
    if (flags & UCP_CB_PARAM_FLAG_DATA) {
        seen.kept = data;
        return UCS_INPROGRESS;
    }
    memcpy(seen.data, data, length);
    return UCS_OK;
}

static void set_handler(side_t *side, unsigned id, uint32_t flags)
{
    ucp_am_handler_param_t param = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id    = id,
        .flags = flags,
        .cb    = on_message,
    };

    fact(side, "handler for %u: %s", id, status_name(ucp_worker_set_am_recv_handler(side->worker, &param)));
}

/* Work of the receiver after its handler ran: waits for the data, checks them, releases them. */
static void seen_fact(bed_t *bed, unsigned header_seed, unsigned data_seed)
{
    ucs_status_t status = bed_wait(bed, seen.receiving);

    if (seen.kept != NULL) {
        memcpy(seen.data, seen.kept, seen.length);
        ucp_am_data_release(bed->b->worker, seen.kept);
    }
    fact(bed->b, "calls %u, header %zu %s, length %zu, data %s, %s, reply endpoint %d", seen.calls, seen.header_length,
         data_check(seen.header, seen.header_length, header_seed), seen.length,
         data_check(seen.data, seen.length, data_seed), status_name(status), seen.reply_ep != NULL);
}

static void exchange(bed_t *bed, unsigned id, size_t header_length, size_t length, uint32_t flags)
{
    void               *header = data_make(header_length, 1), *data = data_make(length, 2);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucs_status_ptr_t    sent = NULL;

    seen_reset();
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = ucp_am_send_nbx(bed->a->ep, id, header, header_length, data, length, &param);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, seen.calls > 0);
        seen_fact(bed, 1, 2);
    }
    if (bed->a != NULL) {
        fact(bed->a, "id %u, header %zu, data %zu: %s", id, header_length, length, status_name(bed_wait(bed, sent)));
    }
    bed_sync(bed);
    free(header);
    free(data);
}

static void every_size(bed_t *bed)
{
    static const size_t headers[] = {0, 1, 8, 100, 200};
    static const size_t sizes[]   = {0,     1,     8,      64,     100,    1000,    4000,    8000,   8100,   8192, 8256,
                                     10000, 16384, 65536, 100000, 262144, 1048576, 4194304};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int h = 0; h < 5; h++) {
            exchange(bed, ID_PLAIN, headers[h], sizes[i], 0);
        }
        exchange(bed, ID_PERSISTENT, 8, sizes[i], 0);
        exchange(bed, ID_WHOLE, 8, sizes[i], 0);
    }
}

/* Flags that select the protocol, and the flags passed to the handler. */
static void flag_facts(bed_t *bed)
{
    static const size_t sizes[] = {8, 3000, 20000, 300000};

    for (int i = 0; i < 4; i++) {
        exchange(bed, ID_PLAIN, 8, sizes[i], UCP_AM_SEND_FLAG_EAGER);
        fact(bed->b, "eager: by rendezvous %d", (seen.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
        exchange(bed, ID_PLAIN, 8, sizes[i], UCP_AM_SEND_FLAG_RNDV);
        fact(bed->b, "rendezvous: %d", (seen.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
        exchange(bed, ID_PERSISTENT, 8, sizes[i], UCP_AM_SEND_FLAG_EAGER);
        fact(bed->b, "persistent: can be kept %d, aligned %d", (seen.attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0,
             seen.aligned);
        exchange(bed, ID_PLAIN, 8, sizes[i], UCP_AM_SEND_FLAG_REPLY);
    }
}

/* The longest header that the sender's worker allows. */
static void longest_header(bed_t *bed)
{
    size_t longest = 0;

    if (bed->a != NULL) {
        ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
        must(bed->a, ucp_worker_query(bed->a->worker, &attr), "ucp_worker_query");
        longest = attr.max_am_header;
    }
    bed_transfer(bed, bed->a, &longest, sizeof(longest), &longest, sizeof(longest));
    static const size_t sizes[] = {0, 8, 1000, 100000};
    for (int i = 0; i < 4; i++) {
        void               *header = data_make(longest, 5), *data = data_make(sizes[i], 6);
        ucp_request_param_t param = {.op_attr_mask = 0};
        seen_reset();
        bed_sync(bed);
        ucs_status_ptr_t sent = bed->a == NULL ? NULL : ucp_am_send_nbx(bed->a->ep, ID_PLAIN, header, longest, data,
                                                                        sizes[i], &param);
        if (bed->b != NULL) {
            BED_UNTIL(bed, seen.calls > 0);
            bed_wait(bed, seen.receiving);
            if (seen.kept != NULL) {
                memcpy(seen.data, seen.kept, seen.length);
                ucp_am_data_release(bed->b->worker, seen.kept);
            }
            fact(bed->b, "longest header: whole %d %s, length %zu, data %s", seen.header_length == longest,
                 data_check(seen.header, seen.header_length, 5), seen.length, data_check(seen.data, seen.length, 6));
        }
        fact(bed->a, "longest header, %zu: %s", sizes[i], status_name(bed_wait(bed, sent)));
        bed_sync(bed);
        free(header);
        free(data);
    }
}

/* B replies on the endpoint that came with the message. */
static void reply_facts(bed_t *bed)
{
    uint64_t            question = 41, answer = 42;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
    ucs_status_ptr_t    sent = NULL;

    seen_reset();
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = ucp_am_send_nbx(bed->a->ep, ID_PLAIN, &question, 8, NULL, 0, &param);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, seen.calls > 0);
        ucp_ep_h reply_ep = seen.reply_ep;
        fact(bed->b, "asked: header %d, reply endpoint %d", (int)*(uint64_t *)seen.header, reply_ep != NULL);
        seen_reset();
        param.flags = 0;
        fact(bed->b, "answer: %s",
             status_name(bed_wait(bed, ucp_am_send_nbx(reply_ep, ID_PLAIN, &answer, 8, NULL, 0, &param))));
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, seen.calls > 0);
        fact(bed->a, "answered: header %d, reply endpoint %d, %s", (int)*(uint64_t *)seen.header,
             seen.reply_ep != NULL, status_name(bed_wait(bed, sent)));
    }
    bed_sync(bed);
}

#if UCP_API_MINOR >= 14
/* With COPY_HEADER the user may reuse the header when the call returns. */
static void copy_header_facts(bed_t *bed, size_t length)
{
    void               *header = data_make(100, 7), *data = data_make(length, 8);
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_COPY_HEADER};
    ucs_status_ptr_t    sent   = NULL;

    seen_reset();
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = ucp_am_send_nbx(bed->a->ep, ID_PLAIN, header, 100, data, length, &param);
        memset(header, 0, 100);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, seen.calls > 0);
        seen_fact(bed, 7, 8);
    }
    fact(bed->a, "copied header, %zu: %s", length, status_name(bed_wait(bed, sent)));
    bed_sync(bed);
    free(header);
    free(data);
}
#endif

static unsigned    in_order, out_of_order;
static ucs_status_t on_numbered(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header_length, (void)data, (void)length, (void)param;
    out_of_order += *(const uint32_t *)header != in_order;
    in_order++;
    return UCS_OK;
}

/* Short messages of one endpoint arrive in the order in which they were sent, and each once. */
static void order_facts(bed_t *bed)
{
    enum { COUNT = 3000 };
    static uint32_t         numbers[COUNT];
    static ucs_status_ptr_t sent[COUNT];
    ucp_request_param_t     param   = {.op_attr_mask = 0};
    ucp_am_handler_param_t  handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                       .id = 9, .cb = on_numbered};

    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
    }
    bed_sync(bed);
    for (uint32_t i = 0; bed->a != NULL && i < COUNT; i++) {
        numbers[i] = i;
        sent[i]    = ucp_am_send_nbx(bed->a->ep, 9, &numbers[i], 4, NULL, 0, &param);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, in_order == COUNT);
        fact(bed->b, "numbered: out of order %u", out_of_order);
    }
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        bed_wait(bed, sent[i]);
    }
    bed_sync(bed);
}

/* Messages without a handler are dropped; their sends complete, and the next message arrives. */
static void dropped_facts(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    void               *data  = data_make(1000, 1);

    if (bed->a != NULL) {
        fact(bed->a, "without a handler: %s",
             status_name(bed_wait(bed, ucp_am_send_nbx(bed->a->ep, ID_UNHANDLED, NULL, 0, data, 1000, &param))));
    }
    exchange(bed, ID_PLAIN, 8, 8, 0);
    if (bed->b != NULL) {
        ucp_am_handler_param_t clear = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                        .id = ID_WHOLE, .cb = NULL};
        fact(bed->b, "clear a handler: %s", status_name(ucp_worker_set_am_recv_handler(bed->b->worker, &clear)));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        fact(bed->a, "to a cleared one: %s",
             status_name(bed_wait(bed, ucp_am_send_nbx(bed->a->ep, ID_WHOLE, NULL, 0, data, 8, &param))));
    }
    exchange(bed, ID_PLAIN, 8, 8, 0);
    free(data);
}

static void on_sent(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

/* Old-style sender and handler. */
static void old_facts(bed_t *bed)
{
    static const size_t sizes[] = {0, 1, 64, 1000, 8000, 8256, 30000};

    if (bed->b != NULL) {
        fact(bed->b, "old handler: %s",
             status_name(ucp_worker_set_am_handler(bed->b->worker, ID_OLD, on_old_message, NULL,
                                                   UCP_AM_FLAG_WHOLE_MSG)));
    }
    for (int i = 0; i < 14; i++) {
        unsigned flags = i % 2 == 0 ? 0 : UCP_AM_SEND_FLAG_REPLY;
        void    *data  = data_make(sizes[i / 2], 3);
        seen_reset();
        bed_sync(bed);
        ucs_status_ptr_t sent = bed->a == NULL ? NULL : ucp_am_send_nb(bed->a->ep, ID_OLD, data, sizes[i / 2],
                                                                       ucp_dt_make_contig(1), on_sent, flags);
        if (bed->b != NULL) {
            BED_UNTIL(bed, seen.calls > 0);
            seen_fact(bed, 0, 3);
        }
        fact(bed->a, "old, %zu: %s", sizes[i / 2], status_name(bed_wait(bed, sent)));
        bed_sync(bed);
        free(data);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_AM, .am_alignment = ALIGNMENT};

    bed_open(bed, &params);
    seen.worker = bed->b != NULL ? bed->b->worker : bed->a->worker;
    if (bed->a != NULL && bed->topology != TOPOLOGY_SELF) {
        set_handler(bed->a, ID_PLAIN, 0);
    }
    if (bed->b != NULL) {
        set_handler(bed->b, ID_PLAIN, 0);
        set_handler(bed->b, ID_PERSISTENT, UCP_AM_FLAG_PERSISTENT_DATA);
        set_handler(bed->b, ID_WHOLE, UCP_AM_FLAG_WHOLE_MSG);
    }
    bed_sync(bed);
    every_size(bed);
    flag_facts(bed);
    longest_header(bed);
    reply_facts(bed);
#if UCP_API_MINOR >= 14
    copy_header_facts(bed, 8);
    copy_header_facts(bed, 10000);
    copy_header_facts(bed, 300000);
#endif
    order_facts(bed);
    dropped_facts(bed);
    old_facts(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
