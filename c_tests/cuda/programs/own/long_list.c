/* Lists of ten thousand pieces of a device's memory, as source and as target: few calls of the driver for them. */
#include "gpu.h"

#include <stdlib.h>

enum { PIECES = 10000, LENGTH = 64, STRIDE = 96, TOTAL = PIECES * LENGTH };

static ucp_dt_iov_t list[PIECES];

/* Sends from a list, and receives into one. Returns the calls of the driver that this side has made. */
static unsigned long long message(bed_t *bed, const area_t *source, const area_t *target)
{
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    char               *memory = bed->a != NULL ? source->memory : target->memory;
    unsigned long long  before = gpu_all_calls();
    ucs_status_t        status;

    for (int i = 0; i < PIECES; i++) {
        list[i].buffer = memory + (size_t)i * STRIDE;
        list[i].length = LENGTH;
    }
    if (bed->a != NULL) {
        status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, list, PIECES, 1, &param));
        want(bed->a, status == UCS_OK, "sent: %s", status_name(status));
    } else {
        status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, list, PIECES, 1, -1, &param));
        want(bed->b, status == UCS_OK, "received: %s", status_name(status));
    }
    return gpu_all_calls() - before;
}

static int is_good(const area_t *target)
{
    int good = 1;

    for (int i = 0; i < PIECES; i++) {
        size_t at = (size_t)i * STRIDE;
        good      = good && area_check(target, at, LENGTH, (size_t)i * LENGTH, 9)[0] == 'g' &&
               area_is(target, at + LENGTH, STRIDE - LENGTH, 0x5a);
    }
    return good;
}

static void script(bed_t *bed)
{
    bed_params_t       params = {.features = UCP_FEATURE_TAG};
    char              *bytes  = data_make(TOTAL, 9);
    unsigned long long calls;

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, GPU1, (size_t)PIECES * STRIDE);
    area_t target = area_make(bed->b, GPU0, (size_t)PIECES * STRIDE);
    area_set(&target, 0x5a);
    for (int i = 0; bed->a != NULL && i < PIECES; i++) {
        area_write(&source, (size_t)i * STRIDE, bytes + (size_t)i * LENGTH, LENGTH);
    }
    calls = message(bed, &source, &target);
    if (bed->a != NULL) {
        want(bed->a, calls <= PIECES / 64, "%llu calls for %d pieces", calls, PIECES);
    } else {
        want(bed->b, calls <= PIECES / 64 && is_good(&target), "%llu calls for %d pieces", calls, PIECES);
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
    free(bytes);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
