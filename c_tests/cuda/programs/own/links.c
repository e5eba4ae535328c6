/*
 * UCX_PROTO_INFO: which links between devices are slower than others.
 * SETTINGS: UCX_PROTO_INFO=y SOFT_CUDA_DEVICES=3 SOFT_CUDA_RANKS=y
 */
#include "gpu.h"
#include "transfer.h"

#define LENGTH (1 << 20)

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    side_t      *side   = bed->a != NULL ? bed->a : bed->b;

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    transfer(bed, &source, &target, LENGTH, 1, "a message");
    logged_again();
    unsigned lines = logged("each can access the memory of the others, slower links from 0 to 2, 2 to 0; ");
    want(side, lines == 1, "slower links: lines %u", lines);
    want(side, gpu_calls("cuDeviceGetP2PAttribute") > 0, "the driver was asked");
    area_free(&source);
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
