/* Active messages from and into scattered memory and generic datatypes; old-style sends of them. */
#define _GNU_SOURCE
#include "bed.h"
#include "layout.h"

#include <stdlib.h>
#include <string.h>

enum { ID = 2, ID_OLD = 3 };

static struct {
    ucp_worker_h     worker;
    layout_t         in;
    volatile unsigned calls;
    int              rendezvous;
    const char      *verdict; /* of data that arrived with the message */
    ucs_status_ptr_t receiving;
} receiver;

static void look_at(const void *data, size_t length)
{
    receiver.verdict = data_check(data, length, 7);
    receiver.calls++;
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    ucp_request_param_t receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = receiver.in.type};

    (void)arg, (void)header, (void)header_length;
    receiver.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (!receiver.rendezvous) {
        look_at(data, length);
        return UCS_OK;
    }
    receiver.receiving = ucp_am_recv_data_nbx(receiver.worker, data, receiver.in.buffer, receiver.in.count, &receive);
    receiver.calls++;
    return UCS_INPROGRESS;
}

static ucs_status_t on_old_message(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    (void)arg, (void)reply_ep, (void)flags;
    look_at(data, length);
    return UCS_OK;
}

static void on_sent(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static ucs_status_ptr_t post_send(side_t *side, const layout_t *out, uint32_t flags, int old)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = flags,
                                 .datatype     = out->type};

    return old ? ucp_am_send_nb(side->ep, ID_OLD, out->buffer, out->count, out->type, on_sent, 0)
               : ucp_am_send_nbx(side->ep, ID, "head", 4, out->buffer, out->count, &param);
}

static void exchange(bed_t *bed, kind_t from, kind_t to, size_t length, uint32_t flags, int old)
{
    layout_t         out;
    ucs_status_ptr_t sent = NULL;

    receiver.calls     = 0;
    receiver.receiving = NULL;
    if (bed->b != NULL) {
        layout_make(&receiver.in, to, length);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        layout_make(&out, from, length);
        layout_fill(&out, 7);
        sent = post_send(bed->a, &out, flags, old);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, receiver.calls > 0);
        ucs_status_t status = bed_wait(bed, receiver.receiving);
        rule(bed->b, "2.6.3", "%zu as %s: %s, %s, calls %u", length,
             receiver.rendezvous ? kind_names[to] : "with the message", status_name(status),
             receiver.rendezvous ? layout_check(&receiver.in, length, 7) : receiver.verdict, receiver.calls);
        generic_fact(receiver.rendezvous ? bed->b : NULL, &receiver.in);
        layout_free(&receiver.in);
        receiver.rendezvous = 0;
    }
    if (bed->a != NULL) {
        rule(bed->a, "2.6.3", "%zu from %s: %s", length, kind_names[from], status_name(bed_wait(bed, sent)));
        generic_fact(bed->a, &out);
        layout_free(&out);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t           params  = {.features = UCP_FEATURE_AM};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = ID, .cb = on_message};
    static const size_t    items[] = {1, 9, 100, 1000, 1200, 3000, 50000};

    bed_open(bed, &params);
    if (bed->b != NULL) {
        receiver.worker = bed->b->worker;
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
        must(bed->b, ucp_worker_set_am_handler(bed->b->worker, ID_OLD, on_old_message, NULL, 0), "set old handler");
    }
    bed_sync(bed);
    for (int i = 0; i < 7; i++) {
        for (int from = 0; from < KINDS; from++) {
            exchange(bed, from, CONTIG, items[i] * ITEM_BYTES, UCP_AM_SEND_FLAG_EAGER, 0);
            exchange(bed, from, CONTIG, items[i] * ITEM_BYTES, 0, 1);
            for (int to = 0; to < KINDS; to++) {
                exchange(bed, from, to, items[i] * ITEM_BYTES, UCP_AM_SEND_FLAG_RNDV, 0);
            }
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
