/*
 * Copies that are late or fail, pinned memory that is refused: an operation ends with a status and one line, and the
 * next ones work.
 * WAY: cuda_copy
 */
#include "gpu.h"

#include <string.h>

#define LENGTH (2 << 20)

/* One message; returns the status of both sides, and whether the data are right. */
typedef struct {
    ucs_status_t sent, received;
    int          good;
} end_t;

static end_t message(bed_t *bed, place_t from, place_t to, size_t length)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, from, length);
    area_t              target = area_make(bed->b, to, length);
    ucs_status_ptr_t    received = NULL;
    end_t               end      = {UCS_OK, UCS_OK, 0};

    area_fill(&source, 0, length, 1);
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        end.sent = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, length, 1, &param));
    }
    uint8_t begun = bed->a == NULL || end.sent == UCS_OK;
    bed_transfer(bed, bed->a, &begun, 1, &begun, 1);
    if (bed->b != NULL) {
        if (!begun && UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS) {
            ucp_request_cancel(bed->b->worker, received);
        }
        end.received = bed_wait(bed, received);
        end.good     = end.received == UCS_OK && area_check(&target, 0, length, 0, 1)[0] == 'g';
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
    return end;
}

static void fine(bed_t *bed, place_t from, place_t to, size_t length, const char *when)
{
    end_t end = message(bed, from, to, length);

    want(bed->a, end.sent == UCS_OK, "%s, %zu, %s to %s: %s", when, length, place_names[from], place_names[to],
         status_name(end.sent));
    want(bed->b, end.good, "%s, %zu, %s to %s: %s", when, length, place_names[from], place_names[to],
         status_name(end.received));
}

static void both_fine(bed_t *bed, const char *when)
{
    fine(bed, HOST, HOST, LENGTH, when);
    fine(bed, GPU0, GPU0, LENGTH, when);
}

/* The n-th copy of a sender fails. The error is not of the device: the next copy works. */
static void source_fails(bed_t *bed, size_t length, const char *fault)
{
    if (bed->a != NULL) {
        logged("");
    }
    ucp_request_param_t param    = {.op_attr_mask = 0};
    area_t              source   = area_make(bed->a, GPU0, length), target = area_make(bed->b, HOST, length);
    ucs_status_ptr_t    received = NULL;
    ucs_status_t        status   = UCS_OK;

    area_fill(&source, 0, length, 1);
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        gpu_fault(fault);
        status        = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, length, 1, &param));
        unsigned said = logged("has failed");
        want(bed->a, status == UCS_ERR_IO_ERROR, "source of %zu, %s: %s", length, fault, status_name(status));
        want(bed->a, said == 1, "source of %zu, %s: lines %u", length, fault, said);
        gpu_fault("fail_nth=0");
    }
    bed_sync(bed);
    if (bed->b != NULL) { /* the receiver gets an error, or still waits: it is not stuck in a call */
        if (UCS_PTR_IS_PTR(received) && ucp_request_check_status(received) == UCS_INPROGRESS) {
            ucp_request_cancel(bed->b->worker, received);
        }
        status = bed_wait(bed, received);
        want(bed->b, status != UCS_OK, "source of %zu, %s: the receive ends with %s", length, fault,
             status_name(status));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void target_fails(bed_t *bed, size_t length, const char *fault)
{
    ucp_request_param_t param  = {.op_attr_mask = 0};
    area_t              source = area_make(bed->a, HOST, length), target = area_make(bed->b, GPU1, length);
    ucs_status_ptr_t    received = NULL;

    area_fill(&source, 0, length, 1);
    if (bed->b != NULL) {
        logged("");
        gpu_fault(fault);
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, length, 1, &param));
        want(bed->a, status != UCS_INPROGRESS, "target of %zu, %s: the send ends", length, fault);
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        unsigned     said   = logged("has failed");
        want(bed->b, status == UCS_ERR_IO_ERROR, "target of %zu, %s: %s", length, fault, status_name(status));
        want(bed->b, said == 1, "target of %zu, %s: lines %u", length, fault, said);
        gpu_fault("fail_nth=0");
    }
    bed_sync(bed);
    area_free(&source);
    if (strstr(fault, "700") == NULL) { /* with its context, memory is lost */
        area_free(&target);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    both_fine(bed, "at first");
    gpu_fault("late_us=2000");
    both_fine(bed, "late");
    fine(bed, GPU0, GPU1, 8, "late");
    gpu_fault("late_us=1000,late_nth=3");
    both_fine(bed, "every third late");
    gpu_fault("late_us=0,late_nth=0");
    source_fails(bed, 8, "fail_nth=1,fail_code=2");
    both_fine(bed, "after a failed short source");
    source_fails(bed, LENGTH, "fail_nth=1,fail_code=2");
    both_fine(bed, "after a failed long source");
    source_fails(bed, LENGTH, "fail_nth=3,fail_code=2");
    both_fine(bed, "after a source that failed under way");
    target_fails(bed, 8, "fail_nth=1,fail_code=2");
    both_fine(bed, "after a failed short target");
    target_fails(bed, LENGTH, "fail_nth=2,fail_code=2");
    both_fine(bed, "after a failed long target");
    /* Sticky: memory of device 1 at B is lost, all else works. */
    target_fails(bed, LENGTH, "fail_nth=1,fail_code=700");
    both_fine(bed, "after an illegal address");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
