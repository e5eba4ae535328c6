/* ucp_request_query names the type of memory of an operation's buffer, before and after its end. */
#include "gpu.h"

#define LENGTH (4 << 20) /* a rendezvous, which a send without a receive waits for */

static const char *type_of(ucs_status_ptr_t request)
{
    ucp_request_attr_t attr = {.field_mask = UCP_REQUEST_ATTR_FIELD_MEM_TYPE | UCP_REQUEST_ATTR_FIELD_STATUS};

    if (!UCS_PTR_IS_PTR(request)) {
        return "no request";
    }
    if (ucp_request_query(request, &attr) != UCS_OK) {
        return "no answer";
    }
    return attr.mem_type == UCS_MEMORY_TYPE_HOST           ? "host" :
           attr.mem_type == UCS_MEMORY_TYPE_CUDA           ? "cuda" :
           attr.mem_type == UCS_MEMORY_TYPE_CUDA_MANAGED   ? "managed" :
                                                             "another";
}

/* Without freeing the request. */
static ucs_status_t wait_for(bed_t *bed, ucs_status_ptr_t request)
{
    BED_UNTIL(bed, ucp_request_check_status(request) != UCS_INPROGRESS);
    return ucp_request_check_status(request);
}

static void message(bed_t *bed, place_t from, place_t to, int hint)
{
    area_t              source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, to, LENGTH);
    ucp_request_param_t param  = {.op_attr_mask = hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0};
    ucs_status_ptr_t    request = NULL;

    area_fill(&source, 0, LENGTH, from);
    if (bed->b != NULL) { /* posted, and there is no message yet */
        param.memory_type = area_type(to);
        request           = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
        fact(bed->b, "%s to %s, hint %d: posted %s", place_names[from], place_names[to], hint, type_of(request));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        param.memory_type = area_type(from);
        request           = ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param);
        fact(bed->a, "%s to %s, hint %d: sending %s", place_names[from], place_names[to], hint, type_of(request));
    }
    ucs_status_t status = wait_for(bed, request);
    fact(bed->a != NULL ? bed->a : bed->b, "%s to %s, hint %d: %s, %s", place_names[from], place_names[to], hint,
         status_name(status), type_of(request));
    ucp_request_free(request);
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    for (int from = HOST; from < PLACES; from++) {
        for (int to = HOST; to < PLACES; to++) {
            message(bed, (place_t)from, (place_t)to, (from + to) % 2);
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
