/*
 * Long puts by message into memory of a device, whose copies run behind the arrival of the parts: a flush is answered
 * when all bytes are in place, and nothing overtakes them. Failures in the middle, at either end.
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#include "exposed.h"

#include "../../../../include/ucp/api/ucpx.h"

#include <dlfcn.h>

#define LENGTH   ((5 << 20) + 3)
#define EXPOSED  (LENGTH + 64)
#define FRAGMENT (320 << 10) /* of such a put, at least */

static exposed_t  exposed; /* B's */
static ucp_rkey_h rkey;    /* A's */

static const ucp_request_param_t none = {.op_attr_mask = 0};

static void begin(bed_t *bed)
{
    expose(bed, 0, GPU0, EXPOSED, &exposed);
    if (bed->a != NULL) {
        rkey = exposed_key(bed->a, bed->a->ep, &exposed);
    }
    area_set(&exposed.area, 0);
    bed_sync(bed);
}

static void end(bed_t *bed)
{
    if (bed->a != NULL) {
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    hide(bed, 0, &exposed);
}

static ucs_status_ptr_t put(bed_t *bed, const area_t *from, uint64_t at)
{
    return ucp_put_nbx(bed->a->ep, from->memory, LENGTH, exposed.remote + at, rkey, &none);
}

static ucs_status_t flush(bed_t *bed)
{
    return bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
}

/* Two puts to the same place, whose copies are late: behind the flush the second one is there, all of it. */
static void flushed(bed_t *bed, place_t from, uint64_t at)
{
    area_t first = area_make(bed->a, from, LENGTH), second = area_make(bed->a, from, LENGTH);

    area_fill(&first, 0, LENGTH, 1);
    area_fill(&second, 0, LENGTH, 2);
    unsigned long long before = gpu_copies();
    if (bed->b != NULL) {
        gpu_fault("late_us=3000");
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t one = put(bed, &first, at), two = put(bed, &second, at);
        ucs_status_t     ended = flush(bed), status_one = bed_wait(bed, one), status_two = bed_wait(bed, two);
        want(bed->a, ended == UCS_OK && status_one == UCS_OK && status_two == UCS_OK, "%s: %s, %s, flush %s",
             place_names[from], status_name(status_one), status_name(status_two), status_name(ended));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        unsigned long long needed = gpu_copies() - before;
        want(bed->b, area_check(&exposed.area, at, LENGTH, 0, 2)[0] == 'g', "%s: data behind the flush",
             place_names[from]);
        want(bed->b, needed <= 2 * (LENGTH / FRAGMENT + 2), "%s: copies %llu", place_names[from], needed);
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&first);
    area_free(&second);
}

/* A put whose copies are late, a fence, an atomic operation on its last word, a fence, a get of all of it. */
static void fenced(bed_t *bed)
{
    area_t              source = area_make(bed->a, GPU1, LENGTH), back = area_make(bed->a, GPU1, LENGTH);
    uint64_t            one = 1, result = 0, last = (LENGTH - 8) & ~7, word = 41;
    ucp_request_param_t with_reply = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype     = ucp_dt_make_contig(8),
        .reply_buffer = &result,
    };

    area_fill(&source, 0, LENGTH, 5);
    if (bed->a != NULL) {
        area_write(&source, last, &word, sizeof(word));
    }
    area_set(&exposed.area, 0);
    if (bed->b != NULL) {
        gpu_fault("late_us=3000");
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t wrote = put(bed, &source, 0);
        must(bed->a, ucp_worker_fence(bed->a->worker), "fence");
        ucs_status_ptr_t added = ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &one, 1, exposed.remote + last, rkey,
                                                   &with_reply);
        must(bed->a, ucp_worker_fence(bed->a->worker), "fence");
        ucs_status_ptr_t read = ucp_get_nbx(bed->a->ep, back.memory, LENGTH, exposed.remote, rkey, &none);
        ucs_status_t     w = bed_wait(bed, wrote), a = bed_wait(bed, added), r = bed_wait(bed, read);
        uint64_t         after = 0;
        area_read(&back, last, &after, sizeof(after));
        want(bed->a, w == UCS_OK && a == UCS_OK && r == UCS_OK && result == 41 && after == 42,
             "fenced: %s, %s, %s, before %d, after %d", status_name(w), status_name(a), status_name(r), (int)result,
             (int)after);
        want(bed->a, area_check(&back, 0, last, 0, 5)[0] == 'g', "fenced: data");
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&back);
}

