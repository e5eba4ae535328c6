/*
 * Active messages of one sender arrive in the order in which they were sent, whatever their size, as long as they are
 * eager: by UCP_AM_SEND_FLAG_EAGER, or by ucp_am_send_nb, which has no other protocol (CONTRACT 2.4.4).
 */
#define _GNU_SOURCE
#include "bed.h"
#include "layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID = 4, ID_OLD = 5, ID_ANSWER = 6, MESSAGES = 15, HEADER_MAX = 3000 };

static struct {
    unsigned arrived;
    char     order[MESSAGES * 4];
    int      intact, headers_intact, rendezvous, data_flag;
    int      answer;
    size_t   lengths[MESSAGES];
} receiver;

static unsigned seed_of(size_t length) { return (unsigned)(length % 251) + 1; }

/* Which message it is: the first byte of its data is not enough, so that the lengths are all different. */
static void arrive(const void *data, size_t length)
{
    unsigned i;

    for (i = 0; i < MESSAGES && receiver.lengths[i] != length; ++i) {
    }
    snprintf(receiver.order + strlen(receiver.order), 5, "%u ", i);
    receiver.intact = receiver.intact && strcmp(data_check(data, length, seed_of(length)), "good") == 0;
    receiver.arrived++;
}

static void on_answered(void *request, ucs_status_t status, void *user_data)
{
    (void)status, (void)user_data;
    ucp_request_free(request);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg;
    receiver.rendezvous |= (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    receiver.headers_intact = receiver.headers_intact &&
                              strcmp(data_check(header, header_length, seed_of(length) + 1), "good") == 0;
    arrive(data, length);
    if (receiver.answer && (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP)) {
        static char         bytes[40000];
        ucp_request_param_t answer = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                                      .flags        = UCP_AM_SEND_FLAG_EAGER,
                                      .cb.send      = on_answered};
        /* Long and short in turn; the length says which. */
        size_t answer_length = receiver.arrived % 3 == 0 ? sizeof(bytes) - receiver.arrived : receiver.arrived;

        ucp_am_send_nbx(param->reply_ep, ID_ANSWER, NULL, 0, bytes, answer_length, &answer);
    }
    return UCS_OK;
}

static ucs_status_t on_old_message(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    (void)arg, (void)reply_ep, (void)flags;
    arrive(data, length);
    return UCS_OK;
}

static struct {
    unsigned arrived;
    int      in_order;
} answers;

static ucs_status_t on_answer(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    size_t expected;

    (void)arg, (void)header, (void)header_length, (void)data, (void)param;
    answers.arrived++;
    expected         = answers.arrived % 3 == 0 ? 40000 - answers.arrived : answers.arrived;
    answers.in_order = answers.in_order && length == expected;
    return UCS_OK;
}

static void on_sent(void *request, ucs_status_t status) { (void)request, (void)status; }

/* Every third message is long, the others short; all lengths differ. */
static size_t length_of(unsigned i, size_t length)
{
    return ITEM_BYTES * (i % 3 == 0 ? length / ITEM_BYTES + i : i + 1);
}

static void series(bed_t *bed, kind_t kind, size_t length, size_t header_length, int old, int reply)
{
    layout_t         out[MESSAGES];
    ucs_status_ptr_t sent[MESSAGES];
    void            *headers[MESSAGES];
    unsigned         i;

    memset(&receiver, 0, sizeof(receiver));
    receiver.intact = receiver.headers_intact = 1;
    receiver.answer = reply;
    memset(&answers, 0, sizeof(answers));
    answers.in_order = 1;
    for (i = 0; i < MESSAGES; ++i) {
        receiver.lengths[i] = length_of(i, length);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        for (i = 0; i < MESSAGES; ++i) {
            size_t              bytes = length_of(i, length);
            ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS,
                                         .flags = UCP_AM_SEND_FLAG_EAGER | (reply ? UCP_AM_SEND_FLAG_REPLY : 0u)};

            layout_make(&out[i], kind, bytes);
            layout_fill(&out[i], seed_of(bytes));
            headers[i]     = data_make(header_length, seed_of(bytes) + 1);
            param.datatype = out[i].type;
            sent[i]        = old ? ucp_am_send_nb(bed->a->ep, ID_OLD, out[i].buffer, out[i].count, out[i].type, on_sent, 0)
                                 : ucp_am_send_nbx(bed->a->ep, ID, headers[i], header_length, out[i].buffer,
                                                   out[i].count, &param);
        }
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, receiver.arrived == MESSAGES);
        rule(bed->b, "2.4.4", "%s, long ones of %zu, header of %zu%s: order %s, data %s, headers %s%s", kind_names[kind],
             length, header_length, old ? ", old" : "", receiver.order, receiver.intact ? "good" : "bad",
             receiver.headers_intact ? "good" : "bad", receiver.rendezvous ? ", rendezvous" : "");
    }
    if (bed->a != NULL) {
        for (i = 0; i < MESSAGES; ++i) {
            ucs_status_t status = bed_wait(bed, sent[i]);

            if (status != UCS_OK) {
                fact(bed->a, "message %u: %s", i, status_name(status));
            }
            layout_free(&out[i]);
            free(headers[i]);
        }
        if (reply) {
            BED_UNTIL(bed, answers.arrived == MESSAGES);
            fact(bed->a, "answers %s", answers.in_order ? "in order" : "out of order");
        }
    }
    bed_sync(bed);
}

static void handle(side_t *side)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB};

    if (side == NULL) {
        return;
    }
    param.id = ID;
    param.cb = on_message;
    must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "handler");
    param.id = ID_ANSWER;
    param.cb = on_answer;
    must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "handler of answers");
    must(side, ucp_worker_set_am_handler(side->worker, ID_OLD, on_old_message, NULL, 0), "old handler");
}

static void script(bed_t *bed)
{
    static const size_t lengths[] = {9000, 25000, 65600, 70000, 1 << 20, 5 << 20};
    bed_params_t        params    = {.features = UCP_FEATURE_AM};
    size_t              i;
    kind_t              kind;

    bed_open(bed, &params);
    handle(bed->a);
    handle(bed->b);
    for (kind = CONTIG; kind < KINDS; ++kind) {
        for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
            if (lengths[i] > 70000 && kind != CONTIG) {
                continue;
            }
            series(bed, kind, lengths[i], 0, 0, 0);
            series(bed, kind, lengths[i], 0, 1, 0);
        }
        series(bed, kind, 65600, 16, 0, 0);
        series(bed, kind, 65600, HEADER_MAX, 0, 1);
    }
    bed_close(bed);
}

int main(int argc, char **argv) { return bed_main(argc, argv, script); }
