/*
 * A process that puts into memory of a device is killed in the middle of a long put, and another one closes its
 * endpoint by force: the owner goes on, the memory can be freed, and a later put arrives. So does one behind an owner's
 * worker that was destroyed.
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "victim.h"

#include <signal.h>
#include <unistd.h>

#define LENGTH (20 << 20)

static const ucp_request_param_t none  = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static exposed_t exposed; /* A's */
static char      to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];

/* Of B. */
static ucp_rkey_h unpack(bed_t *bed)
{
    bed->b->ep = connect_guarded(bed->b, to_a);
    return exposed_key(bed->b, bed->b->ep, &exposed);
}

/* A has copied the beginning. */
static void until_begun(bed_t *bed, unsigned long long before)
{
    if (bed->a != NULL) {
        BED_UNTIL(bed, gpu_copies() >= before + 2);
    }
    bed_sync(bed);
}

static void closed(bed_t *bed)
{
    area_t             source = area_make(bed->b, GPU1, LENGTH);
    unsigned long long before = gpu_copies();

    area_fill(&source, 0, LENGTH, 1);
    if (bed->a != NULL) {
        gpu_fault("late_us=20000"); /* so that the transfer takes long */
        until_begun(bed, before);
        bed_sync(bed);
        gpu_fault("late_us=0");
    } else {
        ucp_rkey_h       rkey = unpack(bed);
        ucs_status_ptr_t sent = ucp_put_nbx(bed->b->ep, source.memory, LENGTH, exposed.remote, rkey, &none);
        until_begun(bed, before);
        want(bed->b, UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS, "closed under way");
        ucp_rkey_destroy(rkey);
        ucs_status_t ended = bed_wait(bed, ucp_ep_close_nbx(bed->b->ep, &force)), status = bed_wait(bed, sent);
        want(bed->b, ended == UCS_OK && status != UCS_OK, "close %s, put %s", status_name(ended), status_name(status));
        bed_sync(bed);
    }
    bed_sync(bed);
    area_free(&source);
}

static void again(bed_t *bed)
{
    area_t source = area_make(bed->b, GPU1, LENGTH);

    area_fill(&source, 0, LENGTH, 2);
    if (bed->b != NULL) {
        ucp_rkey_h   rkey  = unpack(bed);
        ucs_status_t status = bed_wait(
            bed, ucp_put_nbx(bed->b->ep, source.memory, LENGTH, exposed.remote, rkey, &none));
        ucs_status_t ended  = bed_wait(bed, ucp_ep_flush_nbx(bed->b->ep, &none));
        want(bed->b, status == UCS_OK && ended == UCS_OK, "again: %s, flush %s", status_name(status),
             status_name(ended));
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    want(bed->a, area_check(&exposed.area, 0, LENGTH, 0, 2)[0] == 'g', "again: data");
    bed_sync(bed);
    area_free(&source);
}

/* The process B: a child of the first one, so that the bed does not see it killed. */
static void put_and_end(bed_t *bed)
{
    area_t     source = area_make(bed->b, GPU1, LENGTH);
    ucp_rkey_h rkey   = unpack(bed);

    area_fill(&source, 0, LENGTH, 3);
    bed_wait(bed, ucp_put_nbx(bed->b->ep, source.memory, LENGTH, exposed.remote, rkey, &none));
    for (;;) {
        bed_progress(bed);
    }
}

static void killed(bed_t *bed, pid_t victim)
{
    unsigned long long before = gpu_copies();

    if (bed->b != NULL) {
        put_and_end(bed);
    }
    gpu_fault("late_us=20000");
    bed->a->ep = connect_guarded(bed->a, to_b);
    BED_UNTIL(bed, gpu_copies() >= before + 2);
    failures = 0;
    kill(victim, SIGKILL);
    survivor_close(bed);
    gpu_fault("late_us=0");
    hide(bed, 1, &exposed);
    survivor_end(bed, 1 << 20, GPU1);
}

/* In A alone: the worker of the owner is destroyed in the middle. */
static void destroyed(bed_t *bed)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_address_t      *address;
    ucp_worker_h        owner;
    size_t              length;

    if (bed->a == NULL) {
        return;
    }
    area_t source = area_make(bed->a, HOST, LENGTH);
    area_fill(&source, 0, LENGTH, 4);
    must(bed->a, ucp_worker_create(bed->a->context, &params, &owner), "ucp_worker_create");
    must(bed->a, ucp_worker_get_address(owner, &address, &length), "ucp_worker_get_address");
    ucp_ep_h ep = connect_guarded(bed->a, address);
    ucp_rkey_h rkey = exposed_key(bed->a, ep, &exposed);
    unsigned long long before = gpu_copies();
    gpu_fault("late_us=20000");
    ucs_status_ptr_t put   = ucp_put_nbx(ep, source.memory, LENGTH, exposed.remote, rkey, &none);
    deadline_t       limit = bed_deadline("copies");
    while (gpu_copies() < before + 2) {
        ucp_worker_progress(owner);
        bed_poll(bed, &limit);
    }
    want(bed->a, UCS_PTR_IS_PTR(put) && ucp_request_check_status(put) == UCS_INPROGRESS, "destroyed under way");
    ucp_worker_release_address(owner, address);
    ucp_worker_destroy(owner);
    gpu_fault("late_us=0");
    ucp_rkey_destroy(rkey);
    ucs_status_t closed = bed_wait(bed, ucp_ep_close_nbx(ep, &force)), status = bed_wait(bed, put);
    want(bed->a, closed == UCS_OK && status != UCS_OK, "close %s, put %s", status_name(closed), status_name(status));
    area_free(&source);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    pid_t        victim = victim_open(bed, &params, to_b, to_a);

    expose(bed, 1, GPU0, LENGTH, &exposed);
    closed(bed);
    again(bed);
    closed(bed);
    again(bed);
    destroyed(bed);
    bed_sync(bed); /* not before does B put again: A progresses the memory's worker meanwhile */
    again(bed);
    killed(bed, victim);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
