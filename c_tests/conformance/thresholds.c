/*
 * Messages, streams, puts and gets of the sizes around each threshold: of the protocols that ucp_ep_print_info()
 * reports for the endpoint, and around each power of two. Every byte is checked, and the bytes behind.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 0x77, AM = 3, MOST = 160, LARGEST = 4 << 20, GUARD = 64, HEADER = 16 };

static size_t sizes[MOST];
static size_t size_count; /* the same in both processes */

static void add_size(size_t size)
{
    for (size_t i = 0; i < size_count; i++) {
        if (sizes[i] == size) {
            return;
        }
    }
    if (size <= LARGEST && size_count < MOST) {
        sizes[size_count++] = size;
    }
}

static void add_around(size_t size)
{
    add_size(size - 1);
    add_size(size);
    add_size(size + 1);
}

/* Both ends of each range in the report: "113..16K". Returns how many there are. */
static int add_reported(ucp_ep_h ep)
{
    char  *text = NULL;
    size_t length;
    int    found = 0;
    FILE  *out   = open_memstream(&text, &length);

    ucp_ep_print_info(ep, out);
    fclose(out);
    for (char *at = text; (at = strstr(at, "..")) != NULL; at += 2) {
        char         *end;
        unsigned long size = strtoul(at + 2, &end, 10);
        if (end == at + 2) {
            continue; /* inf */
        }
        size <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
        add_around(size);
        /* The library's own header takes part of a packet. */
        add_size(size - 8);
        add_size(size - HEADER);
        found++;
    }
    free(text);
    return found;
}

static void agree_on_sizes(bed_t *bed)
{
    int found = 0;

    if (bed->a != NULL) {
        add_size(0);
        for (size_t size = 1; size <= LARGEST; size *= 4) {
            add_around(size);
        }
        found = add_reported(bed->a->ep);
        if (found == 0 && on_rucp() && bed->topology != TOPOLOGY_SELF) {
            fact(bed->a, "no threshold in the report");
        }
    }
    size_t known[MOST], bytes = size_count * sizeof(sizes[0]);
    memcpy(known, sizes, bytes);
    bytes = bed_transfer(bed, bed->a, known, bytes, sizes, sizeof(sizes));
    if (bed->a == NULL) {
        size_count = bytes / sizeof(sizes[0]);
    }
}

/* Counts what is right, and prints the sizes of what is not. */
static void judge(const side_t *side, const char *what, size_t size, int good, size_t *right)
{
    *right += (size_t)good;
    if (!good) {
        fact(side, "%s of %zu: bad", what, size);
    }
}

static void finish(const side_t *side, const char *what, size_t right)
{
    fact(side, "%s: %s", what, right == size_count ? "all good" : "some bad");
}

static int is_whole(const char *in, size_t size, unsigned seed)
{
    return data_check(in, size, seed)[0] == 'g' && data_is(in + size, GUARD, 0x5a);
}

static char *guarded(size_t size)
{
    char *memory = malloc(size + GUARD);

    memset(memory, 0x5a, size + GUARD);
    return memory;
}

static void by_tag(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    size_t              right = 0;

    for (size_t i = 0; i < size_count; i++) {
        char            *out = data_make(sizes[i], (unsigned)i), *in = guarded(sizes[i]);
        ucs_status_ptr_t sent = NULL, received = NULL;
        if (bed->b != NULL) {
            received = ucp_tag_recv_nbx(bed->b->worker, in, sizes[i], TAG, -1, &param);
        }
        if (bed->a != NULL) {
            sent = ucp_tag_send_nbx(bed->a->ep, out, sizes[i], TAG, &param);
        }
        if (bed->b != NULL) {
            ucs_status_t status = bed_wait(bed, received);
            judge(bed->b, "tag", sizes[i], status == UCS_OK && is_whole(in, sizes[i], (unsigned)i), &right);
        }
        bed_wait(bed, sent);
        bed_sync(bed);
        free(out);
        free(in);
    }
    finish(bed->b, "tags", right);
}

