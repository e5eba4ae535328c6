/*
 * Devices that do not reach each other, and a receiver without a context of the sender's device: messages carry the
 * data, and one line of the receiver says why.
 * SETTINGS: SOFT_CUDA_PEERS=n UCX_LOG_LEVEL=diag
 */
#include "gpu.h"
#include "mapped.h"

#define LENGTH (2 << 20)

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    if (bed->b != NULL) {
        GOOD(cuDevicePrimaryCtxRelease_v2(0));
        logged("");
    }
    for (unsigned i = 0; i < 3; i++) {
        area_fill(&source, 0, LENGTH, i);
        if (bed->a != NULL) {
            ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
            want(bed->a, status == UCS_OK, "sent: %s", status_name(status));
        } else {
            ucs_status_t status =
                bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param));
            want(bed->b, status == UCS_OK && area_check(&target, 0, LENGTH, 0, i)[0] == 'g', "received: %s",
                 status_name(status));
        }
        bed_sync(bed);
    }
    if (bed->b != NULL) {
        unsigned said = logged("no device can access memory of device 1 and memory of a device of process");
        want(bed->b, said == 1, "lines: %u", said);
        want(bed->b, gpu_calls("cuIpcOpenMemHandle_v2") == 0, "nothing was opened");
        CUcontext again;
        GOOD(cuDevicePrimaryCtxRetain(&again, 0));
    }
    area_free(&source);
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
