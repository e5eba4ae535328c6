/*
 * One side exports memory of its devices, and the other one does not open it: by its UCX_TLS, or because it handles
 * host memory only. Messages carry the data, in both directions.
 */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH (1 << 20)

static void message(bed_t *bed, side_t *from, side_t *to, place_t source_place, place_t target_place, const char *what)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    area_t              source   = area_make(from, source_place, LENGTH), target = area_make(to, target_place, LENGTH);
    ucs_status_ptr_t    received = NULL, sent = NULL;

    area_fill(&source, 0, LENGTH, 2);
    if (to != NULL) {
        received = ucp_tag_recv_nbx(to->worker, target.memory, LENGTH, 1, -1, &param);
    }
    bed_sync(bed);
    if (from != NULL) {
        sent                = ucp_tag_send_nbx(from->ep, source.memory, LENGTH, 1, &param);
        ucs_status_t status = bed_wait(bed, sent);
        want(from, status == UCS_OK, "%s, %s to %s: sent, %s", what, place_names[source_place],
             place_names[target_place], status_name(status));
    }
    if (to != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        want(to, status == UCS_OK && area_check(&target, 0, LENGTH, 0, 2)[0] == 'g', "%s, %s to %s: received, %s",
             what, place_names[source_place], place_names[target_place], status_name(status));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

/* `names`: what the side B has in place of "cuda". */
static void with(bed_t *bed, const char *names)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    int          host   = names[0] == '\0';
    char         before[256], tls[256];

    snprintf(before, sizeof(before), "%s", getenv("UCX_TLS"));
    if (bed->b != NULL) {
        snprintf(tls, sizeof(tls), "%.*s%s", (int)(strstr(before, ",cuda") - before), before, names);
        setenv("UCX_TLS", tls, 1);
    }
    bed_open(bed, &params);
    setenv("UCX_TLS", before, 1);
    const char *what = host ? "host only" : names + 1;
    for (int from = GPU0; from < PLACES; from++) {
        message(bed, bed->a, bed->b, (place_t)from, HOST, what);
        if (!host) {
            message(bed, bed->a, bed->b, (place_t)from, GPU1, what);
            message(bed, bed->b, bed->a, (place_t)from, GPU1, what);
        }
    }
    want(bed->a, gpu_calls("cuIpcOpenMemHandle_v2") == 0, "%s: opened", what);
    want(bed->b, gpu_calls("cuIpcOpenMemHandle_v2") == 0, "%s: opened", what);
    bed_close(bed);
}

static void script(bed_t *bed)
{
    gpu_open();
    with(bed, ",cuda_copy");
    with(bed, "");
    want(bed->a, gpu_calls("cuIpcGetMemHandle") > 0, "exported");
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
