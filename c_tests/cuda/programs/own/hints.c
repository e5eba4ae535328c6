/*
 * Hints that are wrong: memory of a device that is stated to be the host's is refused, in every kind of operation. And
 * memory that is freed and allocated again as another kind.
 */
#include "gpu.h"

#define SAYS_WRONG "is memory of a GPU, which the caller states to be host memory"

static const ucp_request_param_t host = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                         .memory_type  = UCS_MEMORY_TYPE_HOST};

/* An operation was refused, with one line. */
static void refused(const side_t *side, ucs_status_ptr_t result, const char *what)
{
    unsigned said = logged(SAYS_WRONG);

    want(side, UCS_PTR_STATUS(result) == UCS_ERR_INVALID_PARAM && said == 1, "HOST for a device's, %s: %s, lines %u",
         what, ptr_status_name(result), said);
}

/* Operations on memory of a device that is stated to be the host's; `side` is connected. */
static void wrong_host(const side_t *side, const area_t *area)
{
    size_t               length = area->length;
    char                 word[8] = {0};
    ucp_dt_iov_t         list[] = {{word, sizeof(word)}, {area->memory, length}};
    ucp_request_param_t  iov    = host;
    ucp_mem_map_params_t map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address = area->memory, .length = length, .memory_type = UCS_MEMORY_TYPE_HOST};
    ucp_mem_h            memh;

    iov.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    iov.datatype = ucp_dt_make_iov();
    logged("");
    refused(side, ucp_tag_send_nbx(side->ep, area->memory, length, 1, &host), "tag send");
    refused(side, ucp_tag_send_nbx(side->ep, list, 2, 1, &iov), "tag send of a list");
    refused(side, ucp_tag_recv_nbx(side->worker, area->memory, length, 1, -1, &host), "tag receive");
    refused(side, ucp_am_send_nbx(side->ep, 1, NULL, 0, area->memory, length, &host), "active message");
    refused(side, ucp_stream_send_nbx(side->ep, area->memory, length, &host), "stream send");
    refused(side, (void *)(intptr_t)ucp_mem_map(side->context, &map, &memh), "ucp_mem_map");
}

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
    bed_params_t        params    = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM};

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
        if (bed->a != NULL) {
            wrong_host(bed->a, &source);
        }
        area_free(&source);
        source = area_make(bed->a, MANAGED, lengths[i]);
        message(bed, &source, &target, -1, UCS_OK, "managed after device");
        message(bed, &source, &target, UCS_MEMORY_TYPE_CUDA, UCS_OK, "CUDA for managed");
        message(bed, &source, &target, UCS_MEMORY_TYPE_HOST, UCS_OK, "HOST for managed");
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
