/* Tag matching, rule by rule: rules that the tag_*.c programs do not cover (rules.txt 2.5, T1 to T10). */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#define ALL (~(ucp_tag_t)0)

static ucs_status_ptr_t post(bed_t *bed, ucp_tag_t tag, const void *data, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed->a == NULL ? NULL : ucp_tag_send_nbx(bed->a->ep, data, length, tag, &param);
}

static ucs_status_ptr_t receive(bed_t *bed, ucp_tag_t tag, ucp_tag_t mask, void *data, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    return bed->b == NULL ? NULL : ucp_tag_recv_nbx(bed->b->worker, data, length, tag, mask, &param);
}

/* Every message matches every receive within the mask, whatever is outside of it. */
static void mask_rules(bed_t *bed)
{
    static const struct {
        ucp_tag_t wanted, mask, sent;
    } pairs[] = {{0x11, ALL, 0x11},
                 {0xff22, 0xff, 0xee22},
                 {7, 0, 0xdeadbeef},
                 {0xab00000000000000, 0xffull << 56, 0xabcdef0011223344}};

    for (int i = 0; i < 4; i++) {
        uint64_t            value = (uint64_t)i + 40, got = 0;
        ucp_tag_t           tag   = pairs[i].sent;
        ucs_status_ptr_t    received = receive(bed, pairs[i].wanted, pairs[i].mask, &got, 8);
        bed_sync(bed);
        ucs_status_ptr_t    sent = post(bed, tag, &value, 8);
        if (bed->b != NULL) {
            ucp_tag_recv_info_t info;
            BED_UNTIL(bed, ucp_tag_recv_request_test(received, &info) != UCS_INPROGRESS);
            rule(bed->b, "T1", "%#lx with mask %#lx takes %#lx: value %d", (long)pairs[i].wanted, (long)pairs[i].mask,
                 (long)info.sender_tag, (int)got);
            ucp_request_free(received);
        }
        bed_wait(bed, sent);
        bed_sync(bed);
    }
}

/* Two that match: the one posted first, whether it names all bits or not; both ways round. */
static void posted_rules(bed_t *bed)
{
    for (int round = 0; round < 2; round++) {
        uint64_t         value[2] = {1, 2}, got[2] = {0, 0};
        ucs_status_ptr_t received[2], sent[2];
        for (int i = 0; i < 2; i++) {
            received[i] = receive(bed, 5, i == round ? ALL : 0, &got[i], 8);
        }
        bed_sync(bed);
        for (int i = 0; i < 2; i++) {
            sent[i] = post(bed, 5, &value[i], 8);
        }
        for (int i = 0; i < 2; i++) {
            bed_wait(bed, sent[i]);
            bed_wait(bed, received[i]);
        }
        rule(bed->b, "T2", "the full mask posted %s: first got %d, second got %d", round == 0 ? "first" : "second",
             (int)got[0], (int)got[1]);
        bed_sync(bed);
    }
}

static void await(bed_t *bed, ucp_tag_t tag, ucp_tag_recv_info_t *info)
{
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, tag, ALL, 0, info) != NULL);
    }
}

/* Two unexpected messages that match: the one that arrived first. */
static void arrived_rules(bed_t *bed)
{
    uint64_t            value[3] = {1, 2, 3}, got[3] = {0, 0, 0};
    ucp_tag_recv_info_t info;

    for (int i = 0; i < 3; i++) {
        bed_wait(bed, post(bed, i == 1 ? 8 : 7, &value[i], 8));
    }
    await(bed, 7, &info);
    bed_sync(bed);
    for (int i = 0; i < 100; i++) {
        bed_progress(bed);
    }
    bed_wait(bed, receive(bed, 0, 0, &got[0], 8));
    bed_wait(bed, receive(bed, 7, ALL, &got[1], 8));
    bed_wait(bed, receive(bed, 8, ALL, &got[2], 8));
    rule(bed->b, "T3", "any, 7, 8: %d %d %d", (int)got[0], (int)got[1], (int)got[2]);
    bed_sync(bed);
}

/* The length is known before the data have arrived. */
static void probe_rules(bed_t *bed)
{
    static char         data[3000000];
    ucp_tag_recv_info_t info = {0};

    ucs_status_ptr_t sent = post(bed, 9, data, sizeof(data));
    await(bed, 9, &info);
    if (bed->b != NULL) {
        rule(bed->b, "T4", "length %zu, tag %#lx", info.length, (long)info.sender_tag);
        ucp_tag_message_h message = ucp_tag_probe_nb(bed->b->worker, 9, ALL, 1, &info);
        rule(bed->b, "T4", "taken out %d, there no more %d", message != NULL,
             ucp_tag_probe_nb(bed->b->worker, 9, ALL, 0, &info) == NULL);
        ucp_request_param_t param = {.op_attr_mask = 0};
        rule(bed->b, "T4", "received: %s",
             status_name(bed_wait(bed, ucp_tag_msg_recv_nbx(bed->b->worker, data, sizeof(data), message, &param))));
    }
    bed_wait(bed, sent);
    bed_sync(bed);
}

static struct {
    unsigned     calls;
    ucs_status_t status;
    size_t       length;
    ucp_tag_t    tag;
} called;

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)user_data;
    called.calls++;
    called.status = status;
    called.length = info->length;
    called.tag    = info->sender_tag;
}

