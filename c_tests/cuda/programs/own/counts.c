/* How many calls of the driver operations make: none where there is nothing to ask, few for a short message. */
#include "gpu.h"

/*
 * Upper bound for 8 bytes that are sent from a device, or received, after the first ones: 1 question, 1 copy, 1 mark,
 * 1 wait, and the context made current and taken away for the buffer, the copy, the mark and the wait.
 */
#define MOST_OF_A_SHORT_SEND 9

static void message(bed_t *bed, const area_t *source, const area_t *target, size_t length, int hint)
{
    ucp_request_param_t param = {.op_attr_mask = hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0,
                                 .memory_type  = UCS_MEMORY_TYPE_HOST};

    if (bed->a != NULL) {
        bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source->memory, length, 1, &param));
    }
    if (bed->b != NULL) {
        bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target->memory, length, 1, -1, &param));
    }
    bed_sync(bed);
}

static void both(bed_t *bed, int fine, const char *what, unsigned long long calls)
{
    want(bed->a, fine, "%s: calls %llu", what, calls);
    want(bed->b, fine, "%s: calls %llu", what, calls);
}

static void arm(bed_t *bed)
{
    ucp_worker_h       worker = bed->a != NULL ? bed->a->worker : bed->b->worker;
    unsigned long long before = gpu_all_calls();
    int                armed  = 0;

    for (int i = 0; i < 100; i++) {
        while (ucp_worker_progress(worker) != 0) {
        }
        armed += ucp_worker_arm(worker) == UCS_OK;
    }
    both(bed, armed > 0 && gpu_all_calls() == before, "armed", gpu_all_calls() - before);
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    const size_t long_one = 1 << 20;

    gpu_open();
    bed_open(bed, &params);
    area_t gpu_source = area_make(bed->a, GPU0, long_one), gpu_target = area_make(bed->b, GPU0, long_one);
    area_t source = area_make(bed->a, HOST, long_one), target = area_make(bed->b, HOST, long_one);
    area_fill(&gpu_source, 0, long_one, 1);
    area_fill(&source, 0, long_one, 1);
    for (int i = 0; i < 3; i++) {
        message(bed, &gpu_source, &gpu_target, 8, 0);
    }
    arm(bed);
    area_t first_source = area_make(bed->a, HOST, 8), first_target = area_make(bed->b, HOST, 8);
    area_fill(&first_source, 0, 8, 1);
    /* What a context asks once: a property of each device. */
    message(bed, &first_source, &first_target, 8, 0);

    unsigned long long before = gpu_all_calls();
    message(bed, &source, &target, 8, 1);
    both(bed, gpu_all_calls() - before <= 1, "the first operation on a page of the host", gpu_all_calls() - before);

    before = gpu_all_calls();
    for (int i = 0; i < 100; i++) {
        message(bed, &source, &target, i % 2 ? 8 : long_one, i % 4 < 2);
    }
    both(bed, gpu_all_calls() == before, "100 operations on host memory, half of them with a hint",
         gpu_all_calls() - before);

    before = gpu_all_calls();
    for (int i = 0; i < 50; i++) {
        message(bed, &gpu_source, &gpu_target, 8, 0);
    }
    both(bed, gpu_all_calls() - before <= 50 * MOST_OF_A_SHORT_SEND && gpu_all_calls() > before,
         "50 operations of device memory, 8 bytes", gpu_all_calls() - before);

    before = gpu_calls("cuMemHostRegister_v2") + gpu_calls("cuStreamCreate");
    for (int i = 0; i < 5; i++) {
        message(bed, &gpu_source, &gpu_target, long_one, 0);
    }
    unsigned long long warm = gpu_calls("cuMemHostRegister_v2") + gpu_calls("cuStreamCreate");
    for (int i = 0; i < 5; i++) {
        message(bed, &gpu_source, &gpu_target, long_one, 0);
    }
    both(bed, gpu_calls("cuMemHostRegister_v2") + gpu_calls("cuStreamCreate") == warm,
         "streams and pinned buffers are used again", warm - before);
    area_free(&gpu_source);
    area_free(&gpu_target);
    area_free(&source);
    area_free(&target);
    area_free(&first_source);
    area_free(&first_target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
