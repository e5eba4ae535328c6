/* Cases of the queues: full ones, and the limits of a post. */
#include <string.h>

#include "cases.h"

enum { TOQ_DEPTH = 8, TCQ_DEPTH = 4, MRQ_DEPTH = 16 }; /* the settings of the case `full` */

void full_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    struct utofu_mrq_notice notice;
    size_t count;
    void *cbdata;

    /* The TOQ: only polling the TCQ makes room, and there is nothing to find. */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TOQ_DEPTH; i++)
            GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, 0, 0, NULL));
        EQUAL(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, 0, 0, NULL), UTOFU_ERR_BUSY);
        EQUAL(utofu_nop(side->vcq, 0, NULL), UTOFU_ERR_BUSY);
        EQUAL(utofu_poll_tcq(side->vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    }
    EQUAL(counter("busy"), 6);
    /* The TCQ, whose entries come in order; what has none does not fill it. */
    for (long i = 0; i < TCQ_DEPTH; i++)
        GOOD(utofu_nop(side->vcq, TCQ, (void *)i));
    EQUAL(utofu_nop(side->vcq, TCQ, NULL), UTOFU_ERR_BUSY);
    GOOD(utofu_nop(side->vcq, 0, NULL));
    GOOD(utofu_query_num_unread_tcq(side->vcq, &count));
    EQUAL(count, TCQ_DEPTH);
    for (long i = 0; i < TCQ_DEPTH; i++) {
        GOOD(utofu_poll_tcq(side->vcq, 0, &cbdata));
        EQUAL((long)cbdata, i);
        GOOD(utofu_nop(side->vcq, TCQ, (void *)(i + TCQ_DEPTH)));
    }
    for (long i = 0; i < TCQ_DEPTH; i++)
        GOOD(utofu_poll_tcq(side->vcq, 0, &cbdata));
    EQUAL(utofu_poll_tcq(side->vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    /* The MRQ of the other side, which does not poll: up to its length no notice is lost. */
    for (int i = 0; i <= MRQ_DEPTH; i++) {
        if (i == MRQ_DEPTH) {
            side_signal(side);
            side_wait(side);
        }
        GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, i, REMOTE | LOCAL, NULL));
        GOOD(mrq_next(side->vcq, &notice));
        utofu_poll_tcq(side->vcq, 0, &cbdata);
    }
    EQUAL(counter("overflows"), 1);
    side_signal(side);
    side_wait(side);
}

void full_passive(int socket)
{
    struct side *side = side_open(socket, 0);
    struct utofu_mrq_notice notice;
    size_t count;

    side_meet(side);
    side_wait(side);
    GOOD(utofu_query_num_unread_mrq(side->vcq, &count));
    EQUAL(count, MRQ_DEPTH);
    side_signal(side);
    side_wait(side);
    for (int i = 0; i < 2 * MRQ_DEPTH; i++)
        EQUAL(utofu_poll_mrq(side->vcq, 0, &notice), UTOFU_ERR_MRQ_OTHER);
    GOOD(utofu_free_vcq(side->vcq)); /* the next notice is intact */
    GOOD(utofu_create_vcq(0, 0, &side->vcq));
    EQUAL(utofu_poll_mrq(side->vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
    side_signal(side);
}

/* Descriptors behind each other, one post; strides. */
void descriptors_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    char desc[4 * 512];
    size_t size, end = 0;
    void *cbdata;

    for (int i = 0; i < 256; i++)
        side->buffer[i] = i;
    GOOD(utofu_prepare_put(side->vcq, peer.id, side->stadd, peer.stadd, 10, 1, REMOTE, desc + end, &size));
    end += size;
    GOOD(utofu_prepare_put_piggyback8(side->vcq, peer.id, 0x4241, peer.stadd + 10, 2, 2, REMOTE, desc + end, &size));
    end += size;
    GOOD(utofu_prepare_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 7, peer.stadd + 16, 3, REMOTE | STRONG, desc + end,
                             &size));
    end += size;
    GOOD(utofu_prepare_nop(side->vcq, TCQ, desc + end, &size));
    end += size;
    EQUAL(counter("posts"), 0);
    GOOD(utofu_post_toq(side->vcq, desc, end, &end));
    EQUAL(counter("posts"), 1);
    EQUAL(counter("nops"), 1);
    GOOD(tcq_next(side->vcq, &cbdata));
    CHECK(cbdata == &end && queues_empty(side->vcq));
    desc[0] ^= 1;
    EQUAL(utofu_post_toq(side->vcq, desc, end, NULL), UTOFU_ERR_INVALID_DESC);
    GOOD(utofu_put_stride(side->vcq, peer.id, side->stadd, peer.stadd + 256, 3, 8, 4, 4, REMOTE, NULL));
    GOOD(utofu_put_gap(side->vcq, peer.id, side->stadd, peer.stadd + 512, 8, 5, REMOTE, 1024, 1, NULL));
    side_wait(side);
    GOOD(utofu_get_stride_gap(side->vcq, peer.id, side->stadd + 4096, peer.stadd, 1, 2, 5, 6, LOCAL, 0, 0, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    CHECK(memcmp(side->buffer + 4096, "\0\0\2\0\4\0\6\0\10", 10) == 0);
    side_signal(side);
}

void descriptors_passive(int socket)
{
    static const char strided[32] = {0, 1, 2, [8] = 8, 9, 10, [16] = 16, 17, 18, [24] = 24, 25, 26};
    struct side *side = side_open(socket, 0);

    side_meet(side);
    for (int i = 1; i <= 5; i++)
        EQUAL(expect(side->vcq, i == 3 ? UTOFU_MRQ_TYPE_RMT_ARMW : UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, i);
    CHECK(memcmp(side->buffer, "\0\1\2\3\4\5\6\7\10\11AB\0", 13) == 0);
    EQUAL(side->buffer[16], 7);
    CHECK(memcmp(side->buffer + 256, strided, sizeof(strided)) == 0);
    EQUAL(side->buffer[519], 7);
    side_signal(side);
    side_wait(side);
}
