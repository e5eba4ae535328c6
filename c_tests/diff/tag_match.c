/* Which receive gets which message: masks, wildcards in posting order, unexpected messages in order of arrival. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>

#define ALL  UINT64_MAX
#define LAST 0xeeeeeeeeeeeeeeee

typedef struct {
    ucp_tag_t tag, mask;
} wanted_t;

static ucs_status_ptr_t post_receive(side_t *side, void *data, size_t size, ucp_tag_t tag, ucp_tag_t mask)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    return side == NULL ? NULL : ucp_tag_recv_nbx(side->worker, data, size, tag, mask, &param);
}

static ucs_status_ptr_t post_send(side_t *side, const void *data, size_t size, ucp_tag_t tag)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return side == NULL ? NULL : ucp_tag_send_nbx(side->ep, data, size, tag, &param);
}

/* A sends one message per tag, of `size` bytes whose first eight number it. `sent` is for finish_sends(). */
static void start_sends(bed_t *bed, const ucp_tag_t *tags, int count, size_t size, ucs_status_ptr_t *sent, char **data)
{
    for (int i = 0; i < count; i++) {
        data[i]               = data_make(size, (unsigned)i);
        *(uint64_t *)data[i] = (uint64_t)i;
        sent[i]               = post_send(bed->a, data[i], size, tags[i]);
    }
}

static void finish_sends(bed_t *bed, int count, ucs_status_ptr_t *sent, char **data)
{
    int good = 0;

    for (int i = 0; i < count; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK;
        free(data[i]);
    }
    fact(bed->a, "sent %d", good);
}

/* The message that receive `index` got. */
static void received_fact(bed_t *bed, int index, ucs_status_ptr_t request, const char *got)
{
    ucp_tag_recv_info_t info = {0};

    BED_UNTIL(bed, ucp_tag_recv_request_test(request, &info) != UCS_INPROGRESS);
    rule(bed->b, "T2", "receive %d: message %d, tag %#lx, length %zu, %s", index, (int)*(const uint64_t *)got,
         (long)info.sender_tag, info.length, status_name(ucp_request_check_status(request)));
    ucp_request_free(request);
}

/* Receives first, then as many messages: each goes to the earliest posted receive that it matches. */
static void expected_facts(bed_t *bed, const char *what, const wanted_t *wanted, const ucp_tag_t *tags, int count,
                           size_t size)
{
    ucs_status_ptr_t sent[16], received[16];
    char            *out[16], *in = malloc((size_t)count * size);

    fact(bed->b, "expected, %s, %zu", what, size);
    for (int i = 0; bed->b != NULL && i < count; i++) {
        received[i] = post_receive(bed->b, in + (size_t)i * size, size, wanted[i].tag, wanted[i].mask);
    }
    bed_sync(bed);
    start_sends(bed, tags, count, size, sent, out);
    for (int i = 0; bed->b != NULL && i < count; i++) {
        received_fact(bed, i, received[i], in + (size_t)i * size);
    }
    finish_sends(bed, count, sent, out);
    bed_sync(bed);
    free(in);
}

/* Messages first: a receive gets the earliest arrived one that it matches. */
static void unexpected_facts(bed_t *bed, const char *what, const wanted_t *wanted, const ucp_tag_t *tags, int count,
                             size_t size)
{
    ucs_status_ptr_t    sent[16];
    char               *out[16], *in = malloc(size), last = 'l';
    ucp_tag_recv_info_t info;

    fact(bed->b, "unexpected, %s, %zu", what, size);
    start_sends(bed, tags, count, size, sent, out);
    bed_wait(bed, post_send(bed->a, &last, sizeof(last), LAST));
    if (bed->b != NULL) {
        /* messages of one endpoint arrive in order: when the last one has, all have */
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, LAST, ALL, 0, &info) != NULL);
        for (int i = 0; i < count; i++) {
            received_fact(bed, i, post_receive(bed->b, in, size, wanted[i].tag, wanted[i].mask), in);
        }
        bed_wait(bed, post_receive(bed->b, &last, sizeof(last), LAST, ALL));
    }
    finish_sends(bed, count, sent, out);
    bed_sync(bed);
    free(in);
}

static void both_facts(bed_t *bed, const char *what, const wanted_t *wanted, const ucp_tag_t *tags, int count)
{
    static const size_t sizes[] = {8, 3000, 200000};

    for (int i = 0; i < 3; i++) {
        expected_facts(bed, what, wanted, tags, count, sizes[i]);
        unexpected_facts(bed, what, wanted, tags, count, sizes[i]);
    }
}

static void one_tag(bed_t *bed)
{
    static const wanted_t  wanted[] = {{7, ALL}, {7, ALL}, {7, ALL}, {7, ALL}, {7, ALL}, {7, ALL}};
    static const ucp_tag_t tags[]   = {7, 7, 7, 7, 7, 7};

    both_facts(bed, "one tag", wanted, tags, 6);
}

