/* The calls of MPICH's ucx netmod: old-style active messages, blocking one-sided functions, its teardown. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define AM_ID 0

typedef struct {
    volatile int complete;
} netmod_request_t;

static void request_init(void *request)
{
    ((netmod_request_t *)request)->complete = 0;
}

static void on_done(void *request, ucs_status_t status)
{
    (void)status;
    ((netmod_request_t *)request)->complete = 1;
}

static volatile unsigned am_calls, am_bad;
static volatile uint64_t am_sum;

/* An active message of MPICH carries its header in front of its data, in one buffer. */
static ucs_status_t on_am(void *arg, void *data, size_t length, ucp_ep_h reply_ep, unsigned flags)
{
    const uint8_t *bytes = data;
    uint32_t       number;

    (void)arg, (void)reply_ep, (void)flags;
    memcpy(&number, bytes, sizeof(number));
    am_bad += number != am_calls;
    am_bad += data_check(bytes + 4, length - 4, number)[0] != 'g';
    am_sum += length;
    am_calls++;
    return UCS_OK;
}

static ucs_status_t wait_and_release(bed_t *bed, void *request)
{
    netmod_request_t *netmod = request;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    BED_UNTIL(bed, ucp_request_is_completed(request));
    ucs_status_t status = ucp_request_check_status(request);
    netmod->complete    = 0;
    ucp_request_release(request);
    return status;
}

/* Active messages in order, more than fit at once, sizes mixed up to 16 KiB. */
static void am_facts(bed_t *bed)
{
    enum { COUNT = 400 };
    static void *requests[COUNT];
    static char *buffers[COUNT];
    size_t       total = 0;

    for (uint32_t i = 0; i < COUNT; i++) {
        size_t length = 4 + i * 37 % 16000;
        total += length;
        buffers[i] = data_make(length, 0);
        memcpy(buffers[i], &i, 4);
        data_fill(buffers[i] + 4, length - 4, i);
        if (bed->a != NULL) {
            requests[i] = ucp_am_send_nb(bed->a->ep, AM_ID, buffers[i], length, ucp_dt_make_contig(1), on_done,
                                         UCP_AM_SEND_FLAG_EAGER);
        }
    }
    int good = 0;
    for (int i = 0; i < COUNT; i++) {
        good += wait_and_release(bed, bed->a != NULL ? requests[i] : NULL) == UCS_OK;
    }
    fact(bed->a, "am_send_nb: %d good", good);
    if (bed->b != NULL) {
        BED_UNTIL(bed, am_calls == COUNT);
        fact(bed->b, "messages %u, bad %u, all bytes %d", am_calls, am_bad, am_sum == total);
    }
    bed_sync(bed);
    for (int i = 0; i < COUNT; i++) {
        free(buffers[i]);
    }
}

/* One buffer made of two: header and data as scattered memory. */
static void am_scattered_facts(bed_t *bed)
{
    uint32_t     number = 400;
    char        *data   = data_make(5000, number);
    ucp_dt_iov_t pieces[2] = {{&number, 4}, {data, 5000}};
    void        *request   = NULL;

    if (bed->a != NULL) {
        request = ucp_am_send_nb(bed->a->ep, AM_ID, pieces, 2, ucp_dt_make_iov(), on_done, 0);
    }
    fact(bed->a, "scattered: %s", status_name(wait_and_release(bed, request)));
    if (bed->b != NULL) {
        BED_UNTIL(bed, am_calls == 401);
        fact(bed->b, "scattered: bad %u", am_bad);
    }
    bed_sync(bed);
    free(data);
}

static void one_sided_facts(bed_t *bed, window_kind_t kind)
{
    window_t window;
    uint64_t value = 5, got = 0;

    window_open(bed, &window, kind, 4096);
    if (bed->a != NULL) {
        ucp_ep_h ep = bed->a->ep;
        fact(bed->a, "put_nb: %s",
             status_name(wait_and_release(bed, ucp_put_nb(ep, &value, 8, window.remote, window.rkey, on_done))));
        fact(bed->a, "ep_flush_nb: %s", status_name(wait_and_release(bed, ucp_ep_flush_nb(ep, 0, on_done))));
        fact(bed->a, "get_nb: %s",
             status_name(wait_and_release(bed, ucp_get_nb(ep, &got, 8, window.remote, window.rkey, on_done))));
        fact(bed->a, "got %d", (int)got);
        if (bed->topology != TOPOLOGY_PAIR) {
            value = 6;
            fact(bed->a, "put: %s", status_name(ucp_put(ep, &value, 8, window.remote, window.rkey)));
            fact(bed->a, "ep_flush: %s", status_name(ucp_ep_flush(ep)));
            fact(bed->a, "get: %s", status_name(ucp_get(ep, &got, 8, window.remote, window.rkey)));
            fact(bed->a, "worker_flush: %s", status_name(ucp_worker_flush(bed->a->worker)));
            fact(bed->a, "got %d", (int)got);
        }
    }
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    bed_params_t params = {
        .features     = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM,
        .request_size = sizeof(netmod_request_t),
        .request_init = request_init,
    };

    bed_open(bed, &params);
    if (bed->b != NULL) {
        fact(bed->b, "handler: %s", status_name(ucp_worker_set_am_handler(bed->b->worker, AM_ID, on_am, NULL,
                                                                          UCP_AM_FLAG_WHOLE_MSG)));
    }
    bed_sync(bed);
    am_facts(bed);
    am_scattered_facts(bed);
    one_sided_facts(bed, WINDOW_ALLOCATED);
    one_sided_facts(bed, WINDOW_MALLOCED);
    bed_sync(bed);
    /* both sides leave at the same time, each flushing and disconnecting */
    void *left[2] = {NULL};
    if (bed->a != NULL) {
        left[0]    = ucp_disconnect_nb(bed->a->ep);
        bed->a->ep = NULL;
    }
    if (bed->b != NULL && bed->topology != TOPOLOGY_SELF) {
        left[1]    = ucp_disconnect_nb(bed->b->ep);
        bed->b->ep = NULL;
    }
    fact(bed->a, "disconnect: %s", status_name(wait_and_release(bed, left[0])));
    fact(bed->b, "disconnect: %s", status_name(wait_and_release(bed, left[1])));
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
