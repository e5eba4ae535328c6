/*
 * Handles of a process that is gone, none of which was opened: a message that waits here for its receive, and the key
 * of registered memory. Each operation ends with an error, one line at most is printed, and this process goes on.
 */
#define _GNU_SOURCE
#include "victim.h"

#include "exposed.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define LENGTH (4UL << 20)
#ifndef SOURCE
#define SOURCE GPU0
#endif

static const ucp_request_param_t none = {.op_attr_mask = 0};

/* The process B: a child of A, so that A sees it killed and the bed does not. */
static void owner(bed_t *bed)
{
    area_t source = area_make(bed->b, SOURCE, LENGTH);

    area_fill(&source, 0, LENGTH, 1);
    bed_wait(bed, ucp_tag_send_nbx(bed->b->ep, source.memory, LENGTH, 1, &none));
    for (;;) {
        bed_progress(bed);
    }
}

static void fails(bed_t *bed, ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = bed_wait(bed, request);

    want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "%s: %s", what, status_name(status));
}

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    exposed_t    exposed;
    pid_t        victim = victim_open(bed, &params, to_b, to_a);

    if (bed->b != NULL) {
        bed->b->ep = connect_guarded(bed->b, to_a);
    } else {
        bed->a->ep = connect_guarded(bed->a, to_b);
    }
    expose(bed, 0, SOURCE, LENGTH, &exposed);
    if (bed->b != NULL) {
        owner(bed);
    }
    ucp_rkey_h          rkey   = exposed_key(bed->a, bed->a->ep, &exposed);
    area_t              target = area_make(bed->a, GPU1, LENGTH);
    ucp_tag_recv_info_t info;
    BED_UNTIL(bed, ucp_tag_probe_nb(bed->a->worker, 1, -1, 0, &info) != NULL);
    kill(victim, SIGKILL);
    /* Not progressed meanwhile, so that the failure is not known when the operations begin. */
    for (int i = 0; i < 20000 && kill(victim, 0) == 0; i++) {
        usleep(1000);
    }
    want(bed->a, kill(victim, 0) != 0 && errno == ESRCH, "the owner is gone");
    /* First: what waits here goes with its sender, as soon as its end is known. */
    fails(bed, ucp_tag_recv_nbx(bed->a->worker, target.memory, LENGTH, 1, -1, &none), "a receive");
    fails(bed, ucp_get_nbx(bed->a->ep, target.memory, LENGTH, exposed.remote, rkey, &none), "a get");
    fails(bed, ucp_put_nbx(bed->a->ep, target.memory, LENGTH, exposed.remote, rkey, &none), "a put");
    unsigned lines = printed("");
    want(bed->a, lines <= 1, "lines: %u", lines);
    ucp_rkey_destroy(rkey);
    survivor_close(bed);
    area_free(&target);
    survivor_end(bed, 1 << 20, MANAGED);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