/* Exact and wildcard receives for the same messages: the one posted first wins. */
static void wildcards(bed_t *bed)
{
    static const wanted_t  wanted[] = {{1, ALL}, {0, 0}, {1, ALL}, {0x100, 0xff00}, {0, 0}, {0x101, ALL}, {2, 0xff}};
    static const ucp_tag_t tags[]   = {0x101, 1, 1, 0x101, 0x202, 2, 0x101};

    both_facts(bed, "wildcards", wanted, tags, 7);
}

/* Bits outside of the mask are ignored in both tags. */
static void outside_the_mask(bed_t *bed)
{
    static const wanted_t  wanted[] = {{0xab01, 0xff}, {0xffffffffffffff02, 0xff}, {0x0300000000000000, 0xffull << 56}};
    static const ucp_tag_t tags[]   = {0xff01, 0x02, 0x03ffffffffffff42};

    both_facts(bed, "bits outside of the mask", wanted, tags, 3);
}

/* As in MPI: communicator, source and tag in one; any source, any tag. */
static void mpi_like(bed_t *bed)
{
    static const wanted_t wanted[] = {
        {0x0001000500000007, ALL},
        {0x0001000000000007, 0xffff0000ffffffff},
        {0x0001000500000000, 0xffffffff00000000},
        {0x0001000000000000, 0xffff000000000000},
        {0x0002000000000000, 0xffff000000000000},
    };
    static const ucp_tag_t tags[] = {0x0001000600000009, 0x0001000500000008, 0x0001000600000007, 0x0001000500000007,
                                     0x0002000100000001};

    /* one message per receive in either order of matching */
    expected_facts(bed, "communicator, source and tag", wanted, tags, 5, 64);
    unexpected_facts(bed, "communicator, source and tag", wanted, tags, 5, 64);
}

/* Long and short messages of one tag stay in order though their protocols differ. */
static void sizes_in_order(bed_t *bed)
{
    static const size_t sizes[] = {8, 300000, 16, 2 << 20, 9000, 8, 70000, 32};
    enum { COUNT = 8 };
    ucs_status_ptr_t sent[COUNT], received[COUNT];
    char            *out[COUNT], *in[COUNT];

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            out[i] = data_make(sizes[i], (unsigned)i);
            in[i]  = malloc(2 << 20);
        }
        for (int i = 0; round == 0 && bed->b != NULL && i < COUNT; i++) {
            received[i] = post_receive(bed->b, in[i], 2 << 20, 0x33, ALL);
        }
        bed_sync(bed);
        for (int i = 0; i < COUNT; i++) {
            sent[i] = post_send(bed->a, out[i], sizes[i], 0x33);
        }
        for (int i = 0; bed->b != NULL && i < COUNT; i++) {
            ucp_tag_recv_info_t info = {0};
            if (round == 1) {
                received[i] = post_receive(bed->b, in[i], 2 << 20, 0x33, ALL);
            }
            BED_UNTIL(bed, ucp_tag_recv_request_test(received[i], &info) != UCS_INPROGRESS);
            ucp_request_free(received[i]);
            fact(bed->b, "in order, %d: length %zu, data %s", i, info.length,
                 data_check(in[i], info.length, (unsigned)i));
        }
        for (int i = 0; i < COUNT; i++) {
            bed_wait(bed, sent[i]);
            free(in[i]);
            free(out[i]);
        }
        bed_sync(bed);
    }
}

/* Many tags, received in another order than they were sent in. */
static void many_tags(bed_t *bed)
{
    enum { COUNT = 2000 };
    static uint64_t         values[COUNT], got[COUNT];
    static ucs_status_ptr_t sent[COUNT];
    int                     good = 0;
    ucp_tag_recv_info_t     info;

    for (int i = 0; i < COUNT; i++) {
        values[i] = (uint64_t)i * 17;
        sent[i]   = post_send(bed->a, &values[i], 8, (ucp_tag_t)i << 20);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, (ucp_tag_t)(COUNT - 1) << 20, ALL, 0, &info) != NULL);
        for (int i = 0; i < COUNT; i++) {
            int which = (int)((unsigned)i * 997u % COUNT);
            good += bed_wait(bed, post_receive(bed->b, &got[which], 8, (ucp_tag_t)which << 20, ALL)) == UCS_OK &&
                    got[which] == (uint64_t)which * 17;
        }
    }
    fact(bed->b, "many tags: %d good", good);
    for (int i = 0; i < COUNT; i++) {
        bed_wait(bed, sent[i]);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG};

    bed_open(bed, &params);
    one_tag(bed);
    wildcards(bed);
    outside_the_mask(bed);
    mpi_like(bed);
    sizes_in_order(bed);
    many_tags(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
