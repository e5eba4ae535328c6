/* Active messages, rule by rule (rules.txt 2.7, A1 to A11). */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

enum { ID = 1, ID_PERSISTENT = 2, ID_OLD = 3, ID_OLD_PERSISTENT = 4, ID_LAST = 65535, ID_NOBODY = 900 };

#define EAGER     2000
#define LONG      300000
#define ALIGNMENT 512

/* The handler's action for its message, and its record. */
typedef struct {
    ucp_worker_h     worker;
    ucs_status_t     answer;
    void             (*inside)(void *descriptor, size_t length); /* called by the handler */
    volatile unsigned calls;
    uint64_t         attr;
    size_t           header_length, length;
    char             header[64];
    int              aligned;
    const char      *verdict; /* of data that arrived with the message */
    ucp_ep_h         reply_ep;
    void            *descriptor;
    char            *buffer;
    ucs_status_ptr_t first, second;
    size_t           got;
} handled_t;

static handled_t handled;

static void seen(const void *header, size_t header_length, void *data, size_t length, int here)
{
    handled.header_length = header_length;
    if (header_length > 0) {
        memcpy(handled.header, header, header_length < sizeof(handled.header) ? header_length : sizeof(handled.header));
    }
    handled.length     = length;
    handled.descriptor = data;
    handled.aligned    = (uintptr_t)data % ALIGNMENT == 0;
    handled.verdict    = here ? data_check(data, length, 4) : "not here";
    handled.calls++;
    if (handled.inside != NULL) {
        handled.inside(data, length);
    }
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg;
    handled.attr     = param->recv_attr;
    handled.reply_ep = param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? param->reply_ep : NULL;
    seen(header, header_length, data, length, !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV));
    return handled.answer;
}

static ucs_status_t on_old(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    (void)arg;
    handled.attr     = flags;
    handled.reply_ep = reply_ep;
    seen(NULL, 0, data, length, 1);
    return handled.answer;
}

static ucs_status_t set(side_t *side, uint64_t mask, unsigned id, uint32_t flags, ucp_am_recv_callback_t cb)
{
    ucp_am_handler_param_t param = {.field_mask = mask, .id = id, .flags = flags, .cb = cb};

    return ucp_worker_set_am_recv_handler(side->worker, &param);
}

#define ID_CB       (UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB)
#define ID_CB_FLAGS (ID_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS)

static void handled_reset(ucs_status_t answer, void (*inside)(void *, size_t))
{
    ucp_worker_h worker = handled.worker;

    free(handled.buffer);
    memset(&handled, 0, sizeof(handled));
    handled.worker = worker;
    handled.answer = answer;
    handled.inside = inside;
    handled.buffer = calloc(1, LONG);
}

static char source[LONG];

static ucs_status_ptr_t post(bed_t *bed, unsigned id, const char *header, size_t length, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    if (bed->a == NULL) {
        return NULL;
    }
    data_fill(source, length, 4);
    return ucp_am_send_nbx(bed->a->ep, id, header, header == NULL ? 0 : strlen(header), source, length, &param);
}

/* A sends one message to `id` and B handles it; returns the result of the send. */
static ucs_status_ptr_t message(bed_t *bed, unsigned id, const char *header, size_t length, uint32_t flags)
{
    bed_sync(bed);
    ucs_status_ptr_t sent = post(bed, id, header, length, flags);
    if (bed->b != NULL) {
        BED_UNTIL(bed, handled.calls > 0);
    }
    return sent;
}

static void ended(bed_t *bed, const char *name, const char *what, ucs_status_ptr_t sent)
{
    ucs_status_t status = bed_wait(bed, sent);

    rule(bed->a, name, "%s: sender %s", what, status_name(status));
    bed_sync(bed);
}

