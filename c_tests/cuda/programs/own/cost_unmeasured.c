/*
 * The options state that copies between devices are slow, and the pace of copies from and to the host cannot be
 * measured: that is tried once, with one line, and the driver copies all messages.
 *
 * SETTINGS: UCX_CUDA_IPC_BW=1MBps UCX_LOG_LEVEL=diag
 */
#include "gpu.h"
#include "transfer.h"

#define LENGTH   (1 << 20)
#define MESSAGES 6

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    if (bed->b != NULL) {
        gpu_fault("fail_code=999");
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        /* The first copy at B sets its memory, the second one is of that measurement. */
        if (bed->b != NULL && i == 0) {
            gpu_fault("fail_nth=2");
        }
        unsigned long long copies = transfer(bed, &source, &target, LENGTH, i, "unmeasured");
        want(bed->a, copies == 0, "%u: copies of the sender %llu", i, copies);
        want(bed->b, copies == 1 + (i == 0), "%u: copies of the receiver %llu", i, copies);
    }
    logged_again();
    unsigned lines = logged("cannot be measured");
    want(bed->b, lines == 1, "lines %u", lines);
    area_free(&source);
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
