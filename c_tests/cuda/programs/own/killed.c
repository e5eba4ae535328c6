/*
 * The sender of 50 MB from a device is killed in the middle: the receiver's request and endpoint fail, and the receiver
 * goes on.
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#include "victim.h"

#define LENGTH (50 << 20)

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};

    pid_t victim = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
        gpu_fault("late_us=20000"); /* so that the transfer takes long */
        victim_send(bed, GPU0, LENGTH);
    }
    bed->a->ep = connect_guarded(bed->a, to_b);
    area_t              target = area_make(bed->a, GPU1, LENGTH);
    ucp_tag_recv_info_t info;
    BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
    ucs_status_ptr_t received = ucp_tag_recv_nbx(bed->a->worker, target.memory, LENGTH, 1, -1, &param);
    for (int i = 0; i < 3; i++) {
        ucp_worker_progress(bed->a->worker);
    }
    kill_under_way(bed, victim, received);
    ucs_status_t status = bed_wait(bed, received);
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "the receive ends with %s", status_name(status));
    survivor_close(bed);
    area_free(&target);
    survivor_end(bed, 1 << 20, MANAGED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
