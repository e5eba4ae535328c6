/* Many messages to a receiver that does not progress, mixed sizes in order, and the largest sizes. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define TAG 0x99
#ifndef FEW
enum { MANY = 100000, MIXED = 6000, LARGE_MB = 256 };
#else /* where every packet is made by an emulated processor: c_tests/rxe */
enum { MANY = 1000, MIXED = 150, LARGE_MB = 4 };
#endif

static ucs_status_ptr_t requests[MANY];
static uint64_t         numbers[MANY];

/* Bytes of the largest message: PRESSURE_MB where the data passes a software adapter. */
static size_t large(void)
{
    const char *megabytes = getenv("PRESSURE_MB");

    return (megabytes != NULL ? strtoul(megabytes, NULL, 10) : LARGE_MB) << 20;
}

/* Waits until the other side has arrived here, too; without progress if possible. */
static void silent_wait(bed_t *bed, const side_t *from)
{
    char byte = 'w';

    if (from == NULL) {
        void *worker_a = NULL, *worker_b = NULL;
        if (bed->a != NULL) {
            worker_a       = bed->a->worker;
            bed->a->worker = NULL;
        }
        if (bed->b != NULL) {
            worker_b       = bed->b->worker;
            bed->b->worker = NULL;
        }
        bed_transfer(bed, from, &byte, 1, &byte, 1);
        if (bed->a != NULL) {
            bed->a->worker = worker_a;
        }
        if (bed->b != NULL) {
            bed->b->worker = worker_b;
        }
    } else {
        bed_transfer(bed, from, &byte, 1, &byte, 1);
    }
}

static void finish_sends(bed_t *bed, const char *what)
{
    int good = 0;

    for (int i = 0; bed->a != NULL && i < MANY; i++) {
        good += bed_wait(bed, requests[i]) == UCS_OK;
    }
    fact(bed->a, "%s: %d good", what, good);
    bed_sync(bed);
}

static void many_tags(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t            got;
    int                 in_order = 0;

    for (uint64_t i = 0; bed->a != NULL && i < MANY; i++) {
        numbers[i]  = i;
        requests[i] = ucp_tag_send_nbx(bed->a->ep, &numbers[i], 8, TAG, &param);
    }
    silent_wait(bed, bed->a);
    for (uint64_t i = 0; bed->b != NULL && i < MANY; i++) {
        bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, &got, 8, TAG, -1, &param));
        in_order += got == i;
    }
    fact(bed->b, "tags in order: %d", in_order);
    finish_sends(bed, "tags");
}

static volatile uint64_t am_count, am_in_order;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    uint64_t number;

    (void)arg, (void)header, (void)header_length, (void)length, (void)param;
    memcpy(&number, data, sizeof(number));
    am_in_order += number == am_count;
    am_count++;
    return UCS_OK;
}

static void many_messages(bed_t *bed)
{
    ucp_request_param_t    param   = {.op_attr_mask = 0};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = 1, .cb = on_message};

    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
    }
    bed_sync(bed);
    for (uint64_t i = 0; bed->a != NULL && i < MANY; i++) {
        numbers[i]  = i;
        requests[i] = ucp_am_send_nbx(bed->a->ep, 1, NULL, 0, &numbers[i], 8, &param);
    }
    silent_wait(bed, bed->a);
    if (bed->b != NULL) {
        BED_UNTIL(bed, am_count == MANY);
        fact(bed->b, "active messages in order: %d", (int)am_in_order);
    }
    finish_sends(bed, "active messages");
}

static void many_puts(bed_t *bed, window_kind_t kind)
{
    window_t            window;
    ucp_request_param_t param = {.op_attr_mask = 0};

    window_open(bed, &window, kind, MANY * 8);
    for (uint64_t i = 0; bed->a != NULL && i < MANY; i++) {
        numbers[i]  = i;
        requests[i] = ucp_put_nbx(bed->a->ep, &numbers[i], 8, window.remote + i * 8, window.rkey, &param);
    }
    silent_wait(bed, bed->a);
    if (bed->a != NULL) {
        fact(bed->a, "flush: %s", status_name(bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &param))));
    }
    finish_sends(bed, "puts");
    int good = 0;
    for (uint64_t i = 0; bed->b != NULL && i < MANY; i++) {
        good += ((uint64_t *)window.memory)[i] == i;
    }
    fact(bed->b, "put: %d good", good);
    window_close(bed, &window);
}

