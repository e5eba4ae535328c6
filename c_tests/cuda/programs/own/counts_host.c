/*
 * Operations of all kinds on host memory call nothing of the driver, once each has asked about its pages; nor does
 * ucp_worker_arm, also while a copy of a device's memory runs.
 */
#include "exposed.h"

#define LENGTH (1UL << 20)
#define ROUNDS 10

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length, (void)param;
    ++*(int *)arg;
    return UCS_OK;
}

/* Without bed_wait(), which both sides call at other times: operations of A on its memory and B's. */
static void good(bed_t *bed, ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = bed_wait(bed, request);

    if (status != UCS_OK) {
        want(bed->a != NULL ? bed->a : bed->b, 0, "%s: %s", what, status_name(status));
    }
}

static void sent_by_a(bed_t *bed, const area_t *area, const exposed_t *there, ucp_rkey_h rkey)
{
    ucp_ep_h            ep    = bed->a->ep;
    ucp_dt_iov_t        iov[] = {{area->memory, 100}, {area->memory + 200, LENGTH / 2}};
    ucp_request_param_t list  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    ucp_request_param_t word  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                 .datatype = ucp_dt_make_contig(8), .reply_buffer = area->memory + 64};

    for (size_t length = 8; length <= LENGTH; length *= LENGTH / 8) {
        good(bed, ucp_tag_send_nbx(ep, area->memory, length, 1, &none), "tag");
        good(bed, ucp_am_send_nbx(ep, 1, "h", 1, area->memory, length, &none), "am");
        good(bed, ucp_stream_send_nbx(ep, area->memory, length, &none), "stream");
        good(bed, ucp_put_nbx(ep, area->memory, length, there->remote, rkey, &none), "put");
        good(bed, ucp_get_nbx(ep, area->memory, length, there->remote, rkey, &none), "get");
    }
    good(bed, ucp_tag_send_nbx(ep, iov, 2, 1, &list), "a list");
    good(bed, ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, area->memory, 1, there->remote, rkey, &word), "an atomic");
    good(bed, ucp_ep_flush_nbx(ep, &none), "a flush");
}

static void received_by_b(bed_t *bed, const area_t *area, int *messages)
{
    int    before = *messages;
    size_t received;

    for (size_t length = 8; length <= LENGTH; length *= LENGTH / 8) {
        ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
        good(bed, ucp_tag_recv_nbx(bed->b->worker, area->memory, length, 1, -1, &none), "tag receive");
        good(bed, ucp_stream_recv_nbx(bed->b->ep, area->memory, length, &received, &all), "stream receive");
    }
    good(bed, ucp_tag_recv_nbx(bed->b->worker, area->memory, LENGTH, 1, -1, &none), "tag receive of a list");
    BED_UNTIL(bed, *messages == before + 2);
}

static void round_of(bed_t *bed, const area_t *area, const exposed_t *there, ucp_rkey_h rkey, int *messages)
{
    if (bed->a != NULL) {
        sent_by_a(bed, area, there, rkey);
    } else {
        received_by_b(bed, area, messages);
    }
    bed_sync(bed);
}

/* A device of B copies a message of A's, which ends late; B arms its worker meanwhile. */
static void armed_while_it_copies(bed_t *bed)
{
    area_t area = area_make(bed->a != NULL ? bed->a : bed->b, bed->a != NULL ? GPU0 : GPU1, LENGTH);

    area_fill(&area, 0, LENGTH, 1);
    if (bed->a != NULL) {
        good(bed, ucp_tag_send_nbx(bed->a->ep, area.memory, LENGTH, 2, &none), "a device's");
    } else {
        ucp_tag_recv_info_t info;
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 2, -1, 0, &info) != NULL);
        gpu_fault("late_us=300000");
        ucs_status_ptr_t   received = ucp_tag_recv_nbx(bed->b->worker, area.memory, LENGTH, 2, -1, &none);
        unsigned long long before, calls = 0;
        unsigned           armed = 0, tries = 0;
        while (UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS && tries++ < 100) {
            ucp_worker_progress(bed->b->worker);
            before = gpu_all_calls();
            armed += ucp_worker_arm(bed->b->worker) == UCS_OK;
            calls += gpu_all_calls() - before;
        }
        want(bed->b, armed > 0 && calls == 0, "armed while a device copies: %s, calls %llu", armed > 0 ? "yes" : "no",
             calls);
        good(bed, received, "a device's, received");
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&area);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM | UCP_FEATURE_RMA |
                                       UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP};
    exposed_t    there;
    int          messages = 0;

    gpu_open();
    bed_open(bed, &params);
    side_t                     *side    = bed->a != NULL ? bed->a : bed->b;
    ucp_am_handler_param_t      handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                         UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                           .id = 1, .cb = on_message, .arg = &messages};
    must(side, ucp_worker_set_am_recv_handler(side->worker, &handler), "ucp_worker_set_am_recv_handler");
    area_t area = area_make(side, HOST, LENGTH);
    area_fill(&area, 0, LENGTH, 1);
    expose(bed, 0, HOST, LENGTH, &there);
    ucp_rkey_h rkey = bed->a != NULL ? exposed_key(bed->a, bed->a->ep, &there) : NULL;
    round_of(bed, &area, &there, rkey, &messages);
    round_of(bed, &area, &there, rkey, &messages);
    unsigned long long before = gpu_all_calls();
    for (int i = 0; i < ROUNDS; i++) {
        round_of(bed, &area, &there, rkey, &messages);
    }
    unsigned long long calls = gpu_all_calls() - before;
    want(side, calls == 0, "calls of the driver: %llu", calls);
    armed_while_it_copies(bed);
    if (bed->a != NULL) {
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    hide(bed, 0, &there);
    area_free(&area);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
