/* Endpoints: creation, pairing, queries, flush and the ways to close. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char address_of_a[BED_ADDRESS_MAX], address_of_b[BED_ADDRESS_MAX];

static void on_done(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

/* One message over `ep` of A (or its counterpart), after which the endpoints are connected. */
static void exchange(bed_t *bed, ucp_ep_h ep, ucp_tag_t tag)
{
    uint64_t            value = tag * 3, got = 0;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent = NULL, received = NULL;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, &got, sizeof(got), tag, -1, &param);
    }
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(ep, &value, sizeof(value), tag, &param);
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        fact(bed->b, "message %#lx: %s, good %d", (long)tag, status_name(status), got == tag * 3);
    }
    if (bed->a != NULL) {
        fact(bed->a, "message %#lx: %s", (long)tag, status_name(bed_wait(bed, sent)));
    }
}

static void query_facts(side_t *side)
{
    ucp_ep_attr_t attr;

    memset(&attr, 0, sizeof(attr));
    attr.field_mask     = UCP_EP_ATTR_FIELD_NAME;
    ucs_status_t status = ucp_ep_query(side->ep, &attr);
    rule(side, "E11", "query name: %s, named %d", status_name(status), attr.name[0] != '\0');
    attr.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR;
    rule(side, "E11", "query local address: %s", status_name(ucp_ep_query(side->ep, &attr)));
    attr.field_mask = UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    rule(side, "E11", "query remote address: %s", status_name(ucp_ep_query(side->ep, &attr)));
    memset(&attr, 0xa5, sizeof(attr));
    attr.field_mask = 0;
    status          = ucp_ep_query(side->ep, &attr);
    rule(side, "E11", "query of nothing: %s, untouched %d", status_name(status),
         data_is((char *)&attr + sizeof(attr.field_mask), sizeof(attr) - sizeof(attr.field_mask), 0xa5));
}

static void perf_facts(side_t *side)
{
    ucp_ep_evaluate_perf_param_t param = {.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE, .message_size = 8};
    ucp_ep_evaluate_perf_attr_t  attr  = {.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME};

    ucs_status_t status = ucp_ep_evaluate_perf(side->ep, &param, &attr);
    double       small  = attr.estimated_time;
    param.message_size  = 64 << 20;
    rule(side, "E12", "evaluate_perf: %s %s", status_name(status),
         status_name(ucp_ep_evaluate_perf(side->ep, &param, &attr)));
    rule(side, "E12", "positive %d, more for more %d", small > 0, attr.estimated_time > small);
}

#if UCP_API_MINOR >= 18
static void user_data_facts(side_t *side, const void *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_USER_DATA,
                              .address = address, .user_data = side};
    ucp_ep_attr_t   attr   = {.field_mask = UCP_EP_ATTR_FIELD_USER_DATA};
    ucp_ep_h        ep;

    ucs_status_t status = ucp_ep_query(side->ep, &attr);
    rule(side, "E5", "user data not given: %s, NULL %d", status_name(status), attr.user_data == NULL);
    must(side, ucp_ep_create(side->worker, &params, &ep), "ucp_ep_create");
    status = ucp_ep_query(ep, &attr);
    rule(side, "E5", "user data: %s, ours %d", status_name(status), attr.user_data == (void *)side);
    ucp_ep_destroy(ep);
}

static void transport_facts(side_t *side)
{
    ucp_transport_entry_t entries[16];
    ucp_ep_attr_t         attr = {
        .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
        .transports = {.entries = entries, .num_entries = 16, .entry_size = sizeof(entries[0])},
    };
    int named = 1;

    ucs_status_t status = ucp_ep_query(side->ep, &attr);
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        named = named && entries[i].transport_name[0] != '\0' && entries[i].device_name != NULL;
    }
    rule(side, "E11", "transports: %s, some %d, named %d", status_name(status), attr.transports.num_entries > 0, named);
    attr.transports.num_entries = 0;
    status                      = ucp_ep_query(side->ep, &attr);
    rule(side, "E11", "transports into nothing: %s, %u", status_name(status), attr.transports.num_entries);
}
#endif

static void print_facts(side_t *side)
{
    char  *text = NULL;
    size_t length;
    FILE  *stream = open_memstream(&text, &length);

    ucp_ep_print_info(side->ep, stream);
    fclose(stream);
    rule(side, "E13", "print_info begins '%.1s', ends in a newline: %d", text, length > 0 && text[length - 1] == '\n');
    free(text);
}

