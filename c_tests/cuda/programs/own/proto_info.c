/*
 * UCX_PROTO_INFO: the ways of memory of devices, what the driver says of the devices, and what its copies have reached.
 *
 * SETTINGS: UCX_PROTO_INFO=y
 */
#include "gpu.h"

#include <stdlib.h>

#define LENGTH (1 << 20)

static void message(bed_t *bed, place_t from)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    ucs_status_ptr_t    received = NULL;
    area_t              source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, GPU1, LENGTH);

    area_fill(&source, 0, LENGTH, 1);
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
        want(bed->a, status == UCS_OK, "sent, %s", status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        want(bed->b, status == UCS_OK, "received, %s", status_name(status));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    side_t      *side   = bed->a != NULL ? bed->a : bed->b;

    gpu_open();
    bed_open(bed, &params);
    message(bed, GPU0);
    want(side, printed("CUDA: 2 devices, each can access the memory of the others") == 1, "what the driver says");
    want(side, printed("message by ucp_tag_send* from exported memory of a CUDA device") == 1, "exported memory");
    want(side, printed("rendezvous copy by the driver") == 1, "messages by the driver");
    want(side, printed("read by ucp_get* from exported memory of a CUDA device") == 1, "exported memory, gets");
    want(side, printed("| copy by the driver ") == 2, "puts and gets by the driver");
    want(side, printed("rendezvous fragmented through pinned host memory") == 1, "messages from other memory");
    want(side, printed("executed by the peer, through pinned host memory") == 2, "puts and gets of other memory");
    want(side, printed("without host memory in between") == 0, "not what was reached");
    bed_close(bed);

    setenv("UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "off", 1);
    bed_open(bed, &params);
    message(bed, GPU0);
    want(side, printed("exported memory of this host: written by the driver; reads by messages") == 1, "no reads");
    want(side, printed("rendezvous fragmented through pinned host memory") == 3, "messages without reads");
    bed_close(bed);
    unsetenv("UCX_CUDA_IPC_ENABLE_GET_ZCOPY");

    setenv("UCX_PROTO_INFO", "used", 1);
    bed_open(bed, &params);
    message(bed, GPU0);
    message(bed, MANAGED);
    bed_close(bed);
    want(bed->b, printed("without host memory in between: 1, of 1048576 bytes in all, at ") == 1,
         "what was reached");
    want(bed->a, printed("without host memory in between") == 0, "the sender has copied nothing");
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
