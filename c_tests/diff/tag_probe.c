/* Probing: visible messages, when they are removed, and receiving a probed message. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>

static ucs_status_ptr_t post_send(side_t *side, const void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return side == NULL ? NULL : ucp_tag_send_nbx(side->ep, data, size, tag, &param);
}

typedef struct {
    unsigned            calls;
    ucs_status_t        status;
    ucp_tag_recv_info_t info;
} record_t;

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    record_t *record = user_data;

    (void)request;
    record->calls++;
    record->status = status;
    record->info   = *info;
}

static record_t last_nb;

static void on_received_nb(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    on_received(request, status, info, &last_nb);
}

/* Probes twice, removes the message, finds nothing, receives it. */
static void probe_facts(bed_t *bed, size_t size, size_t room)
{
    char               *out = data_make(size, 6), *in = malloc(room + 1);
    ucs_status_ptr_t    sent = post_send(bed->a, out, size, 0x60);
    ucp_tag_recv_info_t info = {0};
    ucp_tag_message_h   message;
    record_t            record = {0};
    ucp_request_param_t param  = {
         .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
         .cb.recv      = on_received,
         .user_data    = &record,
    };

    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 0, 0, 0, &info) != NULL);
        rule(bed->b, "T4", "seen: tag %#lx, length %zu", (long)info.sender_tag, info.length);
        rule(bed->b, "T4", "not by another tag: %d", ucp_tag_probe_nb(bed->b->worker, 0x61, -1, 1, &info) == NULL);
        rule(bed->b, "T4", "seen again: %d", ucp_tag_probe_nb(bed->b->worker, 0x60, -1, 0, &info) != NULL);
        message = ucp_tag_probe_nb(bed->b->worker, 0x60, -1, 1, &info);
        rule(bed->b, "T4", "taken: %d, length %zu", message != NULL, info.length);
        rule(bed->b, "T4", "gone: %d", ucp_tag_probe_nb(bed->b->worker, 0x60, -1, 0, &info) == NULL);
        ucs_status_ptr_t received = ucp_tag_msg_recv_nbx(bed->b->worker, in, room, message, &param);
        rule(bed->b, "T4", "msg_recv_nbx: %s", ptr_status_name(received));
        BED_UNTIL(bed, record.calls > 0);
        rule(bed->b, "T4", "called %u, %s, tag %#lx, length %zu, data %s", record.calls, status_name(record.status),
             (long)record.info.sender_tag, record.info.length,
             record.status == UCS_OK ? data_check(in, size, 6) : "partial");
        ucp_request_free(received);
    }
    rule(bed->a, "T4", "%zu sent: %s", size, status_name(bed_wait(bed, sent)));
    bed_sync(bed);
    free(out);
    free(in);
}

/* The nb variant. */
static void probe_nb_facts(bed_t *bed, size_t size)
{
    char               *out = data_make(size, 8), *in = malloc(size + 1);
    ucs_status_ptr_t    sent = post_send(bed->a, out, size, 0x62);
    ucp_tag_recv_info_t info = {0};
    ucp_tag_message_h   message;

    last_nb = (record_t){0};
    if (bed->b != NULL) {
        BED_UNTIL(bed, (message = ucp_tag_probe_nb(bed->b->worker, 0x62, 0xff, 1, &info)) != NULL);
        void *received = ucp_tag_msg_recv_nb(bed->b->worker, in, size, ucp_dt_make_contig(1), message,
                                             on_received_nb);
        BED_UNTIL(bed, last_nb.calls > 0);
        rule(bed->b, "T4", "msg_recv_nb %zu: %s, %s, calls %u, data %s", size, ptr_status_name(received),
             status_name(last_nb.status), last_nb.calls, data_check(in, size, 8));
        ucp_request_free(received);
    }
    bed_wait(bed, sent);
    bed_sync(bed);
    free(out);
    free(in);
}

/* Removed from the middle, the others stay in order; a removed message waits while others are received. */
static void order_facts(bed_t *bed)
{
    enum { COUNT = 6 };
    uint64_t            values[COUNT], got;
    ucs_status_ptr_t    sent[COUNT];
    ucp_tag_recv_info_t info;
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (int i = 0; i < COUNT; i++) {
        values[i] = (uint64_t)i;
        sent[i]   = post_send(bed->a, &values[i], 8, 0x70 + (ucp_tag_t)(i % 3));
    }
    if (bed->b != NULL) {
        ucp_tag_message_h taken;
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 0x72, -1, 0, &info) != NULL);
        /* the first of tag 0x72 is message 2, so 1 is there */
        taken = ucp_tag_probe_nb(bed->b->worker, 0x71, -1, 1, &info);
        for (int i = 0; i < COUNT - 1; i++) {
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, &got, 8, 0x70, 0xf0, &param));
            rule(bed->b, "T3", "any: message %d", (int)got);
        }
        bed_wait(bed, ucp_tag_msg_recv_nbx(bed->b->worker, &got, 8, taken, &param));
        rule(bed->b, "T3", "the taken one: message %d", (int)got);
    }
    for (int i = 0; i < COUNT; i++) {
        bed_wait(bed, sent[i]);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    static const size_t sizes[] = {0, 8, 1000, 8192, 20000, 300000, 2 << 20};
    ucp_tag_recv_info_t info    = {.length = 4711};

    bed_open(bed, &params);
    if (bed->b != NULL) {
        fact(bed->b, "nothing there: %d", ucp_tag_probe_nb(bed->b->worker, 0, 0, 1, &info) == NULL);
    }
    bed_sync(bed);
    for (int i = 0; i < 7; i++) {
        probe_facts(bed, sizes[i], sizes[i]);
        probe_facts(bed, sizes[i], sizes[i] / 2);
        probe_nb_facts(bed, sizes[i]);
    }
    order_facts(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
