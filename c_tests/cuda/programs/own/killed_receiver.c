/*
 * The receiver of 50 MB into memory of a device ends by SIGKILL after its device has begun to copy: the sender's
 * request and endpoint fail, and the sender goes on.
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#include "victim.h"

#include <signal.h>
#include <unistd.h>

#define LENGTH (50 << 20)

/* The first copies have begun, and the last ones have not: this process ends. */
static void receive_and_end(bed_t *bed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              target = area_make(bed->b, GPU0, LENGTH);

    gpu_fault("late_us=5000"); /* so that the transfer takes long */
    ucs_status_ptr_t   received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
    unsigned long long before   = gpu_calls("cuMemcpyAsync");
    BED_UNTIL(bed, gpu_calls("cuMemcpyAsync") >= before + 2);
    if (UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS) {
        raise(SIGKILL);
    }
    _exit(9);
}

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};


    victim_open(bed, &params, to_b, to_a);
    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
        receive_and_end(bed);
    }
    bed->a->ep    = connect_guarded(bed->a, to_b);
    area_t source = area_make(bed->a, GPU1, LENGTH);
    area_fill(&source, 0, LENGTH, 1);
    ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "the send ends with %s", status_name(status));
    survivor_close(bed);
    area_free(&source);
    survivor_end(bed, 1 << 20, GPU1);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
