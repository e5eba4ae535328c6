/*
 * The sender's adapter cannot register its memory, whose handle the receiver cannot open: pinned memory carries the
 * data at once. The receiver registers nothing for a write that its peer cannot make.
 * SETTINGS: SOFT_CUDA_DMABUF=y UCX_LOG_LEVEL=diag
 * NETWORKS: rc
 */
#include "gpu.h"
#include "transfer.h"

#include <string.h>

#define LENGTH   (3UL << 20)
#define MESSAGES 4

/* Messages of one allocation into another. Returns the descriptors for adapters that this process asked for. */
static unsigned long long descriptors(bed_t *bed, place_t from, place_t to, unsigned seed)
{
    area_t             source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, to, LENGTH);
    unsigned long long before = gpu_calls("cuMemGetHandleForAddressRange");

    for (unsigned i = 0; i < MESSAGES; i++) {
        transfer(bed, &source, &target, LENGTH, seed + i, place_names[from]);
    }
    area_free(&source);
    area_free(&target);
    return gpu_calls("cuMemGetHandleForAddressRange") - before;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    /* The connection is made. */
    descriptors(bed, HOST, HOST, 1);
    gpu_fault(bed->a != NULL ? "export_refused=1" : "ipc_refused=1");
    unsigned long long asked = descriptors(bed, GPU0, GPU1, 10);
    want(bed->a, asked == 1, "descriptors that the sender asked for: %llu", asked);
    want(bed->b, asked == 0, "descriptors that the receiver asked for: %llu", asked);
    unsigned lines = printed("have no descriptor for adapters");
    want(bed->a, lines == 1, "lines of the sender: %u", lines);
    want(bed->b, lines == 0, "lines of the receiver about descriptors: %u", lines);
    lines = printed("ERROR") + printed("WARN");
    want(bed->a != NULL ? bed->a : bed->b, lines == 0, "errors and warnings: %u", lines);
    /* Where the sender's adapter can, it writes. */
    gpu_fault(bed->a != NULL ? "export_refused=0" : "ipc_refused=1");
    asked = descriptors(bed, GPU0, GPU1, 20);
    want(bed->a, asked == 1, "descriptors that the sender asked for, not refused: %llu", asked);
    want(bed->b, asked == 1, "descriptors that the receiver asked for then: %llu", asked);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
