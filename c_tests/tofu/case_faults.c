/* Cases of injected faults, and of the order that they must not break. */
#include <string.h>

#include "cases.h"

/* The edata of the notices that arrive, one digit each. */
static void expect_order(struct side *side, const char *order)
{
    char arrived[32] = "";

    for (size_t i = 0; i < strlen(order); i++)
        arrived[i] = '0' + expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata;
    if (strcmp(arrived, order) != 0) {
        fprintf(stderr, "puts arrived in the order %s, not %s\n", arrived, order);
        exit(1);
    }
}

static void put(struct side *side, struct hello to, int number, unsigned long flags)
{
    char data[64];

    memset(data, '0' + number, 64);
    memcpy(side->buffer + 64 * number, data, 64);
    if (number % 2)
        GOOD(utofu_put(side->vcq, to.id, side->stadd + 64 * number, to.stadd, 64, number, flags | REMOTE, NULL));
    else
        GOOD(utofu_put_piggyback(side->vcq, to.id, data, to.stadd, 32, number, flags | REMOTE, NULL));
}

void reorder_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    void *cbdata;

    /* Every third is overtaken by the next one. */
    for (int i = 1; i <= 7; i++)
        put(side, peer, i, 0);
    side_wait(side);
    /* Nothing is overtaken by a put with STRONG_ORDER... */
    for (int i = 1; i <= 8; i++)
        put(side, peer, i, STRONG);
    side_wait(side);
    put(side, peer, 1, 0); /* the eighth: counted are those without */
    put(side, peer, 2, 0); /* delayed, the ninth */
    put(side, peer, 3, STRONG);
    put(side, peer, 4, 0);
    side_wait(side);
    /* ... but on another path it is. */
    put(side, peer, 5, 0);
    put(side, peer, 6, TCQ); /* the twelfth */
    put(side, peer, 7, STRONG | UTOFU_ONESIDED_FLAG_PATH(1));
    GOOD(tcq_next(side->vcq, &cbdata));
    side_wait(side);
    /* A single put arrives in the end, though this side makes no further calls. */
    put(side, peer, 1, 0);
    put(side, peer, 2, 0);
    put(side, peer, 3, 0);
    side_wait(side);
    EQUAL(counter("reordered"), 5);
}

void reorder_passive(int socket)
{
    static const char *const orders[] = {"1243576", "12345678", "1234", "576", "123"};
    struct side *side = side_open(socket, 0);

    side_meet(side);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        expect_order(side, i == 0 ? "124357" : orders[i]);
        if (i == 0)
            expect_order(side, "6");
        side_signal(side);
    }
}

void faults_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    uint64_t began;
    void *cbdata;

    fault("node_down=2");
    put(side, peer, 1, 0);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_PEER);
    fault("node_down=1"); /* our own */
    put(side, peer, 1, 0);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_PEER);
    fault("node_down=0 fail_nth=2,fail_code=-198");
    put(side, peer, 1, 0);
    put(side, peer, 2, 0);
    put(side, peer, 3, 0);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_LCL_LENGTH);
    fault("fail_code=-129 fail_nth=1");
    put(side, peer, 4, 0);
    EQUAL(tcq_next(side->vcq, &cbdata), UTOFU_ERR_TCQ_DESC);
    fault("fail_nth=0 busy_nth=3");
    for (int i = 1; i <= 6; i++)
        EQUAL(utofu_nop(side->vcq, 0, NULL), i % 3 == 0 ? UTOFU_ERR_BUSY : UTOFU_SUCCESS);
    fault("busy_nth=0 post_fail_nth=2");
    for (int i = 1; i <= 3; i++)
        EQUAL(utofu_nop(side->vcq, 0, NULL), i == 2 ? UTOFU_ERR_FATAL : UTOFU_SUCCESS);
    fault("post_fail_nth=0 delay_us=3000");
    began = clock_ns();
    put(side, peer, 5, STRONG | LOCAL);
    put(side, peer, 6, LOCAL);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    CHECK(clock_ns() - began >= 3000000);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    fault("delay_us=0 reg_fail_nth=2");
    GOOD(utofu_reg_mem(side->vcq, side->buffer, 8, 0, &side->stadd));
    EQUAL(utofu_reg_mem(side->vcq, side->buffer, 8, 0, &side->stadd), UTOFU_ERR_FULL);
    GOOD(utofu_reg_mem(side->vcq, side->buffer, 8, 0, &side->stadd));
    side_wait(side);
    CHECK(queues_empty(side->vcq));
}

void faults_passive(int socket)
{
    struct side *side = side_open(socket, 0);

    side_meet(side);
    expect_order(side, "1356");
    side_signal(side);
}

/* The counters of one post without registration. */
void counters_active(int socket)
{
    static const char *const expected[] = {"posts=4",           "puts=1",           "piggybacks=1", "gets=1",
                                           "atomics=1",         "nops=0",           "bytes=4112",   "tcq_notices=1",
                                           "local_notices=2",   "remote_notices=1", "strong=1",     "registrations=2",
                                           "deregistrations=0", "busy=0",           "errors=0"};
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);

    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, 4090, 0, TCQ | REMOTE, NULL));
    GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 6, 0, STRONG, NULL));
    GOOD(utofu_get(side->vcq, peer.id, side->stadd, peer.stadd, 8, 0, LOCAL, NULL));
    GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 0, LOCAL, NULL));
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        char name[32];
        int value;

        CHECK(sscanf(expected[i], "%31[^=]=%d", name, &value) == 2);
        if (counter(name) != (uint64_t)value) {
            fprintf(stderr, "%s=%d, not %s\n", name, (int)counter(name), expected[i]);
            exit(1);
        }
    }
    EQUAL(counter("bytes[0]"), 4112);
    EQUAL(counter("bytes[1]"), 0);
    side_signal(side);
}
