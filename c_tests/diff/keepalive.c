/* Keepalive: a worker that sleeps on its descriptor wakes up at the interval while a peer's errors are handled. */
#define _GNU_SOURCE
#include "bed.h"

#include <poll.h>
#include <stdlib.h>

#define WAKES    20 /* more than connecting can leave to do */
#define INTERVAL "20ms"
#define TIMEOUT_MS 10000 /* milliseconds */

static void failed(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    fact(argument, "the error handler was called: %s", status_name(status));
}

static void context_open(side_t *side)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucp_config_t *config;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    must(side, ucp_config_modify(config, "KEEPALIVE_INTERVAL", INTERVAL), "ucp_config_modify");
    must(side, ucp_init(&params, config, &side->context), "ucp_init");
    ucp_config_release(config);
}

static void worker_open(side_t *side)
{
    ucp_worker_params_t params = {.field_mask = 0};

    must(side, ucp_worker_create(side->context, &params, &side->worker), "ucp_worker_create");
}

static void ep_open(side_t *side, const char *address)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = failed, .arg = side},
    };

    must(side, ucp_ep_create(side->worker, &params, &side->ep), "ucp_ep_create");
}

/* One message in each direction, so that the two are connected. */
static void greet(bed_t *bed, side_t *from, side_t *to)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    ucs_status_ptr_t    received = NULL;
    char                byte     = 1, got = 0;

    if (to != NULL) {
        received = ucp_tag_recv_nbx(to->worker, &got, 1, 1, -1, &param);
    }
    if (from != NULL) {
        must(from, bed_wait(bed, ucp_tag_send_nbx(from->ep, &byte, 1, 1, &param)), "ucp_tag_send_nbx");
    }
    if (to != NULL) {
        must(to, bed_wait(bed, received), "ucp_tag_recv_nbx");
    }
    bed_sync(bed);
}

/* Sleeps until it was woken this many times; returns how many wakeups had no event. */
static unsigned sleeps(side_t *side)
{
    struct pollfd poll_fd = {.events = POLLIN};
    unsigned      woken   = 0;

    must(side, ucp_worker_get_efd(side->worker, &poll_fd.fd), "ucp_worker_get_efd");
    while (woken < WAKES) {
        while (ucp_worker_progress(side->worker) != 0) {
        }
        if (ucp_worker_arm(side->worker) != UCS_OK) {
            continue;
        }
        if (poll(&poll_fd, 1, TIMEOUT_MS) != 1) {
            break;
        }
        woken++;
    }
    return woken;
}

static void script(bed_t *bed)
{
    static char to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    side_t     *b = bed->topology == TOPOLOGY_SELF ? NULL : bed->b;

    if (bed->a != NULL) {
        context_open(bed->a);
        worker_open(bed->a);
    }
    if (b != NULL) {
        if (bed->a == NULL) {
            context_open(b);
        } else {
            b->context = bed->a->context;
        }
        worker_open(b);
    } else if (bed->b != NULL) {
        bed->b->worker = bed->a->worker;
    }
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->a != NULL) {
        ep_open(bed->a, to_b);
    }
    if (b != NULL) {
        ep_open(b, to_a);
    }
    bed_sync(bed);
    greet(bed, bed->a, bed->b);
    greet(bed, b, b == NULL ? NULL : bed->a);
    if (bed->a != NULL) {
        rule(bed->a, "2.3.5", "a sleeper with a peer wakes up, and again: %u times", sleeps(bed->a));
    }
    bed_sync(bed);
    if (b != NULL) {
        rule(b, "2.3.5", "a sleeper with a peer wakes up, and again: %u times", sleeps(b));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        fact(bed->a, "close: %s", status_name(bed_disconnect(bed, bed->a->ep)));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_worker_destroy(bed->a->worker);
    }
    if (b != NULL) {
        ucp_worker_destroy(b->worker);
    }
    ucp_cleanup(bed->a != NULL ? bed->a->context : b->context);
}

int main(int argc, char **argv)
{
    setenv("UCX_MM_ERROR_HANDLING", "y", 1); /* otherwise UCX has no error handling through shared memory */
    return bed_main(argc, argv, script);
}
