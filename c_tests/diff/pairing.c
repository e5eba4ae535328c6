/* Pairing of endpoints: replies before the other side has connected, many endpoints between two workers, loopback. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

enum { AM_ID = 1, MANY = 100 };

static char address_of_a[BED_ADDRESS_MAX], address_of_b[BED_ADDRESS_MAX];

static volatile unsigned calls;
static ucp_ep_h          reply_ep;
static uint64_t          header_seen;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header_length, (void)data, (void)length;
    memcpy(&header_seen, header, sizeof(header_seen));
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        reply_ep = param->reply_ep;
    }
    calls++;
    return UCS_OK;
}

static void listen_to(side_t *side)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                    .id = AM_ID, .cb = on_message};

    if (side != NULL) {
        must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "set handler");
    }
}

/* From one side to the other; `ep` is used only at the sender. */
static void message(bed_t *bed, side_t *from, side_t *to, ucp_ep_h ep, uint64_t number, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucs_status_ptr_t    sent  = NULL;

    calls = 0;
    bed_sync(bed);
    if (from != NULL) {
        sent = ucp_am_send_nbx(ep, AM_ID, &number, sizeof(number), NULL, 0, &param);
    }
    if (to != NULL) {
        BED_UNTIL(bed, calls > 0);
        rule(to, "E3", "message %d", (int)header_seen);
    }
    rule(from, "E3", "sent %d: %s", (int)number, status_name(bed_wait(bed, sent)));
    bed_sync(bed);
}

/* The lanes of an endpoint to a worker that connected first: its address may have contained only its id. */
static void transport_facts(side_t *side)
{
#if UCP_API_MINOR >= 18
    ucp_transport_entry_t        entries[16];
    ucp_ep_attr_t                attr = {
        .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
        .transports = {.entries = entries, .num_entries = 16, .entry_size = sizeof(entries[0])},
    };
    ucp_ep_evaluate_perf_param_t param = {.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE, .message_size = 8};
    ucp_ep_evaluate_perf_attr_t  perf  = {.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME};
    int                          named = 1;

    ucs_status_t status = ucp_ep_query(side->ep, &attr);
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        named = named && entries[i].transport_name[0] != '\0' && entries[i].device_name[0] != '\0';
    }
    rule(side, "E11", "to the first to connect: %s, some %d, named %d", status_name(status),
         attr.transports.num_entries > 0, named);
    must(side, ucp_ep_evaluate_perf(side->ep, &param, &perf), "ucp_ep_evaluate_perf");
    double small       = perf.estimated_time;
    param.message_size = 64 << 20;
    must(side, ucp_ep_evaluate_perf(side->ep, &param, &perf), "ucp_ep_evaluate_perf");
    rule(side, "E12", "to the first to connect: more for more %d", perf.estimated_time > small);
#else
    (void)side;
#endif
}

/* A's message opens the reply endpoint before B has an endpoint; B's own endpoint then replaces it. */
static void early_reply(bed_t *bed)
{
    if (bed->a != NULL) {
        bed->a->ep = bed_connect(bed->a, address_of_b);
    }
    message(bed, bed->a, bed->b, bed->a != NULL ? bed->a->ep : NULL, 1, UCP_AM_SEND_FLAG_REPLY);
    message(bed, bed->b, bed->a, reply_ep, 2, 0);
    if (bed->b != NULL) {
        bed->b->ep = bed->topology == TOPOLOGY_SELF ? bed->a->ep : bed_connect(bed->b, address_of_a);
        transport_facts(bed->b);
    }
    message(bed, bed->b, bed->a, bed->b != NULL ? bed->b->ep : NULL, 3, UCP_AM_SEND_FLAG_REPLY);
    message(bed, bed->a, bed->b, bed->a != NULL ? bed->a->ep : NULL, 4, 0);
    message(bed, bed->a, bed->b, reply_ep, 5, 0);
}

