/*
 * The context of a device ends, and another one has its handle: what the library kept of the first is gone.
 * NEEDS: the software driver
 */
#include "gpu.h"
#include "../../driver.h"

enum { LENGTH = 300000, ROUNDS = 5 };

static void message(bed_t *bed, unsigned seed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, HOST, LENGTH), target = area_make(bed->b, HOST, LENGTH);
    CUdeviceptr         memory = 0;
    ucs_status_t        status;

    cuMemAlloc_v2(&memory, LENGTH);
    area_fill(&source, 0, LENGTH, seed);
    if (bed->a != NULL) {
        cuMemcpyHtoD_v2(memory, source.memory, LENGTH);
        status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, (void *)(uintptr_t)memory, LENGTH, 1, &param));
        want(bed->a, status == UCS_OK, "send: %s", status_name(status));
    }
    if (bed->b != NULL) {
        status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, (void *)(uintptr_t)memory, LENGTH, 1, -1, &param));
        cuMemcpyDtoH_v2(target.memory, memory, LENGTH);
        want(bed->b, status == UCS_OK && area_check(&target, 0, LENGTH, 0, seed)[0] == 'g', "receive: %s",
             status_name(status));
    }
    cuMemFree_v2(memory);
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    CUcontext    context, last = NULL;
    int          same = 0;

    cuInit(0);
    bed_open(bed, &params);
    for (int i = 0; i < ROUNDS; i++) {
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxPushCurrent_v2(context);
        same += context == last;
        last = context;
        message(bed, (unsigned)i);
        cuCtxPopCurrent_v2(&context);
        cuDevicePrimaryCtxRelease_v2(0);
    }
    want(bed->a, same > 0, "the handle of a context that has ended came again%s", same > 0 ? "" : " never");
    want(bed->b, same > 0, "the handle of a context that has ended came again%s", same > 0 ? "" : " never");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
