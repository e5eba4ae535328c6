/*
 * The sender of 50 MB from a device is killed in the middle: the receiver's request and endpoint fail, and the receiver
 * goes on.
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <unistd.h>

#define LENGTH (50 << 20)

/* The process B: a child of A, so that A sees it killed and the bed does not. */
static void sender(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->b, GPU0, LENGTH);

    area_fill(&source, 0, LENGTH, 1);
    gpu_fault("late_us=20000"); /* so that the transfer takes long */
    ucs_status_ptr_t sent = ucp_tag_send_nbx(bed->b->ep, source.memory, LENGTH, 1, &param);
    bed_wait(bed, sent);
    for (;;) {
        bed_progress(bed);
    }
}

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucp_request_param_t force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    pid_t               victim = 0;

    if (bed->b != NULL) {
        victim_begin(bed);
        victim = getpid();
    }
    gpu_open();
    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->b != NULL) {
        bed_transfer(bed, bed->b, &victim, sizeof(victim), &victim, sizeof(victim));
        bed->b->ep = connect_guarded(bed->b, to_a);
        sender(bed);
    }
    bed_transfer(bed, bed->b, &victim, sizeof(victim), &victim, sizeof(victim));
    bed->a->ep = connect_guarded(bed->a, to_b);
    area_t              target = area_make(bed->a, GPU1, LENGTH);
    ucp_tag_recv_info_t info;
    BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target.memory, LENGTH, 1, -1, &param);
    for (int i = 0; i < 3; i++) {
        ucp_worker_progress(bed->a->worker);
    }
    int under_way = UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS;
    kill(victim, SIGKILL);
    want(bed->a, under_way, "killed under way");
    ucs_status_t status = bed_wait(bed, received);
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "the receive ends with %s", status_name(status));
    BED_UNTIL(bed, failures > 0);
    want(bed->a, failures == 1, "callbacks %d", failures);
    bed_wait(bed, ucp_ep_close_nbx(bed->a->ep, &force));
    area_free(&target);

    /* It goes on: a message to itself. */
    message_to_itself(bed, 1 << 20, MANAGED);
    ucp_worker_destroy(bed->a->worker);
    ucp_cleanup(bed->a->context);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
