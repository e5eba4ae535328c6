/* Tagged messages of every size: eager and rendezvous, expected and unexpected, synchronous, truncated. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

#define TAG   0x1234
#define GUARD 64

static const size_t sizes[] = {
    0, 1, 2, 7, 8, 9, 31, 63, 64, 65, 100, 127, 128, 129, 255, 256, 1000, 1023, 1024, 1025, 2047, 4096, 4097,
    8100, 8192, 8193, 8256, 8257, 9000, 16383, 16384, 16385, 32768, 65535, 65536, 65537, 100000, 131072,
    262144, 262145, 524288, 1048576, 1048577, 2097152, 3000001, 4194304,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

typedef enum { PLAIN, SYNC } kind_t;

static ucs_status_ptr_t post_send(side_t *side, kind_t kind, const void *data, size_t size, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = flags};

    if (side == NULL) {
        return NULL;
    }
    return kind == SYNC ? ucp_tag_send_sync_nbx(side->ep, data, size, TAG, &param)
                        : ucp_tag_send_nbx(side->ep, data, size, TAG, &param);
}

static ucs_status_ptr_t post_receive(side_t *side, void *data, size_t size)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    return side == NULL ? NULL : ucp_tag_recv_nbx(side->worker, data, size, TAG, -1, &param);
}

/* One message of `size` bytes into a buffer of `room`, which has a guard behind it. */
static void exchange(bed_t *bed, kind_t kind, int expected, size_t size, size_t room, uint32_t flags)
{
    unsigned            seed = (unsigned)size + (unsigned)kind;
    char               *out = data_make(size, seed), *in = malloc(room + GUARD);
    ucs_status_ptr_t    sent, received = NULL;
    ucp_tag_recv_info_t info = {0};

    memset(in, 0x5a, room + GUARD);
    if (expected) {
        received = post_receive(bed->b, in, room);
    }
    bed_sync(bed);
    sent = post_send(bed->a, kind, out, size, flags);
    if (bed->b != NULL) {
        if (!expected) {
            BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, TAG, -1, 0, &info) != NULL);
            fact(bed->b, "probed %zu, tag %#lx", info.length, (long)info.sender_tag);
            memset(&info, 0, sizeof(info));
            received = post_receive(bed->b, in, room);
        }
        BED_UNTIL(bed, ucp_tag_recv_request_test(received, &info) != UCS_INPROGRESS);
        ucs_status_t status = ucp_request_check_status(received);
        fact(bed->b, "%zu into %zu: %s, length %zu, tag %#lx, data %s, guard %d", size, room, status_name(status),
             info.length, (long)info.sender_tag, status == UCS_OK ? data_check(in, size, seed) : "partial",
             data_is(in + room, GUARD, 0x5a));
        ucp_request_free(received);
    }
    if (bed->a != NULL) {
        fact(bed->a, "%zu into %zu: %s", size, room, status_name(bed_wait(bed, sent)));
    }
    free(out);
    free(in);
}

static void every_size(bed_t *bed)
{
    for (size_t i = 0; i < SIZES; i++) {
        exchange(bed, PLAIN, 1, sizes[i], sizes[i], 0);
        exchange(bed, PLAIN, 0, sizes[i], sizes[i] + 10, 0);
    }
}

static void synchronous(bed_t *bed)
{
    for (size_t i = 0; i < SIZES; i += 3) {
        exchange(bed, SYNC, 1, sizes[i], sizes[i], 0);
        exchange(bed, SYNC, 0, sizes[i], sizes[i], 0);
    }
}

/* A synchronous send is not complete before its message is matched. */
static void synchronous_waits(bed_t *bed)
{
    static const size_t some[] = {0, 8, 5000, 100000};

    for (int i = 0; i < 4; i++) {
        char               *out = data_make(some[i], 1), *in = malloc(some[i] + 1), done = 'd';
        ucp_tag_recv_info_t info;
        ucs_status_ptr_t    sent = post_send(bed->a, SYNC, out, some[i], 0);

        if (bed->b != NULL) {
            BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, TAG, -1, 0, &info) != NULL);
        }
        bed_sync(bed);
        for (int turn = 0; turn < 2000; turn++) {
            bed_progress(bed);
        }
        if (bed->a != NULL) {
            rule(bed->a, "T8", "unmatched: %s, %s", ptr_status_name(sent), status_name(ucp_request_check_status(sent)));
        }
        bed_transfer(bed, bed->a, &done, 1, &done, 1); /* B receives only after A has tested its send */
        if (bed->b != NULL) {
            rule(bed->b, "T8", "match it: %s", status_name(bed_wait(bed, post_receive(bed->b, in, some[i]))));
        }
        if (bed->a != NULL) {
            rule(bed->a, "T8", "matched: %s", status_name(bed_wait(bed, sent)));
        }
        free(out);
        free(in);
    }
}

static void truncated(bed_t *bed)
{
    static const size_t pairs[][2] = {{1, 0},         {8, 4},          {100, 99},          {1024, 8},
                                      {5000, 4999},   {8192, 0},       {9000, 100},        {20000, 19999},
                                      {70000, 0},     {70000, 69999},  {300000, 8},        {1048576, 1048575},
                                      {4194304, 100}, {4194304, 0},    {4194304, 2000000}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        exchange(bed, PLAIN, 1, pairs[i][0], pairs[i][1], 0);
        exchange(bed, PLAIN, 0, pairs[i][0], pairs[i][1], 0);
        exchange(bed, SYNC, (int)i % 2, pairs[i][0], pairs[i][1], 0);
    }
}

/* Hints change the protocol, not the received data. */
static void hinted(bed_t *bed)
{
    static const uint32_t flags[] = {UCP_OP_ATTR_FLAG_FAST_CMPL, UCP_OP_ATTR_FLAG_MULTI_SEND,
                                     UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    for (int f = 0; f < 3; f++) {
        for (size_t i = 0; i < SIZES; i += 5) {
            exchange(bed, PLAIN, (int)i % 2, sizes[i], sizes[i], flags[f]);
        }
    }
}

/* Receive information of an operation that completes at once is not written when it is truncated. */
static void truncated_at_once(bed_t *bed)
{
    uint64_t            value = 1, got = 0x5a5a5a5a5a5a5a5a;
    ucp_tag_recv_info_t info  = {.length = 4711, .sender_tag = 4712}, probed;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO, .recv_info.tag_info = &info};

    bed_wait(bed, post_send(bed->a, PLAIN, &value, 8, 0));
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, TAG, -1, 0, &probed) != NULL);
        ucs_status_ptr_t result = ucp_tag_recv_nbx(bed->b->worker, &got, 4, TAG, -1, &param);
        rule(bed->b, "T5", "truncated at once: %s, info untouched %d, guard %d", ptr_status_name(result),
             info.length == 4711 && info.sender_tag == 4712, data_is((char *)&got + 4, 4, 0x5a));
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open(bed, &params);
    every_size(bed);
    synchronous(bed);
    synchronous_waits(bed);
    truncated(bed);
    hinted(bed);
    truncated_at_once(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
