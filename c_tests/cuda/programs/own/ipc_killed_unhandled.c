/*
 * The sender of 50 MB from a device is killed while the receiver copies from its memory, whose endpoints have no error
 * handler: one line of level error says so, and the receiver goes on.
 */
#define _GNU_SOURCE
#include "victim.h"

#define LENGTH (50 << 20)

static void script(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    pid_t               victim = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        bed->b->ep = bed_connect(bed->b, to_a);
        victim_send(bed, GPU0, LENGTH);
    }
    bed->a->ep    = bed_connect(bed->a, to_b);
    area_t target = area_make(bed->a, GPU1, LENGTH);
    receive_from_killed(bed, victim, &target, LENGTH);
    /* An operation that needs the peer finds that it is gone. */
    ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, target.memory, LENGTH, 1, &param));
    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "a send to it ends with %s", status_name(status));
    bed_wait(bed, ucp_ep_close_nbx(bed->a->ep, &param));
    area_free(&target);
    want(bed->a, gpu_calls("cuIpcOpenMemHandle_v2") == 1 && gpu_calls("cuIpcCloseMemHandle") == 1,
         "opened and closed again");

    unsigned errors = printed("its process has ended or its worker was destroyed"), lines = printed("");
    want(bed->a, errors == 1 && lines == 1, "lines that its process has ended: %u, all lines: %u", errors, lines);
    survivor_end(bed, 1 << 20, MANAGED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
