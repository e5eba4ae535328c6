/*
 * The size from which on messages use rendezvous (rules.txt 2.7 and 2.5): UCX_RNDV_THRESH bytes of data and header
 * together. For active messages it is visible in the handler. For tagged messages it is at the sender: an eager send
 * completes whether or not a receive was posted, a rendezvous does not. Without a threshold (inf, -1,
 * ucp_config_modify) everything is eager, whatever its length and datatype.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "layout.h"

#include <stdlib.h>
#include <string.h>

enum { ID = 3, TAG = 7, LONGEST = 3000000, ITEMS = 30000 };

static struct {
    unsigned calls;
    int      rndv;
    size_t   header_length, length;
    void    *kept;
    char     header[256];
} got;

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static char                      room[LONGEST];

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg;
    got.calls++;
    got.rndv          = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    got.header_length = header_length;
    got.length        = length;
    got.kept          = data;
    memcpy(got.header, header, header_length);
    if (!got.rndv) {
        memcpy(room, data, length);
    }
    return got.rndv ? UCS_INPROGRESS : UCS_OK;
}

/* One active message; a rendezvous is received behind the handler, though it has no data. */
static void am_rule(bed_t *bed, const char *threshold, size_t header_length, kind_t kind, size_t length)
{
    ucs_status_ptr_t sent = NULL;
    char             header[256];
    layout_t         out;

    got.calls = 0;
    data_fill(header, sizeof(header), 5);
    memset(room, 0, length);
    bed_sync(bed);
    if (bed->a != NULL) {
        layout_make(&out, kind, length);
        layout_fill(&out, 7);
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = out.type};
        sent = ucp_am_send_nbx(bed->a->ep, ID, header, header_length, out.buffer, out.count, &param);
    }
    if (bed->b != NULL) {
        ucs_status_t status = UCS_OK;
        BED_UNTIL(bed, got.calls == 1);
        if (got.rndv) {
            status = bed_wait(bed, ucp_am_recv_data_nbx(bed->b->worker, got.kept, room, got.length, &plain));
        }
        rule(bed->b, "A12", "%s: header %zu, %zu %s: %s, %s, header %zu %s, data %zu %s", threshold, header_length,
             length, kind_names[kind], got.rndv ? "rendezvous" : "eager", status_name(status), got.header_length,
             data_check(got.header, got.header_length, 5), got.length, data_check(room, got.length, 7));
    }
    ucs_status_t status = bed_wait(bed, sent);
    if (bed->a != NULL) {
        rule(bed->a, "A12", "%s: sender %s", threshold, status_name(status));
        layout_free(&out);
    }
    bed_sync(bed);
}

/* One tagged message that is sent before the receive is posted. */
static void tag_rule(bed_t *bed, const char *threshold, kind_t kind, size_t length, int rndv)
{
    ucs_status_ptr_t sent = NULL;
    layout_t         out;

    memset(room, 0, length);
    bed_sync(bed);
    if (bed->a != NULL) {
        layout_make(&out, kind, length);
        layout_fill(&out, 7);
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = out.type};
        sent = ucp_tag_send_nbx(bed->a->ep, out.buffer, out.count, TAG, &param);
        if (!rndv && UCS_PTR_IS_PTR(sent)) {
            BED_UNTIL(bed, ucp_request_is_completed(sent));
        }
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        int waits = UCS_PTR_IS_PTR(sent) && !ucp_request_is_completed(sent);
        rule(bed->a, "T12", "%s: %zu %s: the send %s without a receive", threshold, length, kind_names[kind],
             waits ? "waits" : "ends");
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, room, length, TAG, -1, &plain));
        rule(bed->b, "T12", "%s: %zu %s: %s, %s", threshold, length, kind_names[kind], status_name(status),
             data_check(room, length, 7));
    }
    bed_wait(bed, sent);
    if (bed->a != NULL) {
        layout_free(&out);
    }
    bed_sync(bed);
}

/* Long eager messages that are longer than the receive, that a probe removes, and that match a posted receive; short
 * ones behind them stay behind them. */