/* The active message that has arrived. */
static struct {
    bed_t           *bed;
    char            *in;
    size_t           length;
    int              arrived;
    ucs_status_ptr_t request;
    char             header[HEADER];
} got;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};

    (void)arg;
    got.length = length;
    if (header_length == HEADER) {
        memcpy(got.header, header, HEADER);
    }
    got.arrived = 1;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        got.request = ucp_am_recv_data_nbx(got.bed->b->worker, data, got.in, length, &plain);
        return UCS_INPROGRESS;
    }
    memcpy(got.in, data, length);
    return UCS_OK;
}

static void by_message(bed_t *bed)
{
    ucp_request_param_t    param   = {.op_attr_mask = 0};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM, .cb = on_message};
    size_t                 right   = 0;

    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
    }
    for (size_t i = 0; i < size_count; i++) {
        char            *out = data_make(sizes[i], (unsigned)i), *header = data_make(HEADER, (unsigned)i + 1);
        ucs_status_ptr_t sent = NULL;
        got.bed = bed, got.in = guarded(sizes[i]), got.arrived = 0, got.request = NULL, got.length = 0;
        bed_sync(bed); /* the message comes only after this */
        if (bed->a != NULL) {
            sent = ucp_am_send_nbx(bed->a->ep, AM, header, HEADER, out, sizes[i], &param);
        }
        if (bed->b != NULL) {
            BED_UNTIL(bed, got.arrived);
            ucs_status_t status = bed_wait(bed, got.request);
            judge(bed->b, "active message", sizes[i],
                  status == UCS_OK && got.length == sizes[i] && is_whole(got.in, sizes[i], (unsigned)i) &&
                      memcmp(got.header, header, HEADER) == 0,
                  &right);
        }
        bed_wait(bed, sent);
        bed_sync(bed);
        free(out);
        free(header);
        free(got.in);
    }
    finish(bed->b, "active messages", right);
}

static void by_stream(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    size_t              right = 0, length;

    for (size_t i = 0; i < size_count; i++) {
        char            *out = data_make(sizes[i], (unsigned)i), *in = guarded(sizes[i]);
        ucs_status_ptr_t sent = NULL;
        if (bed->a != NULL && sizes[i] > 0) {
            sent = ucp_stream_send_nbx(bed->a->ep, out, sizes[i], &param);
        }
        if (bed->b != NULL) {
            ucs_status_t status =
                sizes[i] == 0 ? UCS_OK : bed_wait(bed, ucp_stream_recv_nbx(bed->b->ep, in, sizes[i], &length, &all));
            judge(bed->b, "stream", sizes[i], status == UCS_OK && is_whole(in, sizes[i], (unsigned)i), &right);
        }
        bed_wait(bed, sent);
        bed_sync(bed);
        free(out);
        free(in);
    }
    finish(bed->b, "streams", right);
}

static void by_access(bed_t *bed, window_kind_t kind, const char *what)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    size_t              puts = 0, gets = 0;
    window_t            window;

    window_open(bed, &window, kind, LARGEST + GUARD);
    for (size_t i = 0; i < size_count; i++) {
        char *out = data_make(sizes[i], (unsigned)i), *in = guarded(sizes[i]);
        if (bed->b != NULL) {
            memset(window.memory, 0x5a, sizes[i] + GUARD);
        }
        bed_sync(bed);
        if (bed->a != NULL) {
            bed_wait(bed, ucp_put_nbx(bed->a->ep, out, sizes[i], window.remote, window.rkey, &param));
            bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        }
        bed_sync(bed);
        if (bed->b != NULL) {
            judge(bed->b, "put", sizes[i], is_whole((char *)window.memory, sizes[i], (unsigned)i), &puts);
        }
        if (bed->a != NULL) {
            ucs_status_t status =
                bed_wait(bed, ucp_get_nbx(bed->a->ep, in, sizes[i], window.remote, window.rkey, &param));
            judge(bed->a, "get", sizes[i], status == UCS_OK && is_whole(in, sizes[i], (unsigned)i), &gets);
        }
        bed_sync(bed);
        free(out);
        free(in);
    }
    fact(bed->b, "%s", what);
    finish(bed->b, "puts", puts);
    finish(bed->a, "gets", gets);
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_STREAM};

    bed_open(bed, &params);
    agree_on_sizes(bed);
    by_tag(bed);
    by_message(bed);
    by_stream(bed);
    by_access(bed, WINDOW_ALLOCATED, "memory that UCP allocated");
    by_access(bed, WINDOW_MALLOCED, "other memory");
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
