/* Cases of the operations: puts, gets, atomics and their notices at both sides. */
#include <string.h>

#include "cases.h"

static void fill(char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        at[i] = seed + i * 7 + (i >> 8);
}

static bool filled(const char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] != (char)(seed + i * 7 + (i >> 8)))
            return false;
    return true;
}

void nothing_passive(int socket)
{
    (void)socket;
}

/* Exposes its memory until the other side is done. */
void passive_waits(int socket)
{
    struct side *side = side_open(socket, 0);

    side_meet(side);
    side_wait(side);
}

/* Lengths of puts; each is also the offset of its data, in both memories. */
static const size_t lengths[] = {1, 2, 3, 7, 8, 31, 32, 33, 64, 4096, 65537};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]), GAP = 70000, SHORT = 1000000 /* offset of the piggybacks */ };

static void puts_with_notices(struct side *side, struct hello to)
{
    struct utofu_mrq_notice notice;
    void *cbdata;

    for (size_t i = 0; i < LENGTHS; i++) {
        size_t at = i * GAP + lengths[i];

        fill(side->buffer + at, lengths[i], i);
        GOOD(utofu_put(side->vcq, to.id, side->stadd + at, to.stadd + at, lengths[i], 200 + i,
                       TCQ | LOCAL | REMOTE | STRONG, side->buffer + i));
        EQUAL(tcq_next(side->vcq, &cbdata), UTOFU_SUCCESS);
        CHECK(cbdata == side->buffer + i);
        notice = expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
        EQUAL(notice.vcq_id, to.id);
        EQUAL(notice.edata, 200 + i);
        EQUAL(notice.lcl_stadd, side->stadd + at + lengths[i]);
        EQUAL(notice.rmt_stadd, to.stadd + at + lengths[i]);
    }
}

static void piggybacks(struct side *side, struct hello to)
{
    char data[32] = "what rides in the descriptor...";

    GOOD(utofu_put_piggyback(side->vcq, to.id, data, to.stadd + SHORT, 32, 1, REMOTE, NULL));
    memset(data, 0, sizeof(data)); /* the source was overwritten already */
    GOOD(utofu_put_piggyback8(side->vcq, to.id, 0x1122334455667788, to.stadd + SHORT + 40, 8, 2, REMOTE, NULL));
    GOOD(utofu_put_piggyback8(side->vcq, to.id, 0x1122334455667788, to.stadd + SHORT + 48, 3, 3, REMOTE, NULL));
    CHECK(queues_empty(side->vcq)); /* no notice was requested here */
}