static void flush_facts(bed_t *bed, side_t *side)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    rule(side, "E10", "flush_nbx: %s", status_name(bed_wait(bed, ucp_ep_flush_nbx(side->ep, &param))));
    rule(side, "E10", "flush_nb: %s", status_name(bed_wait(bed, ucp_ep_flush_nb(side->ep, 0, on_done))));
    rule(side, "E10", "flush: %s", status_name(ucp_ep_flush(side->ep)));
}

static void create_facts(side_t *side)
{
    ucp_ep_params_t params = {.field_mask = 0};
    ucp_ep_h        ep;

    rule(side, "E1", "create to nowhere: %s", status_name(ucp_ep_create(side->worker, &params, &ep)));
}

/* Several endpoints between the same workers, used and closed in turn, in each of the ways. */
static void close_facts(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_ep_h            eps[5] = {NULL};

    for (int i = 0; i < 5; i++) {
        if (bed->a != NULL) {
            eps[i] = bed_connect(bed->a, address_of_b);
        }
        exchange(bed, eps[i], 0x100 + (ucp_tag_t)i);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        rule(bed->a, "E7", "close_nbx: %s", status_name(bed_wait(bed, ucp_ep_close_nbx(eps[0], &param))));
        rule(bed->a, "E7", "close_nb: %s",
             status_name(bed_wait(bed, ucp_ep_close_nb(eps[1], UCP_EP_CLOSE_MODE_FLUSH))));
        rule(bed->a, "E7", "disconnect_nb: %s", status_name(bed_wait(bed, ucp_disconnect_nb(eps[2]))));
        if (bed->topology != TOPOLOGY_PAIR) {
            ucp_ep_destroy(eps[3]);
        } else {
            bed_disconnect(bed, eps[3]); /* ucp_ep_destroy() progresses one worker only */
        }
        rule(bed->a, "E7", "close_nbx without parameters: %s",
             status_name(bed_wait(bed, ucp_ep_close_nbx(eps[4], &param))));
    }
    bed_sync(bed);
    exchange(bed, bed->a != NULL ? bed->a->ep : NULL, 0x200);
}

/* Forced closing is for endpoints that handle errors; these do not. */
static void force_facts(side_t *side)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    rule(side, "E8", "forced close: %s", ptr_status_name(ucp_ep_close_nbx(side->ep, &param)));
}

/* A sends and closes at once: closing flushes, so the messages arrive. */
static void close_behind_facts(bed_t *bed, size_t size)
{
    enum { MESSAGES = 20 };
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent[MESSAGES], received[MESSAGES], closed = NULL;
    char               *out = data_make(size, 9), *in = malloc(size * MESSAGES);
    int                 good = 0;

    for (int i = 0; bed->b != NULL && i < MESSAGES; i++) {
        received[i] = ucp_tag_recv_nbx(bed->b->worker, in + size * (size_t)i, size, 0x300, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_ep_h ep = bed_connect(bed->a, address_of_b);
        for (int i = 0; i < MESSAGES; i++) {
            sent[i] = ucp_tag_send_nbx(ep, out, size, 0x300, &param);
        }
        closed = ucp_ep_close_nbx(ep, &param);
    }
    for (int i = 0; bed->b != NULL && i < MESSAGES; i++) {
        good += bed_wait(bed, received[i]) == UCS_OK && data_check(in + size * (size_t)i, size, 9)[0] == 'g';
    }
    rule(bed->b, "E7", "received %zu: %d good", size, good);
    good = 0;
    for (int i = 0; bed->a != NULL && i < MESSAGES; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK;
    }
    rule(bed->a, "E7", "close behind %zu: %s, sent %d", size, status_name(bed_wait(bed, closed)), good);
    free(out);
    free(in);
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    side_t *sides[] = {bed->a, bed->b};
    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            create_facts(sides[i]);
            query_facts(sides[i]);
            flush_facts(bed, sides[i]);
        }
    }
    exchange(bed, bed->a != NULL ? bed->a->ep : NULL, 0x10);
    bed_sync(bed);
    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            query_facts(sides[i]);
            perf_facts(sides[i]);
            print_facts(sides[i]);
            flush_facts(bed, sides[i]);
            force_facts(sides[i]);
        }
    }
#if UCP_API_MINOR >= 18
    if (bed->a != NULL) {
        user_data_facts(bed->a, address_of_b);
        transport_facts(bed->a);
    }
    bed_sync(bed);
#endif
    close_facts(bed);
    close_behind_facts(bed, 8);
    if (bed->topology != TOPOLOGY_SELF) { /* UCX crashes when it closes on its own long messages */
        close_behind_facts(bed, 8000);
        close_behind_facts(bed, 200000);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
