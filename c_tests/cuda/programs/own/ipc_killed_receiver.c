/*
 * The receiver is killed while it copies from the sender's memory, which it has open: the send and the endpoint fail,
 * and the memory is the sender's to free and to use again.
 */
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <unistd.h>

#define LENGTH (50 << 20)
#ifndef SOURCE
#define SOURCE GPU0
#endif

/* The process B: a child of B's, so that A sees it killed and the bed does not. */
static void receiver(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              target = area_make(bed->b, GPU1, LENGTH);

    gpu_fault("late_us=30000000");
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
    BED_UNTIL(bed, gpu_calls("cuMemcpyAsync") > 0);
    bed_sync(bed);
    bed_wait(bed, received);
    _exit(1);
}

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    pid_t               victim = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
        receiver(bed);
    }
    bed->a->ep      = connect_guarded(bed->a, to_b);
    area_t source   = area_make(bed->a, SOURCE, LENGTH);
    area_fill(&source, 0, LENGTH, 1);
    ucs_status_ptr_t sent = ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param);
    bed_sync(bed); /* the receiver copies */
    want(bed->a, UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS,
         "killed before the copy has ended");
    kill(victim, SIGKILL);
    ucs_status_t status = bed_wait(bed, sent);
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "the send ends with %s", status_name(status));
    survivor_close(bed);
    area_free(&source);

    /* It goes on: a message to itself, from memory at the same address. */
    survivor_end(bed, LENGTH, GPU1);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
