/*
 * A pool ends whose allocations the receiver has open, and a later pool has its handle and its addresses: the receiver
 * imports that, also where its driver would open the new allocation in the old pool.
 * NEEDS: the software driver
 */
#include "gpu.h"
#include "mapped.h"
#include "transfer.h"

#define LENGTH (1 << 20)
#define POOLS  4

/* The driver's handle of the pool of an area. */
static unsigned long long handle_of(const area_t *area)
{
    unsigned long long handle = 0;

    if (area->memory != NULL) {
        GOOD(cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (CUdeviceptr)(uintptr_t)area->memory));
    }
    return handle;
}

static void script(bed_t *bed)
{
    bed_params_t       params = {.features = UCP_FEATURE_TAG};
    unsigned long long handle = 0, before = 0;
    char              *first = NULL;

    gpu_open();
    bed_open(bed, &params);
    area_t target = area_make(bed->b, GPU1, LENGTH);
    if (bed->b != NULL) {
        gpu_fault("pool_unchecked=1");
    }
    for (unsigned i = 0; i < POOLS; i++) {
        area_t one = area_make(bed->a, POOL0, LENGTH), other = area_make(bed->a, POOL0, LENGTH);

        want(bed->a, i == 0 || (one.memory == first && handle_of(&one) == handle), "pool %u: address and handle again",
             i);
        first  = one.memory;
        handle = handle_of(&one);
        before = gpu_calls("cuMemPoolImportFromShareableHandle");
        /* Both stay open, so that the receiver keeps the pool when one of them is freed. */
        transfer(bed, &one, &target, LENGTH, 10 * i, "one");
        transfer(bed, &other, &target, LENGTH, 10 * i + 1, "other");
        unsigned long long imported = gpu_calls("cuMemPoolImportFromShareableHandle") - before;
        want(bed->b, imported == 1, "pool %u: imported %llu times", i, imported);
        area_free(&one);
        /* The pool lives on with the other allocation. */
        one = area_make(bed->a, POOL0, LENGTH);
        transfer(bed, &one, &target, LENGTH, 10 * i + 2, "again");
        imported = gpu_calls("cuMemPoolImportFromShareableHandle") - before;
        want(bed->b, imported == 1, "pool %u, one more allocation: imported %llu times", i, imported);
        area_free(&one);
        area_free(&other);
        pools_end();
    }
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
