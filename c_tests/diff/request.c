/* The life of a request: callbacks, immediate completion, test, free and release, cancel (rules.txt R4 to R16). */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#define TAG  0x50
#define LONG (512 * 1024) /* so long that it cannot complete without the receiver */

typedef struct {
    unsigned            calls;
    ucs_status_t        status;
    void               *request;
    ucp_tag_recv_info_t info;
    int                 free_inside;
} record_t;

static record_t last_nb; /* callbacks of the nb functions carry no user data */

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    record_t *record = user_data;

    record->calls++;
    record->status  = status;
    record->request = request;
    if (record->free_inside) {
        ucp_request_free(request);
    }
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    record_t *record = user_data;

    record->info = *info;
    on_sent(request, status, user_data);
}

static void on_sent_nb(void *request, ucs_status_t status)
{
    on_sent(request, status, &last_nb);
}

static void on_received_nb(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    on_received(request, status, info, &last_nb);
}

static ucs_status_ptr_t post_send(side_t *side, const void *data, size_t size, uint32_t flags, record_t *record)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | flags,
        .cb.send      = on_sent,
        .user_data    = record,
    };

    return side == NULL ? NULL : ucp_tag_send_nbx(side->ep, data, size, TAG, &param);
}

static ucs_status_ptr_t post_receive(side_t *side, void *data, size_t size, uint32_t flags, record_t *record)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | flags,
        .cb.recv      = on_received,
        .user_data    = record,
    };

    return side == NULL ? NULL : ucp_tag_recv_nbx(side->worker, data, size, TAG, -1, &param);
}

/* B's worker has an unexpected message of `tag`. */
static void wait_unexpected(bed_t *bed)
{
    ucp_tag_recv_info_t info;

    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, TAG, -1, 0, &info) != NULL);
    }
}

/* An eager message that has arrived before completes a receive at once: with and without a callback. */
static void immediate_facts(bed_t *bed)
{
    uint64_t            value = 77, got = 0;
    record_t            record = {0};
    ucp_tag_recv_info_t info   = {0};

    bed_wait(bed, post_send(bed->a, &value, sizeof(value), 0, &(record_t){0}));
    wait_unexpected(bed);
    if (bed->b != NULL) {
        ucs_status_ptr_t request = post_receive(bed->b, &got, sizeof(got), UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &record);
        rule(bed->b, "R5", "forbidden to be immediate: %s, called %u with our request %d, %s", ptr_status_name(request),
             record.calls, record.request == request, status_name(ucp_request_check_status(request)));
        rule(bed->b, "R5", "tag %#lx, length %zu, value %d",
             (long)record.info.sender_tag, record.info.length, (int)got);
        ucp_request_free(request);
    }
    bed_sync(bed);
    value = 78;
    bed_wait(bed, post_send(bed->a, &value, sizeof(value), 0, &(record_t){0}));
    wait_unexpected(bed);
    if (bed->b != NULL) {
        ucp_request_param_t param = {
            .op_attr_mask       = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_RECV_INFO,
            .cb.recv            = on_received,
            .recv_info.tag_info = &info,
        };
        ucs_status_ptr_t result = ucp_tag_recv_nbx(bed->b->worker, &got, sizeof(got), TAG, -1, &param);
        rule(bed->b, "R5", "immediate: %s, value %d", ptr_status_name(result), (int)got);
#if UCP_API_MINOR > 13 /* 1.13.1 does not fill in the documented fields */
        rule(bed->b, "R5", "tag %#lx, length %zu", (long)info.sender_tag, info.length);
#endif
    }
    bed_sync(bed);
}