static void handler_rules(bed_t *bed)
{
    side_t *side = bed->b;

    if (side != NULL) {
        rule(side, "A1", "no id: %s", status_name(set(side, UCP_AM_HANDLER_PARAM_FIELD_CB, ID, 0, on_message)));
        rule(side, "A1", "no cb: %s", status_name(set(side, UCP_AM_HANDLER_PARAM_FIELD_ID, ID, 0, on_message)));
        rule(side, "A1", "last id: %s", status_name(set(side, ID_CB, ID_LAST, 0, on_message)));
        /* 65536 does not crash 1.13.1 and 1.22, which allocate for it; no message can carry it */
        rule(side, "A1", "flags unknown: %s", status_name(set(side, ID_CB_FLAGS, ID, 1u << 15, on_message)));
        rule(side, "A1", "whole: %s", status_name(set(side, ID_CB_FLAGS, ID, UCP_AM_FLAG_WHOLE_MSG, on_message)));
        must(side, set(side, ID_CB_FLAGS, ID_PERSISTENT, UCP_AM_FLAG_PERSISTENT_DATA, on_message), "persistent");
        must(side, ucp_worker_set_am_handler(side->worker, ID_OLD, on_old, NULL, 0), "old");
        must(side, ucp_worker_set_am_handler(side->worker, ID_OLD_PERSISTENT, on_old, NULL,
                                             UCP_AM_FLAG_PERSISTENT_DATA), "old");
    }
    handled_reset(UCS_OK, NULL);
    ended(bed, "A1", "to the last id", message(bed, ID_LAST, "head", EAGER, UCP_AM_SEND_FLAG_EAGER));
    rule(side, "A1", "arrived: header %.4s, %zu bytes %s", handled.header, handled.length, handled.verdict);
    if (side != NULL) {
        rule(side, "A1", "cleared: %s", status_name(set(side, ID_CB, ID_LAST, 0, NULL)));
    }
    handled_reset(UCS_OK, NULL);
    bed_sync(bed);
    ended(bed, "A1", "to a cleared id", post(bed, ID_LAST, NULL, EAGER, UCP_AM_SEND_FLAG_EAGER));
    bed_wait(bed, message(bed, ID, NULL, 8, 0));
    rule(side, "A1", "only the next one arrived: calls %u, %zu bytes", handled.calls, handled.length);
}

static void unknown_rules(bed_t *bed)
{
    handled_reset(UCS_OK, NULL);
    bed_sync(bed);
    ended(bed, "A2", "unknown id, eager", post(bed, ID_NOBODY, "head", EAGER, UCP_AM_SEND_FLAG_EAGER));
    ended(bed, "A2", "unknown id, rendezvous", post(bed, ID_NOBODY, "head", LONG, UCP_AM_SEND_FLAG_RNDV));
    ended(bed, "A2", "unknown id above all, rendezvous", post(bed, 65000, "head", LONG, UCP_AM_SEND_FLAG_RNDV));
    bed_wait(bed, message(bed, ID, "next", 8, 0));
    rule(bed->b, "A2", "the next one arrives: calls %u, header %.4s", handled.calls, handled.header);
}

static size_t max_header(side_t *side)
{
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};

    must(side, ucp_worker_query(side->worker, &attr), "ucp_worker_query");
    return attr.max_am_header;
}

static size_t max_header_without_am(side_t *side)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    side_t              other         = *side;

    must(side, ucp_init(&params, NULL, &other.context), "ucp_init");
    must(side, ucp_worker_create(other.context, &worker_params, &other.worker), "ucp_worker_create");
    size_t max = max_header(&other);
    ucp_worker_destroy(other.worker);
    ucp_cleanup(other.context);
    return max;
}

static void header_rules(bed_t *bed)
{
    static const departure_t too_long = {
        .name = "A3", .why = "UCX looks at the length of the header only in builds with parameter checks",
        .on_rucp = "INVALID_PARAM"};

    handled_reset(UCS_OK, NULL);
    ended(bed, "A3", "with header", message(bed, ID, "a header", EAGER, 0));
    rule(bed->b, "A3", "header %zu %.8s, data %zu %s", handled.header_length, handled.header, handled.length,
         handled.verdict);
    handled_reset(UCS_OK, NULL);
    ended(bed, "A3", "without header", message(bed, ID, NULL, EAGER, 0));
    rule(bed->b, "A3", "header %zu, data %zu %s", handled.header_length, handled.length, handled.verdict);
    handled_reset(UCS_OK, NULL);
    ended(bed, "A3", "only a header", message(bed, ID, "only", 0, 0));
    rule(bed->b, "A3", "header %zu %.4s, data %zu", handled.header_length, handled.header, handled.length);
    if (bed->a != NULL) {
        size_t max    = max_header(bed->a);
        char  *header = calloc(1, max + 1);
        ucp_request_param_t param = {.op_attr_mask = 0};
        rule(bed->a, "A3", "max_am_header of thousands: %d", max > 4000);
        rule(bed->a, "A3", "max_am_header without the feature: %zu", max_header_without_am(bed->a));
        rule_departs(bed->a, &too_long, !on_rucp() ? "" : ptr_status_name(
            ucp_am_send_nbx(bed->a->ep, ID, header, max + 1, NULL, 0, &param)));
        free(header);
    }
}

