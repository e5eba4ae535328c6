/*
 * The driver's library is there and no device: host memory works, without an error.
 * SETTINGS: SOFT_CUDA_DEVICES=0
 */
#include "gpu.h"

static void script(bed_t *bed)
{
    bed_params_t         params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_request_param_t  param  = {.op_attr_mask = 0};
    ucp_mem_map_params_t map    = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .length      = 4096,
        .flags       = UCP_MEM_MAP_ALLOCATE,
        .memory_type = UCS_MEMORY_TYPE_CUDA,
    };
    ucp_mem_h memh;

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
    logged("");
    ucs_status_t status = ucp_mem_map(here->context, &map, &memh);
    want(here, status == UCS_ERR_NO_MEMORY || status == UCS_ERR_UNSUPPORTED, "allocation of a device's: %s",
         status_name(status));
    want(here, logged("ERROR") == 1, "one line says so");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
