/*
 * A context that excludes CUDA calls nothing of the driver, and works on host memory.
 * SETTINGS: UCX_TLS=self,sm
 */
#include "gpu.h"

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucp_context_attr_t  attr   = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    gpu_open();
    unsigned long long before = gpu_all_calls();
    bed_open(bed, &params);
    const side_t *here = bed->a != NULL ? bed->a : bed->b;
    for (int i = 0; i < 2; i++) {
        size_t           length = i == 0 ? 8 : 1 << 20;
        area_t           source = area_make(bed->a, HOST, length), target = area_make(bed->b, HOST, length);
        ucs_status_ptr_t end;

        area_fill(&source, 0, length, 3);
        end = bed->a != NULL ? ucp_tag_send_nbx(bed->a->ep, source.memory, length, 1, &param)
                             : ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 1, -1, &param);
        want(here, bed_wait(bed, end) == UCS_OK, "%zu bytes", length);
        if (bed->b != NULL) {
            want(bed->b, area_check(&target, 0, length, 0, 3)[0] == 'g', "%zu bytes are good", length);
        }
        area_free(&source);
        area_free(&target);
    }
    must(here, ucp_context_query(here->context, &attr), "ucp_context_query");
    want(here, attr.memory_types == 1, "memory types %#llx", (unsigned long long)attr.memory_types);
    bed_close(bed);
    want(here, gpu_all_calls() == before, "calls of the driver: %llu", gpu_all_calls() - before);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
