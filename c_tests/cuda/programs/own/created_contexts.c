/*
 * The pinned buffers and streams of a context of cuCtxCreate end with it: messages and lists of memory of another
 * context go on, and so do those of the next context.
 */
#include "gpu.h"

#include "../../driver.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH = 600000, PIECES = 100, PIECE = 3000, ROUNDS = 4 };

/* From a context that ends when the message has ended. */
static void of_created(bed_t *bed, unsigned seed)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              bytes  = area_make(bed->a != NULL ? bed->a : bed->b, HOST, LENGTH);
    CUdeviceptr         memory = 0;
    CUcontext           context, popped;
    ucs_status_t        status;

    cuCtxCreate_v2(&context, 0, 0);
    cuMemAlloc_v2(&memory, LENGTH);
    area_fill(&bytes, 0, LENGTH, seed);
    if (bed->a != NULL) {
        cuMemcpyHtoD_v2(memory, bytes.memory, LENGTH);
    }
    cuCtxPopCurrent_v2(&popped); /* no context is current during the calls */
    if (bed->a != NULL) {
        status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, (void *)(uintptr_t)memory, LENGTH, 1, &param));
        want(bed->a, status == UCS_OK, "%u: send from the context: %s", seed, status_name(status));
    }
    if (bed->b != NULL) {
        status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, (void *)(uintptr_t)memory, LENGTH, 1, -1, &param));
        area_set(&bytes, 0);
        cuCtxPushCurrent_v2(context);
        cuMemcpyDtoH_v2(bytes.memory, memory, LENGTH);
        cuCtxPopCurrent_v2(&popped);
        want(bed->b, status == UCS_OK && area_check(&bytes, 0, LENGTH, 0, seed)[0] == 'g',
             "%u: receive into the context: %s", seed, status_name(status));
    }
    bed_sync(bed);
    cuCtxDestroy_v2(context);
    area_free(&bytes);
}

/* A list of pieces in the primary context, which are copied in one call from pinned memory. */
static void of_primary(bed_t *bed, unsigned seed)
{
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    area_t              source = area_make(bed->a, GPU0, PIECES * 2 * PIECE);
    area_t              target = area_make(bed->b, GPU0, PIECES * 2 * PIECE);
    ucp_dt_iov_t        list[PIECES];
    const area_t       *own    = bed->a != NULL ? &source : &target;
    ucs_status_t        status;
    int                 good   = 1;

    for (int i = 0; i < PIECES; i++) {
        list[i] = (ucp_dt_iov_t){own->memory + i * 2 * PIECE, PIECE};
    }
    area_set(&target, 0x5a);
    for (int i = 0; i < PIECES; i++) {
        area_fill(&source, (size_t)i * 2 * PIECE, PIECE, seed + (unsigned)i);
    }
    if (bed->a != NULL) {
        status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, list, PIECES, 2, &param));
        want(bed->a, status == UCS_OK, "%u: send of a list: %s", seed, status_name(status));
    }
    if (bed->b != NULL) {
        status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, list, PIECES, 2, -1, &param));
        for (int i = 0; i < PIECES; i++) {
            good = good && area_check(&target, (size_t)i * 2 * PIECE, PIECE, 0, seed + (unsigned)i)[0] == 'g' &&
                   area_is(&target, (size_t)i * 2 * PIECE + PIECE, PIECE, 0x5a);
        }
        want(bed->b, status == UCS_OK && good, "%u: receive of a list: %s, good %d", seed, status_name(status), good);
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    for (unsigned i = 0; i < ROUNDS; i++) {
        of_created(bed, i);
        of_primary(bed, 100 + i);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
