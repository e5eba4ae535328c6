/*
 * The driver calls of a message from memory that no adapter has registered yet do not grow with the memory that is.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "gpu.h"
#include "transfer.h"

#define LENGTH (1UL << 20)
#define AREAS  100
/* Questions about pointers: of the message, of its registration, and of a few others that are registered. */
#define MOST 8

static unsigned long long questions(void)
{
    return gpu_calls("cuPointerGetAttributes");
}

/* The fewest questions of one of the messages, each from another area: once a second all memory is looked at. */
static unsigned long long fewest(bed_t *bed, const area_t *areas, const area_t *target, unsigned from, unsigned to)
{
    unsigned long long least = -1ULL;

    for (unsigned i = from; i < to; i++) {
        unsigned long long before = questions();
        transfer(bed, &areas[i], target, LENGTH, i, "one of many");
        unsigned long long asked = questions() - before;
        least = asked < least ? asked : least;
    }
    return least;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    area_t       areas[AREAS], target;

    gpu_open();
    bed_open(bed, &params);
    target = area_make(bed->b, GPU1, LENGTH);
    for (unsigned i = 0; i < AREAS; i++) {
        areas[i] = area_make(bed->a, GPU0, LENGTH);
    }
    unsigned long long before = gpu_calls("cuMemGetHandleForAddressRange");
    unsigned long long first  = fewest(bed, areas, &target, 0, 5);
    fewest(bed, areas, &target, 5, AREAS - 10);
    unsigned long long last = fewest(bed, areas, &target, AREAS - 10, AREAS);
    unsigned long long made = gpu_calls("cuMemGetHandleForAddressRange") - before;
    want(bed->a, made == AREAS, "descriptors: %llu", made);
    want(bed->a, first > 0 && last <= first + MOST, "questions of a message: the first ones %llu, the last ones %llu",
         first, last);
    /* Half of them are freed, and other memory takes the place of some. */
    for (unsigned i = 0; i < AREAS / 2; i++) {
        area_free(&areas[i]);
    }
    for (unsigned i = 0; i < AREAS / 2; i++) {
        areas[i] = area_make(bed->a, GPU0, LENGTH);
    }
    before = questions();
    fewest(bed, areas, &target, 0, AREAS / 2);
    unsigned long long each = (questions() - before) / (AREAS / 2);
    want(bed->a, each <= first + 2 * MOST, "questions of each message from memory at addresses of freed memory: %llu",
         each);
    for (unsigned i = 0; i < AREAS; i++) {
        area_free(&areas[i]);
    }
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
