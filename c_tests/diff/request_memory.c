/* Memory of requests: the user's area, init and cleanup, requests supplied by the user (rules.txt R1 to R3). */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#define AREA      40 /* bytes of user area: not a power of two on purpose */
#define RECEIVES  300
#define GUARD     64
#define GUARD_FILL 0x5a

static unsigned inits, cleanups, bad_cleanups;

/* The user's area of a request. Set up by init only: the library must never write to it afterwards. */
typedef struct {
    void    *self;
    uint64_t uses;
    uint8_t  fill[AREA - 16];
} area_t;

static void area_init(void *request)
{
    area_t *area = request;

    area->self = request;
    area->uses = 0;
    memset(area->fill, 0xc3, sizeof(area->fill));
    inits++;
}

static int area_good(const area_t *area)
{
    return area->self == (const void *)area && data_is(area->fill, sizeof(area->fill), 0xc3);
}

static void area_cleanup(void *request)
{
    cleanups++;
    bad_cleanups += !area_good(request);
}

/* Posts RECEIVES receives at once, looks at their areas, cancels them. */
static void many_requests(bed_t *bed, side_t *side, int round)
{
    static char         buffer[16];
    ucp_request_param_t param = {.op_attr_mask = 0};
    area_t             *areas[RECEIVES];
    int                 good = 0, distinct = 1;

    for (int i = 0; i < RECEIVES; i++) {
        areas[i] = ucp_tag_recv_nbx(side->worker, buffer, sizeof(buffer), 0x9999, -1, &param);
        good += area_good(areas[i]);
        areas[i]->uses++;
    }
    for (int i = 1; i < RECEIVES; i++) {
        long gap = labs((char *)areas[i] - (char *)areas[i - 1]);
        distinct = distinct && gap >= AREA;
    }
    rule(side, "R1", "round %d: areas good %d, apart %d", round, good, distinct);
    for (int i = 0; i < RECEIVES; i++) {
        ucp_request_cancel(side->worker, areas[i]);
        ucs_status_t status = bed_wait(bed, areas[i]);
        good -= status == UCS_ERR_CANCELED;
    }
    rule(side, "R1", "round %d: not canceled %d", round, good);
}

static size_t request_size(side_t *side)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};

    must(side, ucp_context_query(side->context, &attr), "ucp_context_query");
    return attr.request_size;
}

/* Memory for one request supplied by the user, with guards around it. */
typedef struct {
    uint8_t *memory;
    size_t   size; /* the library's part */
    void    *request;
} own_request_t;

static own_request_t own_make(side_t *side)
{
    own_request_t own;

    own.size    = request_size(side);
    own.memory  = aligned_alloc(64, (GUARD + own.size + AREA + GUARD + 63) / 64 * 64);
    own.request = own.memory + GUARD + own.size;
    memset(own.memory, GUARD_FILL, GUARD + own.size + AREA + GUARD);
    return own;
}

static int own_intact(const own_request_t *own)
{
    return data_is(own->memory, GUARD, GUARD_FILL) && data_is(own->request, AREA + GUARD, GUARD_FILL);
}

static unsigned own_callbacks;

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    own_callbacks += request == user_data && status == UCS_OK;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    own_callbacks += request == user_data && status == UCS_OK && info->sender_tag == 0x20;
}

/* One message sent and received with requests supplied by the user; these are never freed. */
static void own_message(bed_t *bed, size_t size, int expected)
{
    own_request_t       out, in;
    ucs_status_ptr_t    sent = NULL, received = NULL;
    void               *from = data_make(size, 5), *to = calloc(1, size + 1);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    own_callbacks = 0;
    if (bed->b != NULL && expected) {
        in            = own_make(bed->b);
        param.request = param.user_data = in.request;
        param.cb.recv = on_received;
        received      = ucp_tag_recv_nbx(bed->b->worker, to, size, 0x20, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        out           = own_make(bed->a);
        param.request = param.user_data = out.request;
        param.cb.send = on_sent;
        sent          = ucp_tag_send_nbx(bed->a->ep, from, size, 0x20, &param);
    }
    if (bed->b != NULL && !expected) {
        ucp_tag_recv_info_t info;
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 0x20, -1, 0, &info) != NULL);
        in            = own_make(bed->b);
        param.request = param.user_data = in.request;
        param.cb.recv = on_received;
        received      = ucp_tag_recv_nbx(bed->b->worker, to, size, 0x20, -1, &param);
    }
    unsigned wanted = (bed->a != NULL) + (bed->b != NULL);
    BED_UNTIL(bed, own_callbacks == wanted);
    bed_sync(bed);
    if (bed->a != NULL) {
        rule(bed->a, "R3", "own request, %zu: returned ours %d, status %s, intact %d", size, sent == out.request,
             status_name(ucp_request_check_status(out.request)), own_intact(&out));
        free(out.memory);
    }
    if (bed->b != NULL) {
        rule(bed->b, "R3", "own request, %zu, expected %d: returned ours %d, status %s, intact %d, data %s",
             size, expected,
             received == in.request, status_name(ucp_request_check_status(in.request)), own_intact(&in),
             data_check(to, size, 5));
        free(in.memory);
    }
    free(from);
    free(to);
}

static void script(bed_t *bed)
{
    bed_params_t params = {
        .features        = UCP_FEATURE_TAG,
        .request_size    = AREA,
        .request_init    = area_init,
        .request_cleanup = area_cleanup,
    };

    bed_open(bed, &params);
    side_t *sides[] = {bed->a, bed->b};
    for (int i = 0; i < 2; i++) {
        if (sides[i] != NULL) {
            many_requests(bed, sides[i], 1);
            unsigned after_first = inits;
            many_requests(bed, sides[i], 2);
            rule(sides[i], "R2", "init for each %d, again for reused ones %u", inits >= RECEIVES, inits - after_first);
        }
    }
    bed_sync(bed);
    static const size_t sizes[] = {0, 8, 1000, 20000, 300000};
    for (int i = 0; i < 5; i++) {
        unsigned before = inits;
        own_message(bed, sizes[i], 1);
        own_message(bed, sizes[i], 0);
        rule(bed->a, "R2", "init for own requests: %u", inits - before);
    }
    rule(bed->a, "R2", "cleanups before the end: %u", cleanups);
    bed_close(bed);
    rule(bed->a, "R2", "a cleanup for every init: %d, bad %u", cleanups == inits, bad_cleanups);
    rule(bed->b, "R2", "a cleanup for every init: %d, bad %u", cleanups == inits, bad_cleanups);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
