/*
 * UCX_PROTO_INFO: adapters access memory of devices.
 * SETTINGS: SOFT_CUDA_DMABUF=y UCX_PROTO_INFO=y
 * NETWORKS: rc
 */
#include "gpu.h"
#include "transfer.h"

#define LENGTH (1 << 20)

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    side_t      *side   = bed->a != NULL ? bed->a : bed->b;

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    transfer(bed, &source, &target, LENGTH, 1, "a message");
    want(side, printed("memory of a CUDA device that the adapter registers") == 3, "a message, a put, a get");
    want(side, printed("rendezvous zero copy, written by the adapter") == 1, "messages");
    want(side, printed("zero copy by the adapter") == 2, "puts and gets");
    area_free(&source);
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