/* A stream of messages of every kind of size, up to 64 in flight, each checked for its position and content. */
static void mixed_sizes(bed_t *bed)
{
    enum { IN_FLIGHT = 64 };
    static const size_t sizes[] = {8, 100, 8192, 1, 20000, 64, 0, 300000, 2000, 8};
    static char        *out[IN_FLIGHT];
    ucs_status_ptr_t    sent[IN_FLIGHT] = {NULL};
    ucp_request_param_t param = {.op_attr_mask = 0};
    char               *in    = malloc(300000);
    int                 good  = 0;

    for (unsigned i = 0; i < MIXED + IN_FLIGHT; i++) {
        unsigned slot = i % IN_FLIGHT;
        if (bed->a != NULL && i < MIXED) {
            bed_wait(bed, sent[slot]);
            free(out[slot]);
            out[slot]  = data_make(sizes[i % 10], i);
            sent[slot] = ucp_tag_send_nbx(bed->a->ep, out[slot], sizes[i % 10], TAG, &param);
        }
        /* where both sides are in this process the receiver follows at half the distance */
        unsigned received = i - IN_FLIGHT / 2;
        if (bed->b != NULL && i >= IN_FLIGHT / 2 && received < MIXED) {
            size_t size = sizes[received % 10];
            good += bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, in, 300000, TAG, -1, &param)) == UCS_OK &&
                    data_check(in, size, received)[0] == 'g';
        }
    }
    for (int slot = 0; bed->a != NULL && slot < IN_FLIGHT; slot++) {
        bed_wait(bed, sent[slot]);
        free(out[slot]);
    }
    fact(bed->b, "mixed sizes: %d good", good);
    free(in);
    bed_sync(bed);
}

static void largest_message(bed_t *bed)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    size_t              length   = large();
    char               *out      = bed->a != NULL ? data_make(length, 5) : NULL;
    char               *in       = bed->b != NULL ? calloc(1, length) : NULL;
    ucs_status_ptr_t    received = NULL, sent = NULL;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, in, length, TAG, -1, &param);
    }
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(bed->a->ep, out, length, TAG, &param);
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        fact(bed->b, "largest message: %s, %s", status_name(status), data_check(in, length, 5));
    }
    fact(bed->a, "largest message: %s", status_name(bed_wait(bed, sent)));
    bed_sync(bed);
    free(out);
    free(in);
}

static void largest_window(bed_t *bed, window_kind_t kind)
{
    window_t            window;
    ucp_request_param_t param  = {.op_attr_mask = 0};
    size_t              length = large();
    char               *data  = bed->a != NULL ? data_make(length, 6) : NULL;

    window_open(bed, &window, kind, length);
    if (bed->a != NULL) {
        ucs_status_t put   = bed_wait(bed, ucp_put_nbx(bed->a->ep, data, length, window.remote, window.rkey, &param));
        ucs_status_t flush = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        memset(data, 0, length);
        ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, data, length, window.remote, window.rkey, &param));
        fact(bed->a, "largest window: put %s, flush %s, get %s, %s", status_name(put), status_name(flush),
             status_name(get), data_check(data, length, 6));
    }
    window_close(bed, &window);
    free(data);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA};

    bed_open(bed, &params);
    many_tags(bed);
    many_messages(bed);
    many_puts(bed, WINDOW_ALLOCATED);
    many_puts(bed, WINDOW_MALLOCED);
    mixed_sizes(bed);
    largest_message(bed);
    largest_window(bed, WINDOW_ALLOCATED);
    largest_window(bed, WINDOW_MALLOCED);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
