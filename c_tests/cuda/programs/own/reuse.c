/* Memory that is freed, and whose address another kind of memory is given; memory that is freed too early. */
#include "gpu.h"

#define LENGTH 300000

static int same_address; /* how often an address was given to another kind */

static void message(bed_t *bed, place_t from, place_t to, void **last)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, from, LENGTH), target = area_make(bed->b, to, LENGTH);
    void               *mine   = bed->a != NULL ? source.memory : target.memory;
    unsigned            seed   = (unsigned)(7 * from + to);

    same_address += mine == *last;
    *last = mine;
    area_fill(&source, 0, LENGTH, seed);
    area_set(&target, 0);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
        want(bed->a, status == UCS_OK, "%s to %s: %s", place_names[from], place_names[to], status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status =
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param));
        want(bed->b, status == UCS_OK && area_check(&target, 0, LENGTH, 0, seed)[0] == 'g', "%s to %s: %s",
             place_names[from], place_names[to], status_name(status));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

/* The program's mistake: the receive fails with one line, and the next message arrives. */
static void freed_under_way(bed_t *bed)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    area_t              source   = area_make(bed->a, HOST, LENGTH), target = area_make(bed->b, GPU0, LENGTH);
    ucs_status_ptr_t    received = NULL;

    area_fill(&source, 0, LENGTH, 1);
    logged("");
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 1, -1, &param);
        area_free(&target);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, LENGTH, 1, &param));
    } else {
        ucs_status_t status = bed_wait(bed, received);
        unsigned     said   = logged("has failed");
        want(bed->b, status == UCS_ERR_IO_ERROR && said == 1, "a target that is freed too early: %s, lines %u",
             status_name(status), said);
    }
    bed_sync(bed);
    area_free(&source);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};
    void        *last   = NULL;

    gpu_open();
    bed_open(bed, &params);
    for (int i = 0; i < 3; i++) {
        message(bed, GPU0, GPU0, &last);
        message(bed, GPU1, GPU1, &last);
        message(bed, MANAGED, MANAGED, &last);
        message(bed, GPU1, GPU0, &last);
    }
    want(bed->a, same_address > 0, "the address of one kind given to another: %d times", same_address);
    want(bed->b, same_address > 0, "the address of one kind given to another: %d times", same_address);
    freed_under_way(bed);
    message(bed, GPU0, GPU1, &last);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
