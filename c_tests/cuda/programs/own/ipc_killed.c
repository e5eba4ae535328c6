/*
 * The sender of 50 MB from a device is killed while the receiver copies from its memory: the receive ends, the endpoint
 * fails, what was open is closed, and the receiver goes on. Nothing is printed, because the user's error handler is
 * called (ipc_killed_unhandled.c: one line where there is none).
 */
#define _GNU_SOURCE
#include "victim.h"

#define LENGTH (50 << 20)

/* Where the sender's memory is, and the calls that open and close it here. */
#ifndef SOURCE
#define SOURCE GPU0
#define OPENS "cuIpcOpenMemHandle_v2"
#define CLOSES "cuIpcCloseMemHandle"
#endif

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    pid_t        victim = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
        victim_send(bed, SOURCE, LENGTH);
    }
    bed->a->ep    = connect_guarded(bed->a, to_b);
    area_t target = area_make(bed->a, GPU1, LENGTH);
    receive_from_killed(bed, victim, &target, LENGTH);
    survivor_close(bed);
    area_free(&target);
    want(bed->a, gpu_calls(OPENS) == 1 && gpu_calls(CLOSES) == 1, "opened %llu, closed %llu", gpu_calls(OPENS),
         gpu_calls(CLOSES));

    unsigned lines = printed("");
    want(bed->a, lines == 0, "lines where the error handler is called: %u", lines);
    survivor_end(bed, 1 << 20, MANAGED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