/* NO_IMM_CMPL gives a request and exactly one callback, whatever the size. */
static void callback_facts(bed_t *bed, size_t size)
{
    record_t         out = {0}, in = {0};
    void            *data = data_make(size, 1), *got = calloc(1, size + 1);
    ucs_status_ptr_t received = post_receive(bed->b, got, size, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &in);

    if (bed->b != NULL) {
        rule(bed->b, "R12", "posted: %s, status %s, completed %d, calls %u", ptr_status_name(received),
             status_name(ucp_request_check_status(received)), ucp_request_is_completed(received), in.calls);
    }
    bed_sync(bed);
    ucs_status_ptr_t sent = post_send(bed->a, data, size, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &out);
    if (bed->a != NULL) {
        BED_UNTIL(bed, out.calls > 0);
        rule(bed->a, "R12", "sent %zu: %s, calls %u, %s, ours %d, %s", size, ptr_status_name(sent), out.calls,
             status_name(out.status), out.request == sent, status_name(ucp_request_check_status(sent)));
        ucp_request_free(sent);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, in.calls > 0);
        rule(bed->b, "R12", "received %zu: calls %u, %s, ours %d, length %zu, data %s", size, in.calls,
             status_name(in.status), in.request == received, in.info.length, data_check(got, size, 1));
        ucp_tag_recv_info_t info = {0};
        ucs_status_t        status = ucp_request_test(received, &info);
        rule(bed->b, "R12", "request_test: %s, length %zu, tag %#lx", status_name(status), info.length,
             (long)info.sender_tag);
        memset(&info, 0, sizeof(info));
        status = ucp_tag_recv_request_test(received, &info);
        rule(bed->b, "R12", "recv_request_test: %s, length %zu, completed %d", status_name(status), info.length,
             ucp_request_is_completed(received));
        ucp_request_free(received);
    }
    bed_sync(bed);
    free(data);
    free(got);
}

/* A callback may free the request that it is called for. */
static void free_inside_facts(bed_t *bed, size_t size)
{
    enum { MESSAGES = 50 };
    record_t out = {.free_inside = 1}, in = {.free_inside = 1};
    void    *data = data_make(size, 2), *got = calloc(1, size + 1);

    for (unsigned i = 1; i <= MESSAGES; i++) {
        post_receive(bed->b, got, size, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &in);
        bed_sync(bed);
        post_send(bed->a, data, size, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &out);
        BED_UNTIL(bed, (bed->a == NULL || out.calls == i) && (bed->b == NULL || in.calls == i));
    }
    rule(bed->a, "R9", "freed inside, %zu: %u", size, out.calls);
    rule(bed->b, "R9", "freed inside, %zu: %u, data %s", size, in.calls, data_check(got, size, 2));
    free(data);
    free(got);
}

/* Freed before completion, a receive still takes its message, without a callback; released, with one. */
static void abandon_facts(bed_t *bed)
{
    record_t          freed = {0}, released = {0};
    volatile uint64_t got[2] = {0, 0};
    uint64_t          values[2] = {11, 12};

    if (bed->b != NULL) {
        ucp_request_free(post_receive(bed->b, (void *)&got[0], 8, 0, &freed));
        ucp_request_release(post_receive(bed->b, (void *)&got[1], 8, 0, &released));
    }
    bed_sync(bed);
    for (int i = 0; i < 2; i++) {
        bed_wait(bed, post_send(bed->a, &values[i], 8, 0, &(record_t){0}));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, got[0] != 0 && got[1] != 0 && released.calls != 0);
        rule(bed->b, "R9", "freed: value %d, calls %u; released: value %d, calls %u, %s", (int)got[0], freed.calls,
             (int)got[1], released.calls, status_name(released.status));
    }
    bed_sync(bed);
}

static void cancel_facts(bed_t *bed)
{
    record_t            record = {0};
    uint64_t            got = 0, value = 99;
    ucp_tag_recv_info_t info = {.length = 12345};

    if (bed->b != NULL) {
        ucs_status_ptr_t request = post_receive(bed->b, &got, sizeof(got), 0, &record);
        ucs_status_t     status  = ucp_tag_recv_request_test(request, &info);
        rule(bed->b, "R13", "tested early: %s, info untouched %d", status_name(status), info.length == 12345);
        ucp_request_cancel(bed->b->worker, request);
        rule(bed->b, "R13", "canceled: calls %u, %s, status %s", record.calls, status_name(record.status),
             status_name(ucp_request_check_status(request)));
        ucp_request_cancel(bed->b->worker, request);
        rule(bed->b, "R13", "canceled twice: calls %u", record.calls);
        ucp_request_free(request);
    }
    bed_sync(bed);
    bed_wait(bed, post_send(bed->a, &value, sizeof(value), 0, &(record_t){0}));
    wait_unexpected(bed);
    if (bed->b != NULL) {
        rule(bed->b, "R13", "canceled receive took nothing: %d", got == 0);
        ucs_status_ptr_t request = post_receive(bed->b, &got, sizeof(got), UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &record);
        ucp_request_cancel(bed->b->worker, request);
        rule(bed->b, "R13", "cancel of a completed one: calls %u, %s, value %d", record.calls,
             status_name(ucp_request_check_status(request)), (int)got);
        ucp_request_free(request);
    }
    bed_sync(bed);
}

