/* The model of time: no notice is visible before it is due. Delays by a busy machine are no failure. */
#include "cases.h"

/* The settings: 100 us a way and back, 50 us a hop, 1 MB/s; a ring of five nodes. */
enum { MICRO = 1000, SLACK = 50000000 };                           /* ns */
enum { LONG = 20000, LASTS = 20000 * MICRO, WAY = 100 * MICRO }; /* bytes; ns */

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

static void put_long(struct side *side, struct hello to, int number, unsigned long flags)
{
    GOOD(utofu_put(side->vcq, to.id, side->stadd, to.stadd, LONG, number, flags, NULL));
}

/* One put occupies both TNIs for its length; the second follows it without another latency. */
static void occupation(struct side *side, struct hello peer)
{
    uint64_t from = clock_ns();
    void *cbdata;

    put_long(side, peer, 0, TCQ | LOCAL);
    put_long(side, peer, 0, LOCAL);
    GOOD(tcq_next(side->vcq, &cbdata));
    CHECK(clock_ns() - from >= LASTS);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    CHECK(clock_ns() - from >= LASTS + 2 * WAY);
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    CHECK(clock_ns() - from >= 2 * LASTS + 2 * WAY);
}

/* A get: request, then the data; and an atomic. */
static void answers(struct side *side, struct hello peer)
{
    uint64_t from = clock_ns();

    GOOD(utofu_get(side->vcq, peer.id, side->stadd, peer.stadd, LONG, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    CHECK(clock_ns() - from >= LASTS + 2 * WAY);
    from = clock_ns();
    GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
    CHECK(clock_ns() - from >= 2 * WAY);
}

/*
 * A notice that is due sooner is not delayed by one that was written before it: a long put to the other side, then from
 * another TNI a short one to this process. Tried again when this process was not running between the two posts.
 */
static void overtaking(struct side *side, struct hello peer)
{
    bool overtook = false;
    utofu_vcq_hdl_t second;

    GOOD(utofu_create_vcq(1, 0, &second));
    for (int i = 0; i < 20 && !overtook; i++) {
        struct utofu_mrq_notice first;

        put_long(side, peer, 1, LOCAL);
        GOOD(utofu_put_piggyback8(second, side->id, 1, side->stadd, 8, 2, REMOTE, NULL));
        GOOD(mrq_next(side->vcq, &first));
        overtook = first.edata == 2;
        GOOD(mrq_next(side->vcq, &first));
    }
    CHECK(overtook);
}

/* The other side, on node 1, is a neighbour. */
void time_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    uint64_t ns = round_trip(side, peer);

    CHECK(ns >= 2 * WAY && ns < SLACK);
    occupation(side, peer);
    answers(side, peer);
    overtaking(side, peer);
    side_signal(side);
}

/* Node 3 of the ring is two hops away, by the other way round: one more than a neighbour. */
void hops_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    uint64_t ns = round_trip(side, peer);

    CHECK(ns >= 2 * WAY + 100 * MICRO && ns < SLACK);
    side_signal(side);
}

void hops_passive(int socket)
{
    set_node(3);
    passive_waits(socket);
}