static void eager_rules(bed_t *bed)
{
    static char         data[100000];
    ucs_status_ptr_t    sent[3] = {NULL}, posted = NULL;
    ucp_tag_recv_info_t info;

    data_fill(data, sizeof(data), 7);
    if (bed->b != NULL) {
        posted = ucp_tag_recv_nbx(bed->b->worker, room, LONGEST, TAG, -1, &plain);
    }
    bed_sync(bed);
    for (int i = 0; bed->a != NULL && i < 3; i++) {
        sent[i] = ucp_tag_send_nbx(bed->a->ep, data, sizeof(data) - i, TAG, &plain);
    }
    ucs_status_ptr_t behind = bed->a == NULL ? NULL : ucp_tag_send_nbx(bed->a->ep, data, 8, TAG, &plain);
    if (bed->b != NULL) {
        ucp_tag_message_h message = NULL;
        ucs_status_t      status  = bed_wait(bed, posted);
        rule(bed->b, "T12", "posted: %s, %s", status_name(status), data_check(room, sizeof(data), 7));
        status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, room, 1000, TAG, -1, &plain));
        rule(bed->b, "T12", "less room: %s", status_name(status));
        BED_UNTIL(bed, (message = ucp_tag_probe_nb(bed->b->worker, TAG, -1, 1, &info)) != NULL);
        status = bed_wait(bed, ucp_tag_msg_recv_nbx(bed->b->worker, room, LONGEST, message, &plain));
        rule(bed->b, "T12", "probed: %zu, %s, %s", info.length, status_name(status), data_check(room, info.length, 7));
        BED_UNTIL(bed, (message = ucp_tag_probe_nb(bed->b->worker, TAG, -1, 1, &info)) != NULL);
        bed_wait(bed, ucp_tag_msg_recv_nbx(bed->b->worker, room, LONGEST, message, &plain));
        rule(bed->b, "T12", "behind them: %zu", info.length);
    }
    for (int i = 0; i < 3; i++) {
        bed_wait(bed, sent[i]);
    }
    bed_wait(bed, behind);
    bed_sync(bed);
}

static void with_threshold(bed_t *bed, const char *threshold)
{
    static const size_t headers[] = {0, 0, 0, 0, 1, 1, 100, 128, 1};
    static const size_t lengths[] = {0, 1, 127, 128, 126, 127, 28, 0, 200000};
    bed_params_t        params    = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM};
    size_t              shortest  = threshold[0] == 'i' || threshold[0] == '-' ? SIZE_MAX : (size_t)atol(threshold);

    setenv("UCX_RNDV_THRESH", threshold, 1);
    bed_open(bed, &params);
    unsetenv("UCX_RNDV_THRESH");
    if (bed->b != NULL) {
        ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                          .id = ID, .cb = on_message};
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "ucp_worker_set_am_recv_handler");
    }
    for (int i = 0; i < 9; i++) {
        am_rule(bed, threshold, headers[i], CONTIG, lengths[i]);
        tag_rule(bed, threshold, CONTIG, lengths[i], lengths[i] >= shortest);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        am_rule(bed, threshold, 3, kind, ITEMS * ITEM_BYTES);
        tag_rule(bed, threshold, kind, ITEMS * ITEM_BYTES, ITEMS * ITEM_BYTES >= shortest);
    }
    tag_rule(bed, threshold, CONTIG, LONGEST, LONGEST >= shortest);
    eager_rules(bed);
    bed_close(bed);
}

/* The threshold by ucp_config_modify(), in a context of its own. */
static void modified_rules(side_t *side)
{
    static char         data[200000];
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    side_t              own           = *side;
    bed_t               bed           = {.topology = TOPOLOGY_SELF, .a = &own, .b = &own, .link = -1};
    ucp_address_t      *address;
    ucp_config_t       *config;
    size_t              length;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    must(side, ucp_config_modify(config, "RNDV_THRESH", "inf"), "ucp_config_modify");
    must(side, ucp_init(&params, config, &own.context), "ucp_init");
    ucp_config_release(config);
    must(side, ucp_worker_create(own.context, &worker_params, &own.worker), "ucp_worker_create");
    must(side, ucp_worker_get_address(own.worker, &address, &length), "ucp_worker_get_address");
    own.ep                = bed_connect(&own, address);
    ucs_status_ptr_t sent = ucp_tag_send_nbx(own.ep, data, sizeof(data), TAG, &plain);
    rule(side, "T12", "modified: the send ends without a receive: %s", status_name(bed_wait(&bed, sent)));
    bed_wait(&bed, ucp_tag_recv_nbx(own.worker, room, sizeof(data), TAG, -1, &plain));
    bed_disconnect(&bed, own.ep);
    ucp_worker_release_address(own.worker, address);
    ucp_worker_destroy(own.worker);
    ucp_cleanup(own.context);
}

static void script(bed_t *bed)
{
    static const char *const thresholds[] = {"0", "1", "128", "inf", "-1"};

    for (int i = 0; i < 5; i++) {
        with_threshold(bed, thresholds[i]);
    }
    if (bed->a != NULL) {
        modified_rules(&bed->sides[0]);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