/* A send cannot be canceled: the call does nothing, and the message arrives. */
static void cancel_send_facts(bed_t *bed)
{
    record_t record = {0};
    void    *data = data_make(LONG, 4), *got = calloc(1, LONG);

    ucs_status_ptr_t sent = post_send(bed->a, data, LONG, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &record);
    if (bed->a != NULL) {
        ucp_request_cancel(bed->a->worker, sent);
        rule(bed->a, "R13", "cancel of a send: calls %u", record.calls);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, post_receive(bed->b, got, LONG, 0, &(record_t){0}));
        rule(bed->b, "R13", "its message: %s, data %s", status_name(status), data_check(got, LONG, 4));
    }
    if (bed->a != NULL) {
        rule(bed->a, "R13", "the send: %s", status_name(bed_wait(bed, sent)));
    }
    bed_sync(bed);
    free(data);
    free(got);
}

/* "Only if it completes at once" queues nothing when it cannot. */
static void force_immediate_facts(bed_t *bed)
{
    uint64_t value = 5, got = 0;

    if (bed->b != NULL) {
        rule(bed->b, "R7", "forced immediate receive of nothing: %s",
             ptr_status_name(post_receive(bed->b, &got, 8, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL, &(record_t){0})));
    }
    bed_sync(bed);
    bed_wait(bed, post_send(bed->a, &value, sizeof(value), 0, &(record_t){0}));
    wait_unexpected(bed);
    if (bed->b != NULL) {
        rule(bed->b, "R7", "forced immediate receive: %s",
             ptr_status_name(post_receive(bed->b, &got, 8, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL, &(record_t){0})));
        rule(bed->b, "R7", "its value: %d", (int)got);
    }
    bed_sync(bed);
}

static void query_facts(bed_t *bed)
{
    char               text[256] = "";
    ucp_request_attr_t attr = {
        .field_mask        = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE |
                             UCP_REQUEST_ATTR_FIELD_STATUS | UCP_REQUEST_ATTR_FIELD_MEM_TYPE,
        .debug_string      = text,
        .debug_string_size = sizeof(text),
        .mem_type          = UCS_MEMORY_TYPE_CUDA,
    };
    uint64_t got;

    if (bed->b == NULL) {
        return;
    }
    ucs_status_ptr_t request = post_receive(bed->b, &got, sizeof(got), 0, &(record_t){0});
    ucs_status_t     status  = ucp_request_query(request, &attr);
    rule(bed->b, "R14", "query: %s, status %s, memory type %d, text ends %d",
         status_name(status), status_name(attr.status),
         attr.mem_type, memchr(text, '\0', sizeof(text)) != NULL);
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING;
    rule(bed->b, "R14", "query of text without its size: %s", status_name(ucp_request_query(request, &attr)));
    ucp_request_cancel(bed->b->worker, request);
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_STATUS;
    status          = ucp_request_query(request, &attr);
    rule(bed->b, "R14", "query when canceled: %s, status %s", status_name(status), status_name(attr.status));
    ucp_request_free(request);
}

/* The nb functions: a receive always calls back, also for a message that has arrived before. */
static void nb_facts(bed_t *bed)
{
    uint64_t value = 31, got = 0;
    void    *request;

    memset(&last_nb, 0, sizeof(last_nb));
    if (bed->a != NULL) {
        request = ucp_tag_send_nb(bed->a->ep, &value, 1, ucp_dt_make_contig(8), TAG, on_sent_nb);
        rule(bed->a, "R11", "send_nb: %s", status_name(bed_wait(bed, request)));
    }
    wait_unexpected(bed);
    memset(&last_nb, 0, sizeof(last_nb));
    if (bed->b != NULL) {
        request = ucp_tag_recv_nb(bed->b->worker, &got, 1, ucp_dt_make_contig(8), TAG, -1, on_received_nb);
        rule(bed->b, "R11", "recv_nb: %s, calls %u, length %zu, value %d", ptr_status_name(request), last_nb.calls,
             last_nb.info.length, (int)got);
        ucp_request_release(request);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG, .request_size = 16};
    static const size_t sizes[] = {0, 1, 64, 4000, 70000, LONG, 3 << 20};

    bed_open(bed, &params);
    immediate_facts(bed);
    for (int i = 0; i < 7; i++) {
        callback_facts(bed, sizes[i]);
    }
    free_inside_facts(bed, 8);
    free_inside_facts(bed, LONG);
    abandon_facts(bed);
    cancel_facts(bed);
    cancel_send_facts(bed);
    force_immediate_facts(bed);
    query_facts(bed);
    nb_facts(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
