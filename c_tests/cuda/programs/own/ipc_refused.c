/*
 * Handles of the other process cannot be opened, from the first one on: messages carry the data, and opening is tried
 * once for each device of the peer.
 */
#include "gpu.h"

#define LENGTH (1 << 20)

static void script(bed_t *bed)
{
    bed_params_t        params = {.features = UCP_FEATURE_TAG};
    ucp_request_param_t param  = {.op_attr_mask = 0};

    gpu_open();
    bed_open(bed, &params);
    gpu_fault("ipc_refused=1");
    for (int i = 0; i < 3; i++) {
        for (int from = HOST; from < PLACES; from++) {
            for (int to = HOST; to < PLACES; to++) {
                area_t           source = area_make(bed->a, (place_t)from, LENGTH);
                area_t           target = area_make(bed->b, (place_t)to, LENGTH);
                ucs_status_ptr_t received = NULL;
                area_fill(&source, 0, LENGTH, 2);
                if (bed->b != NULL) {
                    received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
                }
                bed_sync(bed);
                if (bed->a != NULL) {
                    ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
                    want(bed->a, status == UCS_OK, "%s to %s: sent, %s", place_names[from], place_names[to],
                         status_name(status));
                }
                if (bed->b != NULL) {
                    ucs_status_t status = bed_wait(bed, received);
                    want(bed->b, status == UCS_OK && area_check(&target, 0, LENGTH, 0, 2)[0] == 'g',
                         "%s to %s: received, %s", place_names[from], place_names[to], status_name(status));
                }
                bed_sync(bed);
                area_free(&source);
                area_free(&target);
            }
        }
    }
    want(bed->b, gpu_calls("cuIpcOpenMemHandle_v2") == 2, "tried %llu", gpu_calls("cuIpcOpenMemHandle_v2"));
    want(bed->a, gpu_calls("cuIpcGetMemHandle") > 0, "offered");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
