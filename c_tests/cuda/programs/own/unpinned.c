/* The driver cannot pin the first buffers: the operations work all the same. */
#include "gpu.h"

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};

    gpu_open();
    bed_open(bed, &params);
    const side_t *here = bed->a != NULL ? bed->a : bed->b;
    for (int i = 0; i < 6; i++) {
        size_t           length = i % 2 == 0 ? 8 : 3 << 20;
        area_t           source = area_make(bed->a, GPU0, length), target = area_make(bed->b, GPU1, length);
        ucs_status_ptr_t end;

        area_fill(&source, 0, length, 3);
        area_set(&target, 0);
        bed_sync(bed);
        unsigned long long pinned = gpu_calls("cuMemHostRegister_v2");
        gpu_fault("alloc_nth=1");
        end = bed->a != NULL ? ucp_tag_send_nbx(bed->a->ep, source.memory, length, 1, &param)
                             : ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 1, -1, &param);
        ucs_status_t status = bed_wait(bed, end);
        gpu_fault("alloc_nth=0");
        want(here, status == UCS_OK, "%d, %zu: %s", i, length, status_name(status));
        if (i == 0) {
            want(here, gpu_calls("cuMemHostRegister_v2") == pinned + 1, "the fault has met a registration");
        }
        if (bed->b != NULL) {
            want(bed->b, area_check(&target, 0, length, 0, 3)[0] == 'g', "%d, %zu: data", i, length);
        }
        bed_sync(bed);
        area_free(&source);
        area_free(&target);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
