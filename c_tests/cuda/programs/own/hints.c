/* Hints that are wrong, memory that is freed and allocated again as another kind, and pinned memory that is refused. */
#include "gpu.h"

static void message(bed_t *bed, const area_t *source, const area_t *target, int type, ucs_status_t expected,
                    const char *what)
{
    ucp_request_param_t param = {.op_attr_mask = type >= 0 ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0,
                                 .memory_type  = (ucs_memory_type_t)type};
    ucp_request_param_t plain = {.op_attr_mask = 0};
    size_t              length = source->length;

    area_fill(source, 0, length, 5);
    area_set(target, 0);
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source->memory, length, 1, &param));
        want(bed->a, status == expected, "%s, %zu: %s", what, length, status_name(status));
    }
    if (bed->b != NULL && expected == UCS_OK) {
        ucs_status_t status =
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target->memory, length, 1, -1, &plain));
        want(bed->b, status == UCS_OK && area_check(target, 0, length, 0, 5)[0] == 'g', "%s, %zu: %s, %s", what,
             length, status_name(status), area_check(target, 0, length, 0, 5));
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    static const size_t lengths[] = {8, 1 << 20};
    bed_params_t        params    = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    want(bed->a != NULL ? bed->a : bed->b, logged("is not available") == 0, "no warning that CUDA is not available");
    for (int i = 0; i < 2; i++) {
        area_t source = area_make(bed->a, HOST, lengths[i]), target = area_make(bed->b, GPU1, lengths[i]);

        message(bed, &source, &target, UCS_MEMORY_TYPE_CUDA, UCS_OK, "CUDA for host memory");
        message(bed, &source, &target, UCS_MEMORY_TYPE_CUDA_MANAGED, UCS_OK, "managed for host memory");
        message(bed, &source, &target, UCS_MEMORY_TYPE_UNKNOWN, UCS_OK, "unknown");
        if (bed->a != NULL) {
            logged("");
        }
        message(bed, &source, &target, UCS_MEMORY_TYPE_ROCM, UCS_ERR_UNSUPPORTED, "ROCM");
        if (bed->a != NULL) {
            unsigned said = logged("no transport for rocm memory");
            want(bed->a, said == 1, "ROCM: lines %u", said);
        }
        area_free(&source);
        source = area_make(bed->a, GPU0, lengths[i]);
        message(bed, &source, &target, UCS_MEMORY_TYPE_CUDA_MANAGED, UCS_OK, "managed for a device's");
        message(bed, &source, &target, -1, UCS_OK, "device");
        area_free(&source);
        source = area_make(bed->a, MANAGED, lengths[i]);
        message(bed, &source, &target, -1, UCS_OK, "managed after device");
        area_free(&source);
        source = area_make(bed->a, GPU1, lengths[i]);
        message(bed, &source, &target, -1, UCS_OK, "another device after managed");
        area_free(&source);
        area_free(&target);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
