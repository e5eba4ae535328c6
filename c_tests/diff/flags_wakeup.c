/* Each event that can wake a worker, alone and with others. Wakeup itself: wakeup.c. */
#define _GNU_SOURCE
#include "bed.h"

#include <poll.h>

static int sleeps(bed_t *bed, side_t *side, ucp_worker_h worker)
{
    struct pollfd fd = {.events = POLLIN};
    ucs_status_t  status;

    must(side, ucp_worker_get_efd(worker, &fd.fd), "ucp_worker_get_efd");
    BED_UNTIL(bed, (ucp_worker_progress(worker), status = ucp_worker_arm(worker)) != UCS_ERR_BUSY);
    return status == UCS_OK && poll(&fd, 1, 0) == 0 && ucp_worker_signal(worker) == UCS_OK &&
           poll(&fd, 1, 1000) == 1;
}

/* Each event alone: the worker is created, sleeps and can be woken by a signal. */
static void event_rules(bed_t *bed, side_t *side)
{
    static const struct {
        const char *name;
        unsigned    events;
    } events[] = {
        {"RMA", UCP_WAKEUP_RMA},
        {"AMO", UCP_WAKEUP_AMO},
        {"TAG_SEND", UCP_WAKEUP_TAG_SEND},
        {"TAG_RECV", UCP_WAKEUP_TAG_RECV},
        {"TX", UCP_WAKEUP_TX},
        {"RX", UCP_WAKEUP_RX},
        {"RMA, AMO, TAG_SEND", UCP_WAKEUP_RMA | UCP_WAKEUP_AMO | UCP_WAKEUP_TAG_SEND},
    };

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_EVENTS, .events = events[i].events};
        ucp_worker_h        worker;

        must(side, ucp_worker_create(side->context, &params, &worker), "ucp_worker_create");
        rule(side, "F5", "woken for %s: %d", events[i].name, sleeps(bed, side, worker));
        ucp_worker_destroy(worker);
    }
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_WAKEUP};

    bed_open_unconnected(bed, &params);
    event_rules(bed, bed->a != NULL ? bed->a : bed->b);
    bed_sync(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