static void gets(struct side *side, struct hello from)
{
    struct utofu_mrq_notice notice;

    side_wait(side); /* its memory is filled by now */
    for (size_t i = 0; i < LENGTHS; i++) {
        GOOD(utofu_get(side->vcq, from.id, side->stadd + 1, from.stadd + i * GAP, lengths[i], i, LOCAL, NULL));
        notice = expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
        EQUAL(notice.edata, i);
        EQUAL(notice.lcl_stadd, side->stadd + 1 + lengths[i]);
        CHECK(filled(side->buffer + 1, lengths[i], 100 + i));
    }
    GOOD(utofu_get(side->vcq, from.id, side->stadd, from.stadd, 8, 9, REMOTE | LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
}

static uint64_t old_value(struct side *side)
{
    return expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS).rmt_value;
}

static void atomics(struct side *side, struct hello to)
{
    static const struct {
        enum utofu_armw_op op;
        uint64_t value, after;
    } steps[] = {{UTOFU_ARMW_OP_SWAP, 0xf0f0f0f0f0f0f0f0, 0xf0f0f0f0f0f0f0f0},
                 {UTOFU_ARMW_OP_ADD, 0x1010101010101011, 0x0101010101010101},
                 {UTOFU_ARMW_OP_XOR, 0xff, 0x01010101010101fe},
                 {UTOFU_ARMW_OP_AND, 0xffffffff0000ffff, 0x01010101000001fe},
                 {UTOFU_ARMW_OP_OR, 0xff0000, 0x0101010100ff01fe}};
    uint64_t now8 = 0;
    uint32_t now4 = 0;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        GOOD(utofu_armw8(side->vcq, to.id, steps[i].op, steps[i].value, to.stadd + 64, 1, LOCAL | REMOTE, NULL));
        EQUAL(old_value(side), now8);
        now8 = steps[i].after;
        GOOD(utofu_armw4(side->vcq, to.id, steps[i].op, steps[i].value, to.stadd + 72, 1, LOCAL, NULL));
        EQUAL(old_value(side), now4);
        now4 = steps[i].op == UTOFU_ARMW_OP_ADD ? now4 + (uint32_t)steps[i].value : (uint32_t)steps[i].after;
    }
    GOOD(utofu_cswap8(side->vcq, to.id, now8, 5, to.stadd + 64, 1, LOCAL, NULL));
    EQUAL(old_value(side), now8);
    GOOD(utofu_cswap8(side->vcq, to.id, 6, 7, to.stadd + 64, 1, LOCAL, NULL));
    EQUAL(old_value(side), 5);
    GOOD(utofu_cswap4(side->vcq, to.id, now4, 5, to.stadd + 72, 1, LOCAL, NULL));
    EQUAL(old_value(side), now4);
    GOOD(utofu_cswap4(side->vcq, to.id, 5, 9, to.stadd + 72, 1, LOCAL, NULL));
    EQUAL(old_value(side), 5);
    GOOD(utofu_get(side->vcq, to.id, side->stadd, to.stadd + 64, 16, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    EQUAL(*(uint64_t *)side->buffer, 5);
    EQUAL(*(uint32_t *)(side->buffer + 8), 9);
    EQUAL(*(uint32_t *)(side->buffer + 12), 0);
}

void one_sided_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);

    puts_with_notices(side, peer);
    piggybacks(side, peer);
    gets(side, peer);
    side_signal(side);
    side_wait(side);
    atomics(side, peer);
    CHECK(queues_empty(side->vcq));
    side_signal(side);
}

/* The same operations in memory that both can map. */
void mapped_active(int socket)
{
    memory_is_shared = true;
    one_sided_active(socket);
}

void mapped_passive(int socket)
{
    memory_is_shared = true;
    one_sided_passive(socket);
}

void one_sided_passive(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    struct utofu_mrq_notice notice;

    for (size_t i = 0; i < LENGTHS; i++) {
        size_t at = i * GAP + lengths[i];

        notice = expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS);
        EQUAL(notice.vcq_id, peer.id);
        EQUAL(notice.edata, 200 + i);
        EQUAL(notice.rmt_stadd, side->stadd + at + lengths[i]);
        CHECK(filled(side->buffer + at, lengths[i], i));
        EQUAL(side->buffer[at + lengths[i]], 0);
    }
    for (int i = 1; i <= 3; i++)
        EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, i);
    CHECK(strcmp(side->buffer + SHORT, "what rides in the descriptor...") == 0);
    EQUAL(*(uint64_t *)(side->buffer + SHORT + 40), 0x1122334455667788);
    EQUAL(*(uint32_t *)(side->buffer + SHORT + 48), 0x667788);
    for (size_t i = 0; i < LENGTHS; i++)
        fill(side->buffer + i * GAP, lengths[i], 100 + i);
    side_signal(side);
    EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_RMT_GET, UTOFU_SUCCESS).edata, 9);
    side_wait(side);
    memset(side->buffer, 0, 128);
    side_signal(side);
    for (int i = 0; i < 5; i++)
        expect(side->vcq, UTOFU_MRQ_TYPE_RMT_ARMW, UTOFU_SUCCESS);
    side_wait(side);
    EQUAL(*(uint64_t *)(side->buffer + 64), 5);
}