/* More endpoints in both directions at once, each used, closed in another order. */
static void many_endpoints(bed_t *bed)
{
    ucp_ep_h            from_a[MANY], from_b[MANY];
    uint64_t            value[MANY], got[MANY];
    ucs_status_ptr_t    sent[2 * MANY], received[2 * MANY];
    ucp_request_param_t param = {.op_attr_mask = 0};
    int                 good  = 0;

    for (int i = 0; i < MANY; i++) {
        value[i]    = (uint64_t)i + 1;
        from_a[i]   = bed->a != NULL ? bed_connect(bed->a, address_of_b) : NULL;
        from_b[i]   = bed->b != NULL ? bed_connect(bed->b, address_of_a) : NULL;
        received[i] = bed->b != NULL ? ucp_tag_recv_nbx(bed->b->worker, &got[i], 8, (ucp_tag_t)i, -1, &param) : NULL;
    }
    for (int i = 0; i < MANY; i++) {
        sent[i] = bed->a != NULL ? ucp_tag_send_nbx(from_a[i], &value[i], 8, (ucp_tag_t)i, &param) : NULL;
    }
    for (int i = 0; i < MANY; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK && bed_wait(bed, received[i]) == UCS_OK &&
                (bed->b == NULL || got[i] == value[i]);
    }
    rule(bed->a, "E3", "many there: %d", good);
    rule(bed->b, "E3", "many there: %d", good);
    bed_sync(bed);
    good = 0;
    for (int i = 0; i < MANY; i++) {
        ucp_tag_t tag = (ucp_tag_t)i + 1000;
        received[i]   = bed->a != NULL ? ucp_tag_recv_nbx(bed->a->worker, &got[i], 8, tag, -1, &param) : NULL;
    }
    bed_sync(bed);
    for (int i = MANY - 1; i >= 0; i--) {
        sent[i] = bed->b != NULL ? ucp_tag_send_nbx(from_b[i], &value[i], 8, (ucp_tag_t)i + 1000, &param) : NULL;
    }
    for (int i = 0; i < MANY; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK && bed_wait(bed, received[i]) == UCS_OK;
    }
    rule(bed->a, "E3", "many back: %d", good);
    rule(bed->b, "E3", "many back: %d", good);
    bed_sync(bed);
    good = 0;
    for (int i = 0; i < MANY; i++) {
        sent[i]        = bed->a != NULL ? ucp_ep_close_nbx(from_a[i * 7 % MANY], &param) : NULL;
        sent[MANY + i] = bed->b != NULL ? ucp_ep_close_nbx(from_b[i * 3 % MANY], &param) : NULL;
    }
    for (int i = 0; i < 2 * MANY; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK;
    }
    rule(bed->a, "E3", "many closed: %d", good);
    rule(bed->b, "E3", "many closed: %d", good);
    bed_sync(bed);
}

/* Endpoints that are never used, or only flushed, cost their peers nothing. */
static void unused_endpoints(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    if (bed->a != NULL) {
        ucp_ep_h unused = bed_connect(bed->a, address_of_b), flushed = bed_connect(bed->a, address_of_b);
        rule(bed->a, "E2", "flush of an unused one: %s", status_name(bed_wait(bed, ucp_ep_flush_nbx(flushed, &param))));
        rule(bed->a, "E2", "close of an unused one: %s", status_name(bed_disconnect(bed, unused)));
        rule(bed->a, "E2", "close of a flushed one: %s", status_name(bed_disconnect(bed, flushed)));
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM};

    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    listen_to(bed->b);
    if (bed->topology != TOPOLOGY_SELF) {
        listen_to(bed->a);
    }
    bed_sync(bed);
    early_reply(bed);
    many_endpoints(bed);
    unused_endpoints(bed);
    message(bed, bed->a, bed->b, bed->a != NULL ? bed->a->ep : NULL, 6, 0);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
