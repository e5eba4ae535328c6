/* The model of time: nothing is seen before it is due. What a busy machine makes later is no failure. */
#include "cases.h"

enum { MICRO = 1000, LONG = 8 << 20 }; /* ns; bytes, at 6.8 GB/s 1.23 ms */

static struct side *open_long(int socket)
{
    struct side *side = side_open(socket, 0);

    GOOD(utofu_reg_mem(side->vcq, memory(LONG), LONG, 0, &side->stadd));
    return side;
}

/* ns from the post to the local notice of a put, the shortest of some. */
static uint64_t round_trip(struct side *side, struct hello to)
{
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 50; i++) {
        uint64_t from = clock_ns(), ns;

        GOOD(utofu_put_piggyback8(side->vcq, to.id, 1, to.stadd, 8, 0, LOCAL, NULL));
        expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
        ns = clock_ns() - from;
        least = ns < least ? ns : least;
    }
    return least;
}

/* The settings: 100 us a way, 50 us a hop, shape 5x1x1x1x1x1, so the other side, on node 1, is a neighbour. */
void time_active(int socket)
{
    struct side *side = open_long(socket);
    struct hello peer = side_meet(side);
    uint64_t from, ns;
    void *cbdata;

    CHECK(round_trip(side, peer) >= 200 * MICRO);
    /* One put occupies both TNIs for its length; the second comes behind it, and not the gap of latency more. */
    from = clock_ns();
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, LONG, 0, TCQ | LOCAL, NULL));
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, LONG, 0, LOCAL, NULL));
    GOOD(tcq_next(side->vcq, &cbdata));
    ns = clock_ns() - from;
    CHECK(ns >= 1233 * MICRO);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    ns = clock_ns() - from;
    CHECK(ns >= 1433 * MICRO);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    ns = clock_ns() - from;
    CHECK(ns >= 2667 * MICRO);
    /* A get: request, then the data. */
    from = clock_ns();
    GOOD(utofu_get(side->vcq, peer.id, side->stadd, peer.stadd, LONG, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    ns = clock_ns() - from;
    CHECK(ns >= 1433 * MICRO);
    from = clock_ns();
    GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
    ns = clock_ns() - from;
    CHECK(ns >= 200 * MICRO);
    /* A notice that is due sooner is not held up by one that came before it: a long put to the other, a short one to us. */
    from = clock_ns();
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, LONG, 1, LOCAL, NULL));
    GOOD(utofu_armw8(side->vcq, side->id, UTOFU_ARMW_OP_ADD, 1, side->stadd, 2, LOCAL, NULL));
    EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS).edata, 1);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
    side_tell(side);
}

void time_passive(int socket)
{
    struct side *side = open_long(socket);

    side_meet(side);
    side_await(side);
}

/* Two hops further: node 2 of a ring of five is one more hop away than node 1, node 3 as well, by the other way round. */
void hops_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);

    CHECK(round_trip(side, peer) >= 300 * MICRO);
    side_tell(side);
}

void hops_passive(int socket)
{
    set_node(3);
    passive_waits(socket);
}