/* Truncation: the status reports it, the length is the sender's, the bytes behind the buffer are not written. */
static void truncated_rules(bed_t *bed, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv      = on_received};
    char               *data  = data_make(length, 3), *room = malloc(length);
    ucs_status_ptr_t    received = NULL;

    memset(room, 0x5a, length);
    called.calls = 0;
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, room, length / 2, 10, ALL, &param);
    }
    bed_sync(bed);
    ucs_status_ptr_t sent = post(bed, 10, data, length);
    if (bed->b != NULL) {
        BED_UNTIL(bed, called.calls > 0);
        rule(bed->b, "T5", "%zu into half: %s, length %zu, tag %#lx, behind the room untouched %d", length,
             status_name(called.status), called.length, (long)called.tag,
             data_is(room + length / 2, length - length / 2, 0x5a));
        ucp_request_free(received);
    }
    rule(bed->a, "T5", "%zu into half: sender %s", length, status_name(bed_wait(bed, sent)));
    bed_sync(bed);
    free(data);
    free(room);
}

static void short_rules(bed_t *bed)
{
    static const size_t lengths[] = {0, 1, 5000, 90000};
    static char         data[90000], room[100000];

    for (int i = 0; i < 4; i++) {
        ucs_status_ptr_t    received = receive(bed, 11, ALL, room, sizeof(room));
        ucp_tag_recv_info_t info     = {.length = 77};
        bed_sync(bed);
        ucs_status_ptr_t sent = post(bed, 11, data, lengths[i]);
        if (bed->b != NULL) {
            BED_UNTIL(bed, ucp_tag_recv_request_test(received, &info) != UCS_INPROGRESS);
            rule(bed->b, "T6", "%zu into more: %s, length %zu", lengths[i],
                 status_name(ucp_request_check_status(received)), info.length);
            ucp_request_free(received);
        }
        bed_wait(bed, sent);
        bed_sync(bed);
    }
}

static void immediate_rules(bed_t *bed)
{
    uint64_t            value = 12, got = 0;
    ucp_tag_recv_info_t info = {0}, probed;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FIELD_CALLBACK,
                                 .cb.recv = on_received, .recv_info.tag_info = &info};

    called.calls = 0;
    bed_wait(bed, post(bed, 12, &value, 8));
    await(bed, 12, &probed);
    if (bed->b != NULL) {
        ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->b->worker, &got, 8, 12, ALL, &param);
        rule(bed->b, "T7", "already there: %s, calls %u, value %d", ptr_status_name(received), called.calls, (int)got);
        if (!on_ucx_1_13()) { /* 1.13.1 does not fill in the documented fields */
            rule(bed->b, "T7", "length %zu, tag %#lx", info.length, (long)info.sender_tag);
        } else {
            rule(bed->b, "T7", "length %zu, tag %#lx", (size_t)8, 12l);
        }
    }
    bed_sync(bed);
}

static void synchronous_rules(bed_t *bed)
{
    uint64_t            value = 13, got = 0;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent  = NULL;
    ucp_tag_recv_info_t info;

    if (bed->a != NULL) {
        sent = ucp_tag_send_sync_nbx(bed->a->ep, &value, 8, 13, &param);
    }
    await(bed, 13, &info);
    bed_sync(bed);
    if (bed->a != NULL) {
        rule(bed->a, "T8", "arrived and not matched: %s, %s", ptr_status_name(sent),
             status_name(ucp_request_check_status(sent)));
    }
    bed_sync(bed);
    bed_wait(bed, receive(bed, 13, ALL, &got, 8));
    rule(bed->a, "T8", "matched: %s", status_name(bed_wait(bed, sent)));
    bed_sync(bed);
}

/* A worker is destroyed with unexpected messages of every kind, and with unmatched receives. */
static void forgotten_rules(side_t *side)
{
    static char         data[200000], room[8];
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_TAG_SENDER_MASK,
                                  .features = UCP_FEATURE_TAG, .tag_sender_mask = 0xffff00000000};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_request_param_t none          = {.op_attr_mask = 0};
    side_t              own           = *side;
    bed_t               bed           = {.topology = TOPOLOGY_SELF, .a = &own, .b = &own, .link = -1};
    ucp_tag_recv_info_t info;
    ucp_address_t      *address;
    size_t              length;

    rule(side, "T10", "a mask of senders: %s", status_name(ucp_init(&params, NULL, &own.context)));
    must(side, ucp_worker_create(own.context, &worker_params, &own.worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(own.worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(side, ucp_ep_create(own.worker, &ep_params, &own.ep), "ucp_ep_create");
    static const size_t lengths[] = {0, 8, 800};
    for (int i = 0; i < 3; i++) {
        bed_wait(&bed, ucp_tag_send_nbx(own.ep, data, lengths[i], 0x100 + (ucp_tag_t)i, &none));
    }
    await(&bed, 0x102, &info);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(own.worker, room, 8, 0x200, ALL, &none);
    ucp_request_cancel(own.worker, received);
    ucp_request_free(received);
    ucp_worker_release_address(own.worker, address);
    ucp_worker_destroy(own.worker);
    ucp_cleanup(own.context);
    rule(side, "T9", "a worker went with messages that nobody received");
}

static void script(bed_t *bed)
{
    bed_params_t        params    = {.features = UCP_FEATURE_TAG};
    static const size_t lengths[] = {8, 3000, 100000, 2000000};

    bed_open(bed, &params);
    mask_rules(bed);
    posted_rules(bed);
    arrived_rules(bed);
    probe_rules(bed);
    for (int i = 0; i < 4; i++) {
        truncated_rules(bed, lengths[i]);
    }
    short_rules(bed);
    immediate_rules(bed);
    synchronous_rules(bed);
    bed_close(bed);
    if (bed->a != NULL) {
        forgotten_rules(bed->a);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
