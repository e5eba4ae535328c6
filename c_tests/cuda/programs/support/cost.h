/*
 * A program: which way messages between two devices take, as the devices' pace is. BY_DRIVER: so many of them are
 * copied by the driver, the first ones.
 */
#include "gpu.h"
#include "transfer.h"

#define LENGTH   (1 << 20)
#define MESSAGES 12

/* Messages between devices of which the driver makes no copy at the sender. */
static unsigned by_driver(bed_t *bed, place_t from, place_t to, unsigned messages)
{
    area_t   source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, to, LENGTH);
    unsigned count = 0, first = 0;

    for (unsigned i = 0; i < messages; i++) {
        int direct = transfer(bed, &source, &target, LENGTH, i, place_names[to]) == 0;
        count += direct;
        first += direct && count == i + 1;
    }
    want(bed->a, count == first, "%s to %s: by the driver %u, the first %u", place_names[from], place_names[to], count,
         first);
    area_free(&source);
    area_free(&target);
    return count;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    unsigned count = by_driver(bed, GPU0, GPU1, MESSAGES);
    want(bed->a, count == BY_DRIVER, "gpu 0 to gpu 1: by the driver %u of %u", count, MESSAGES);
    unsigned driver = printed("(estimated); messages by the driver");
    unsigned host = printed("messages through pinned host memory") + printed("bytes on through pinned host memory");
    if (BY_DRIVER == MESSAGES) {
        want(bed->b, driver == 1 && host == 0, "printed: by the driver %u, through the host %u", driver, host);
    } else {
        want(bed->b, host > 0, "printed: by the driver %u, through the host %u", driver, host);
    }
    want(bed->b, printed("CUDA: from device 0 of a peer to device 1") > 0, "printed: the devices");
    /* Within a device nothing is faster than the driver. */
    count = by_driver(bed, GPU0, GPU0, 5);
    want(bed->a, count == 5, "gpu 0 to gpu 0: by the driver %u of 5", count);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