static void release_inside(void *descriptor, size_t length)
{
    (void)length;
    ucp_am_data_release(handled.worker, descriptor);
}

/* Kept data stay valid while other messages arrive. */
static void kept_rules(bed_t *bed, unsigned id, size_t length)
{
    handled_reset(UCS_INPROGRESS, NULL);
    ended(bed, "A4", "kept", message(bed, id, id == ID_PERSISTENT ? "head" : NULL, length, UCP_AM_SEND_FLAG_EAGER));
    handled_t kept = handled;
    handled.buffer = NULL;
    rule(bed->b, "A4", "kept %zu of %u: can be kept %d", length, id,
         (kept.attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 || (kept.attr & UCP_CB_PARAM_FLAG_DATA) != 0);
    for (int i = 0; i < 50; i++) {
        handled_reset(UCS_OK, NULL);
        bed_wait(bed, message(bed, ID, NULL, EAGER, UCP_AM_SEND_FLAG_EAGER));
    }
    if (bed->b != NULL) {
        rule(bed->b, "A4", "still there after others: %s", data_check(kept.descriptor, kept.length, 4));
        ucp_am_data_release(bed->b->worker, kept.descriptor);
    }
    free(kept.buffer);
    bed_sync(bed);
}

static void persistent_rules(bed_t *bed)
{
    static const size_t lengths[] = {1, 64, 1000, EAGER, 8000, LONG};

    for (int i = 0; i < 6; i++) {
        kept_rules(bed, ID_PERSISTENT, lengths[i]);
        kept_rules(bed, ID_OLD_PERSISTENT, lengths[i]);
    }
    handled_reset(UCS_OK, NULL);
    ended(bed, "A4", "persistent, nothing", message(bed, ID_PERSISTENT, NULL, 0, UCP_AM_SEND_FLAG_EAGER));
    rule(bed->b, "A4", "nothing can be kept: %d", (handled.attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
    handled_reset(UCS_OK, NULL);
    ended(bed, "A4", "persistent, a header", message(bed, ID_PERSISTENT, "head", 0, UCP_AM_SEND_FLAG_EAGER));
    rule(bed->b, "A4", "nothing but a header can be kept: %d", (handled.attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
    handled_reset(UCS_OK, NULL);
    ended(bed, "A4", "persistent, not kept", message(bed, ID_PERSISTENT, NULL, EAGER, UCP_AM_SEND_FLAG_EAGER));
    rule(bed->b, "A4", "not kept: %s", handled.verdict);
}

static void rendezvous_rules(bed_t *bed)
{
    handled_reset(UCS_OK, NULL);
    ended(bed, "A5", "dropped", message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV));
    rule(bed->b, "A5", "by rendezvous %d, length %zu", (handled.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
         handled.length);
    handled_reset(UCS_ERR_REJECTED, NULL);
    ended(bed, "A5", "refused", message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV));
    handled_reset(UCS_ERR_IO_ERROR, NULL);
    ended(bed, "A5", "refused, short", message(bed, ID, "head", 8, UCP_AM_SEND_FLAG_RNDV));
    handled_reset(UCS_INPROGRESS, NULL);
    ucs_status_ptr_t sent = message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV);
    bed_sync(bed);
    for (int i = 0; i < 200; i++) {
        bed_progress(bed);
    }
    rule(bed->a, "A5", "kept: the sender waits %d",
         UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS);
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_am_data_release(bed->b->worker, handled.descriptor);
    }
    ended(bed, "A5", "kept and released", sent);
}

static void receive_twice(void *descriptor, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO, .recv_info.length = &handled.got};

    handled.first  = ucp_am_recv_data_nbx(handled.worker, descriptor, handled.buffer, length, &param);
    handled.second = ucp_am_recv_data_nbx(handled.worker, descriptor, handled.buffer, length, &param);
}

static void receive_once(void *descriptor, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO, .recv_info.length = &handled.got};

    handled.first = ucp_am_recv_data_nbx(handled.worker, descriptor, handled.buffer, length, &param);
}

