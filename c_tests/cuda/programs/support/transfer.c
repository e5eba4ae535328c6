/* One tagged message: see transfer.h. */
#include "transfer.h"

unsigned long long transfer(bed_t *bed, const area_t *source, const area_t *target, size_t length, unsigned seed,
                            const char *what)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    ucs_status_ptr_t    received = NULL;
    unsigned long long  copied   = 0;

    area_fill(source, 0, length, seed);
    area_set(target, 0);
    bed_sync(bed);
    unsigned long long before = gpu_copies();
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target->memory, length, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source->memory, length, 1, &param));
        want(bed->a, status == UCS_OK, "%s, %zu: sent, %s", what, length, status_name(status));
        copied = gpu_copies() - before;
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        copied = gpu_copies() - before;
        want(bed->b, status == UCS_OK && area_check(target, 0, length, 0, seed)[0] == 'g', "%s, %zu: received, %s",
             what, length, status_name(status));
    }
    bed_sync(bed);
    return copied;
}