/* A put with signal whose copies are late: when the flag, in memory of the device, is set, all bytes are there. */
static void signaled(bed_t *bed)
{
    area_t         source = area_make(bed->a, GPU1, LENGTH);
    uint64_t       at = (LENGTH + 7) & ~7, flag = 0;
    ucpx_signal_t  signal = {
        .field_mask = UCPX_SIGNAL_FIELD_OP | UCPX_SIGNAL_FIELD_VALUE | UCPX_SIGNAL_FIELD_FLAG_ADDR,
        .op         = UCPX_SIGNAL_OP_SET,
        .value      = 7,
        .flag_addr  = exposed.remote + at,
    };

    area_fill(&source, 0, LENGTH, 9);
    area_set(&exposed.area, 0);
    if (bed->b != NULL) {
        gpu_fault("late_us=3000");
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        __typeof__(&ucpx_put_signal_nbx) put_signal = dlsym(RTLD_DEFAULT, "ucpx_put_signal_nbx");
        ucs_status_ptr_t written = put_signal(bed->a->ep, source.memory, LENGTH, exposed.remote, rkey, &signal, &none);
        ucs_status_t     status = bed_wait(bed, written), ended = flush(bed);
        want(bed->a, status == UCS_OK && ended == UCS_OK, "signaled: %s, flush %s", status_name(status),
             status_name(ended));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, (area_read(&exposed.area, at, &flag, sizeof(flag)), flag != 0));
        want(bed->b, flag == 7 && area_check(&exposed.area, 0, LENGTH, 0, 9)[0] == 'g', "signaled: data");
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&source);
}

/* The n-th copy fails, at the initiator or at the owner; then all is well again. */
static void fails(bed_t *bed, int at_owner, const char *fault)
{
    area_t        source = area_make(bed->a, GPU1, LENGTH);
    const side_t *failing = at_owner ? bed->b : bed->a;

    area_fill(&source, 0, LENGTH, 6);
    area_set(&exposed.area, 0);
    if (failing != NULL) {
        gpu_fault(fault);
    }
    bed_sync(bed);
    for (int again = 0; again < 2; again++) {
        if (bed->a != NULL) {
            ucs_status_t status = bed_wait(bed, put(bed, &source, 0)), ended = flush(bed);
            want(bed->a, (status == UCS_OK && ended == UCS_OK) == again, "%s at the %s, %s: %s, flush %s", fault,
                 at_owner ? "owner" : "initiator", again ? "again" : "first", status_name(status), status_name(ended));
        }
        bed_sync(bed);
        gpu_fault("fail_nth=0");
        bed_sync(bed);
    }
    want(bed->b, area_check(&exposed.area, 0, LENGTH, 0, 6)[0] == 'g', "afterwards: data");
    area_free(&source);
}

/* B cannot pin host memory for the first put. */
static void unpinned(bed_t *bed)
{
    area_t source = area_make(bed->a, HOST, LENGTH);

    area_fill(&source, 0, LENGTH, 7);
    unsigned long long before = gpu_calls("cuMemHostRegister_v2");
    if (bed->b != NULL) {
        gpu_fault("alloc_nth=1");
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, put(bed, &source, 0)), ended = flush(bed);
        want(bed->a, status == UCS_OK && ended == UCS_OK, "unpinned: %s, flush %s", status_name(status),
             status_name(ended));
    }
    bed_sync(bed);
    gpu_fault("alloc_nth=0");
    if (bed->b != NULL) {
        want(bed->b, gpu_calls("cuMemHostRegister_v2") > before, "the fault has met a registration");
        want(bed->b, area_check(&exposed.area, 0, LENGTH, 0, 7)[0] == 'g', "unpinned: data");
    }
    bed_sync(bed);
    area_free(&source);
}

/* B ends the registration in the middle of a put and frees the memory. */
static void freed(bed_t *bed)
{
    area_t source = area_make(bed->a, GPU1, LENGTH);

    area_fill(&source, 0, LENGTH, 8);
    unsigned long long before = gpu_copies();
    if (bed->b != NULL) {
        gpu_fault("late_us=20000");
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, put(bed, &source, 0)), ended = flush(bed);
        want(bed->a, ended == UCS_ERR_INVALID_ADDR, "freed: %s, flush %s", status_name(status), status_name(ended));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, gpu_copies() >= before + 2);
        hide(bed, 0, &exposed);
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&source);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64};

    gpu_open();
    bed_open(bed, &params);
    begin(bed);
    unpinned(bed);
    flushed(bed, GPU1, 0);
    flushed(bed, HOST, 13);
    fenced(bed);
    signaled(bed);
    fails(bed, 1, "fail_nth=1,fail_code=2");
    fails(bed, 1, "fail_nth=7,fail_code=2");
    fails(bed, 1, "fail_nth=11,fail_code=2");
    fails(bed, 0, "fail_nth=1,fail_code=2");
    fails(bed, 0, "fail_nth=7,fail_code=2");
    freed(bed);
    end(bed);
    begin(bed);
    flushed(bed, GPU1, 5);
    end(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