static void receive_nothing(void *descriptor, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    (void)length;
    handled.first = ucp_am_recv_data_nbx(handled.worker, descriptor, NULL, 0, &param);
}

static void received(bed_t *bed, const char *what, ucs_status_ptr_t sent)
{
    if (bed->b != NULL) {
        ucs_status_t status  = bed_wait(bed, handled.first);
        rule(bed->b, "A6", "%s: %s, %s", what, status_name(status), data_check(handled.buffer, handled.length, 4));
        if (handled.length == EAGER) { /* completes at once everywhere */
            rule(bed->b, "A6", "%s: length %zu", what, handled.got);
        }
    }
    ended(bed, "A6", what, sent);
}

static void receive_rules(bed_t *bed)
{
    handled_reset(UCS_INPROGRESS, receive_twice);
    ucs_status_ptr_t sent = message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV);
    rule(bed->b, "A6", "a second receive inside of the handler: %s", ptr_status_name(handled.second));
    received(bed, "received inside", sent);

    handled_reset(UCS_INPROGRESS, NULL);
    sent = message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV);
    if (bed->b != NULL) {
        receive_once(handled.descriptor, LONG);
    }
    received(bed, "received later", sent);

    handled_reset(UCS_INPROGRESS, receive_nothing);
    sent = message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV);
    rule(bed->b, "A6", "count 0 inside: %s", ptr_status_name(handled.first));
    ended(bed, "A6", "count 0 inside", sent);

    handled_reset(UCS_INPROGRESS, NULL);
    sent = message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV);
    if (bed->b != NULL) {
        receive_nothing(handled.descriptor, 0);
        rule(bed->b, "A6", "count 0 later: %s", ptr_status_name(handled.first));
    }
    ended(bed, "A6", "count 0 later", sent);

    handled_reset(UCS_INPROGRESS, release_inside);
    ended(bed, "A5", "released inside", message(bed, ID, "head", LONG, UCP_AM_SEND_FLAG_RNDV));
}

/* Data that have arrived already. */
static void receive_eager_rules(bed_t *bed)
{
    handled_reset(UCS_INPROGRESS, receive_once);
    ucs_status_ptr_t sent = message(bed, ID_PERSISTENT, "head", EAGER, UCP_AM_SEND_FLAG_EAGER);
    received(bed, "eager, received inside", sent);

    handled_reset(UCS_INPROGRESS, NULL);
    sent = message(bed, ID_PERSISTENT, "head", EAGER, UCP_AM_SEND_FLAG_EAGER);
    if (bed->b != NULL) {
        receive_once(handled.descriptor, EAGER);
        rule(bed->b, "A6", "eager, later: %s", ptr_status_name(handled.first));
    }
    received(bed, "eager, received later", sent);
}

