/* Lists of pieces in host memory and in both devices' memory, as source and as target. UCX 1.22 crashes. */
#include "gpu.h"

#include <stdlib.h>

#define PIECES 5
#define GAP    32 /* bytes behind each piece */

static const place_t places[PIECES] = {HOST, GPU0, MANAGED, GPU1, GPU0};

typedef struct {
    area_t       areas[PIECES];
    ucp_dt_iov_t iov[PIECES];
    size_t       total;
} list_t;

/* Pieces of different lengths, `scale` apart, the kinds of memory beginning with the one numbered `first`. */
static void list_make(const side_t *side, list_t *list, size_t scale, int first)
{
    list->total = 0;
    for (int i = 0; i < PIECES; i++) {
        size_t length      = scale * (size_t)(1 + (i + first) % PIECES) + (size_t)i % 3;
        list->areas[i]      = area_make(side, places[(i + first) % PIECES], length + GAP);
        list->iov[i].buffer = list->areas[i].memory;
        list->iov[i].length = length;
        list->total += length;
        area_set(&list->areas[i], 0x5a);
    }
}

static void list_fill(const list_t *list, unsigned seed)
{
    char  *bytes = data_make(list->total, seed);
    size_t at    = 0;

    for (int i = 0; i < PIECES; i++) {
        if (list->areas[i].memory != NULL) {
            area_write(&list->areas[i], 0, bytes + at, list->iov[i].length);
        }
        at += list->iov[i].length;
    }
    free(bytes);
}

static int list_check(const list_t *list, unsigned seed)
{
    size_t at   = 0;
    int    good = 1;

    for (int i = 0; i < PIECES; i++) {
        size_t length = list->iov[i].length;
        good = good && area_check(&list->areas[i], 0, length, at, seed)[0] == 'g' &&
               area_is(&list->areas[i], length, GAP, 0x5a);
        at += length;
    }
    return good;
}

static void list_free(list_t *list)
{
    for (int i = 0; i < PIECES; i++) {
        area_free(&list->areas[i]);
    }
}

/* A list into a list, a list into one area, an area into a list. */
static void message(bed_t *bed, size_t scale, int first, int from_list, int to_list)
{
    ucp_request_param_t iov  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    ucp_request_param_t area = {.op_attr_mask = 0};
    unsigned            seed = (unsigned)scale + (unsigned)first;
    list_t              from, to;
    ucs_status_ptr_t    sent, received = NULL;

    list_make(bed->a, &from, scale, first);
    list_make(bed->b, &to, scale, first + 2);
    size_t length = from_list ? from.total : to.total;
    area_t source = area_make(bed->a, GPU1, length), target = area_make(bed->b, GPU0, length);
    list_fill(&from, seed);
    area_fill(&source, 0, length, seed);
    if (bed->b != NULL) {
        received = to_list ? ucp_tag_recv_nbx(bed->b->worker, to.iov, PIECES, 3, -1, &iov)
                           : ucp_tag_recv_nbx(bed->b->worker, target.memory, length, 3, -1, &area);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = from_list ? ucp_tag_send_nbx(bed->a->ep, from.iov, PIECES, 3, &iov)
                         : ucp_tag_send_nbx(bed->a->ep, source.memory, length, 3, &area);
        ucs_status_t status = bed_wait(bed, sent);
        want(bed->a, status == UCS_OK, "%zu from %d, %s to %s: %s", scale, first, from_list ? "list" : "area",
             to_list ? "list" : "area", status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        int good = to_list ? list_check(&to, seed) : area_check(&target, 0, length, 0, seed)[0] == 'g';
        want(bed->b, status == UCS_OK && good, "%zu from %d, %s to %s: %s, good %d", scale, first,
             from_list ? "list" : "area", to_list ? "list" : "area", status_name(status), good);
    }
    bed_sync(bed);
    list_free(&from);
    list_free(&to);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    static const size_t scales[] = {1, 100, 3000, 50000, 400000};
    bed_params_t        params   = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    for (int i = 0; i < 5; i++) {
        for (int first = 0; first < PIECES; first++) {
            message(bed, scales[i], first, 1, 1);
            message(bed, scales[i], first, 1, 0);
            message(bed, scales[i], first, 0, 1);
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
