/* UCX_TLS that names only copies of memory of GPUs: one line says what is missing. */
#include "gpu.h"

#include <stdlib.h>

static void refused(const side_t *side, const char *names, const char *text)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    logged("");
    setenv("UCX_TLS", names, 1);
    ucs_status_t status = ucp_init(&params, NULL, &context);
    unsigned     lines  = logged("");
    logged_again();
    want(side, status == UCS_ERR_NO_DEVICE && lines == 1 && logged(text) > 0, "%s: %s, lines %u", names,
         status_name(status), lines);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    const side_t *here = bed->a != NULL ? bed->a : bed->b;
    refused(here, "cuda_copy", "UCX_TLS=cuda_copy only copies memory of GPUs");
    refused(here, "cuda", "UCX_TLS=cuda only copies memory of GPUs");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