static void reply_rules(bed_t *bed)
{
    static const size_t lengths[] = {8, EAGER, LONG};

    for (int i = 0; i < 3; i++) {
        handled_reset(UCS_OK, NULL);
        ended(bed, "A7", "asks for an answer", message(bed, ID, "head", lengths[i], UCP_AM_SEND_FLAG_REPLY));
        rule(bed->b, "A7", "%zu: an endpoint comes along %d", lengths[i],
             (handled.attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 && handled.reply_ep != NULL);
        handled_reset(UCS_OK, NULL);
        ended(bed, "A7", "asks for none", message(bed, ID, "head", lengths[i], 0));
        rule(bed->b, "A7", "%zu: none %d", lengths[i], (handled.attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0);
    }
}

static void protocol_rules(bed_t *bed)
{
    static const size_t lengths[] = {0, 8, EAGER, 20000, LONG};
    unsigned            aligned   = 0; /* a bit for each length */

    for (int i = 0; i < 5; i++) {
        handled_reset(UCS_OK, NULL);
        ended(bed, "A8", "eager", message(bed, ID, "head", lengths[i], UCP_AM_SEND_FLAG_EAGER));
        rule(bed->b, "A8", "%zu eager: %d, %s", lengths[i], (handled.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0,
             handled.verdict);
        if (handled.attr & UCP_AM_RECV_ATTR_FLAG_DATA) {
            aligned |= handled.aligned ? 1u << i : 0;
        } else if (on_rucp()) { /* UCX aligns only data that can be kept */
            aligned |= handled.aligned || lengths[i] == 0 ? 1u << i : 0;
        } else {
            aligned |= 1u << i;
        }
        handled_reset(UCS_OK, NULL);
        ended(bed, "A8", "rendezvous", message(bed, ID, "head", lengths[i], UCP_AM_SEND_FLAG_RNDV));
        rule(bed->b, "A8", "%zu rendezvous: %d", lengths[i], (handled.attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
    }
    rule(bed->b, "A9", "eager data aligned: %#x", aligned);
    handled_reset(UCS_OK, NULL);
    ended(bed, "A9", "persistent", message(bed, ID_PERSISTENT, "head", EAGER, UCP_AM_SEND_FLAG_EAGER));
    rule(bed->b, "A9", "persistent: aligned %d", handled.aligned);
}

static void copy_header_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 14
    static const size_t lengths[] = {8, EAGER, LONG};

    for (int i = 0; i < 3; i++) {
        char header[32] = "as it was";
        handled_reset(UCS_OK, NULL);
        bed_sync(bed);
        ucs_status_ptr_t sent = post(bed, ID, header, lengths[i], UCP_AM_SEND_FLAG_COPY_HEADER);
        memset(header, 'x', sizeof(header));
        if (bed->b != NULL) {
            BED_UNTIL(bed, handled.calls > 0);
        }
        ended(bed, "A8", "copied header", sent);
        rule(bed->b, "A8", "copied header: %.9s", handled.header);
    }
#else
    (void)bed;
#endif
}

static void on_sent(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static void old_rules(bed_t *bed)
{
    static const size_t lengths[] = {0, 8, EAGER, 20000, LONG};

    for (int i = 0; i < 10; i++) {
        size_t   length = lengths[i / 2];
        unsigned flags  = i % 2 == 0 ? 0 : UCP_AM_SEND_FLAG_REPLY;
        handled_reset(UCS_OK, NULL);
        data_fill(source, length, 4);
        bed_sync(bed);
        ucs_status_ptr_t sent = bed->a == NULL ? NULL : ucp_am_send_nb(bed->a->ep, ID_OLD, source, length,
                                                                       ucp_dt_make_contig(1), on_sent, flags);
        if (bed->b != NULL) {
            BED_UNTIL(bed, handled.calls > 0);
        }
        ended(bed, "A10", "old", sent);
        rule(bed->b, "A10", "old %zu: %zu, %s, answer %d", length, handled.length, handled.verdict,
             handled.reply_ep != NULL);
    }
    handled_reset(UCS_OK, NULL);
    bed_sync(bed);
    ended(bed, "A10", "header for an old handler", post(bed, ID_OLD, "head", EAGER, UCP_AM_SEND_FLAG_EAGER));
    bed_wait(bed, message(bed, ID, "next", 8, 0));
    rule(bed->b, "A10", "dropped: calls %u, header %.4s", handled.calls, handled.header);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_AM, .am_alignment = ALIGNMENT};

    bed_open(bed, &params);
    handled.worker = bed->b != NULL ? bed->b->worker : bed->a->worker;
    handler_rules(bed);
    unknown_rules(bed);
    header_rules(bed);
    persistent_rules(bed);
    rendezvous_rules(bed);
    receive_rules(bed);
    receive_eager_rules(bed);
    reply_rules(bed);
    protocol_rules(bed);
    copy_header_rules(bed);
    old_rules(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
