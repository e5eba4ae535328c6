/* Cases of registered memory: STADDs, and the errors of invalid ones. */
#include <string.h>
#include <sys/mman.h>

#include "cases.h"

/* A second VCQ on the CQ of the first, and one on another CQ. */
struct trio {
    utofu_vcq_hdl_t one, same_cq, other_cq;
};

static struct trio trio_open(void)
{
    struct trio trio;

    GOOD(utofu_create_vcq_with_cmp_id(2, 1, 0, &trio.one));
    GOOD(utofu_create_vcq_with_cmp_id(2, 4, 0, &trio.same_cq));
    GOOD(utofu_create_vcq(2, UTOFU_VCQ_FLAG_EXCLUSIVE, &trio.other_cq));
    return trio;
}

static utofu_stadd_t registered(utofu_vcq_hdl_t vcq, void *address, size_t size)
{
    utofu_stadd_t stadd = 0;

    GOOD(utofu_reg_mem(vcq, address, size, 0, &stadd));
    return stadd;
}

static void reserved_stags(const struct trio *trio, char *buffer)
{
    utofu_stadd_t stadd, queried;
    utofu_vcq_id_t id;

    GOOD(utofu_reg_mem_with_stag(trio->one, buffer, 4096, 17, 0, &stadd));
    GOOD(utofu_query_vcq_id(trio->one, &id));
    GOOD(utofu_query_stadd(id, 17, &queried));
    EQUAL(queried, stadd);
    GOOD(utofu_query_vcq_id(trio->other_cq, &id));
    GOOD(utofu_query_stadd(id, 17, &queried));
    CHECK(queried != stadd);
    EQUAL(utofu_query_stadd(id, 256, &queried), UTOFU_ERR_INVALID_STAG);
    EQUAL(utofu_reg_mem_with_stag(trio->one, buffer, 4096, 256, 0, &stadd), UTOFU_ERR_INVALID_STAG);
    EQUAL(utofu_reg_mem_with_stag(trio->one, buffer + 128, 256, 18, 0, &stadd), UTOFU_ERR_INVALID_ADDRESS);
    EQUAL(utofu_reg_mem_with_stag(trio->same_cq, buffer + 256, 256, 17, 0, &stadd), UTOFU_ERR_USED);
    GOOD(utofu_dereg_mem(trio->one, queried = stadd, 0));
    EQUAL(utofu_dereg_mem(trio->one, queried, 0), UTOFU_ERR_INVALID_STADD);
    GOOD(utofu_reg_mem_with_stag(trio->same_cq, buffer + 256, 256, 17, 0, &stadd));
    EQUAL(stadd, queried);
}

void stadds_active(int socket)
{
    struct trio trio = trio_open();
    char *buffer = memory(65536), *unmapped = memory(4096);
    utofu_stadd_t one, again;

    (void)socket;
    one = registered(trio.one, buffer, 5000);
    EQUAL(registered(trio.same_cq, buffer, 5000), one);
    CHECK(registered(trio.other_cq, buffer, 5000) != one);
    CHECK(registered(trio.one, buffer + 1, 5000) != one);
    EQUAL(registered(trio.one, buffer, 5000), one);
    GOOD(utofu_dereg_mem(trio.one, one, 0));
    GOOD(utofu_dereg_mem(trio.one, one, 0));
    EQUAL(utofu_dereg_mem(trio.one, one, 0), UTOFU_ERR_INVALID_STADD); /* the other VCQ's */
    GOOD(utofu_dereg_mem(trio.same_cq, one, 0));
    again = registered(trio.one, buffer, 5000);
    CHECK(again != one);
    EQUAL(utofu_dereg_mem(trio.one, again + 1, 0), UTOFU_ERR_INVALID_STADD);
    munmap(unmapped, 4096);
    EQUAL(utofu_reg_mem(trio.one, unmapped, 4096, 0, &again), UTOFU_ERR_INVALID_ADDRESS);
    EQUAL(utofu_reg_mem(trio.one, buffer, 0, 0, &again), UTOFU_ERR_INVALID_SIZE);
    EQUAL(utofu_reg_mem(trio.one, buffer, 1, 2, &again), UTOFU_ERR_INVALID_FLAGS);
    EQUAL(counter("registrations"), 6);
    EQUAL(counter("deregistrations"), 3);
    reserved_stags(&trio, buffer);
}

/* Sixteen registrations of a CQ, not more; freeing a VCQ frees its registrations. */
void stags_end_active(int socket)
{
    struct trio trio = trio_open();
    char *buffer = memory(65536);
    utofu_stadd_t stadd;

    (void)socket;
    for (int i = 0; i < 16; i++)
        registered(i % 2 ? trio.one : trio.same_cq, buffer + i, 100);
    EQUAL(utofu_reg_mem(trio.one, buffer, 101, 0, &stadd), UTOFU_ERR_FULL);
    GOOD(utofu_free_vcq(trio.same_cq));
    for (int i = 0; i < 8; i++)
        registered(trio.one, buffer + i, 200);
    EQUAL(utofu_reg_mem(trio.one, buffer, 201, 0, &stadd), UTOFU_ERR_FULL);
}

/* ---- errors ---- */

void errors_passive(int socket)
{
    struct side *side = side_open(socket, 0);
    char *unmapped = memory(8192);
    struct hello more[2];

    side_meet(side);
    GOOD(utofu_reg_mem(side->vcq, side->buffer, 4096, UTOFU_REG_MEM_FLAG_READ_ONLY, &more[0].stadd));
    GOOD(utofu_reg_mem(side->vcq, unmapped, 8192, 0, &more[1].stadd));
    munmap(unmapped, 8192);
    for (int i = 0; i < 2; i++) {
        side->stadd = more[i].stadd;
        side_meet(side);
    }
    side_wait(side);
    CHECK(queues_empty(side->vcq)); /* failed operations have raised no notice at the target */
    for (int i = 0; i < 4096; i++)
        EQUAL(side->buffer[i], 0);
}

static void put_fails(struct side *side, struct hello to, utofu_stadd_t lcl, utofu_stadd_t rmt, size_t length, int code)
{
    struct utofu_mrq_notice notice;
    void *cbdata;

    GOOD(utofu_put(side->vcq, to.id, lcl, rmt, length, 33, REMOTE, &to));
    if (code > UTOFU_ERR_MRQ_OTHER) {
        EQUAL(tcq_next(side->vcq, &cbdata), code);
        CHECK(cbdata == &to);
    } else {
        notice = expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, code);
        EQUAL(notice.edata, 33);
        EQUAL(notice.vcq_id, to.id);
    }
    CHECK(queues_empty(side->vcq));
}

static void get_fails(struct side *side, struct hello from, utofu_stadd_t lcl, utofu_stadd_t rmt, size_t length,
                      int code)
{
    GOOD(utofu_get(side->vcq, from.id, lcl, rmt, length, 34, REMOTE, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, code);
    CHECK(queues_empty(side->vcq));
}

static void atomic_fails(struct side *side, struct hello to, utofu_stadd_t rmt, int code)
{
    GOOD(utofu_armw8(side->vcq, to.id, UTOFU_ARMW_OP_ADD, 1, rmt, 35, REMOTE, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, code);
    CHECK(queues_empty(side->vcq));
}

static void refusals(struct side *side, struct hello to)
{
    char data[64] = "";

    EQUAL(utofu_put(side->vcq, to.id, side->stadd, to.stadd, 16777216, 0, 0, NULL), UTOFU_ERR_INVALID_SIZE);
    EQUAL(utofu_put(side->vcq, to.id, side->stadd, to.stadd, 8, 256, 0, NULL), UTOFU_ERR_INVALID_EDATA);
    EQUAL(utofu_put(side->vcq, to.id, side->stadd, to.stadd, 8, 0, 1 << 4, NULL), UTOFU_ERR_INVALID_FLAGS);
    EQUAL(utofu_put(side->vcq, 0, side->stadd, to.stadd, 8, 0, 0, NULL), UTOFU_ERR_INVALID_VCQ_ID);
    EQUAL(utofu_put(0, to.id, side->stadd, to.stadd, 8, 0, 0, NULL), UTOFU_ERR_INVALID_VCQ_HDL);
    EQUAL(utofu_put_piggyback(side->vcq, to.id, data, to.stadd, 33, 0, 0, NULL), UTOFU_ERR_INVALID_SIZE);
    EQUAL(utofu_put_piggyback8(side->vcq, to.id, 0, to.stadd, 9, 0, 0, NULL), UTOFU_ERR_INVALID_SIZE);
    EQUAL(utofu_armw8(side->vcq, to.id, 9, 0, to.stadd, 0, 0, NULL), UTOFU_ERR_INVALID_OP);
    EQUAL(utofu_put_stride(side->vcq, to.id, side->stadd, to.stadd, 8, 16, 0, 0, 0, NULL), UTOFU_ERR_INVALID_NUMBER);
    EQUAL(utofu_post_toq(side->vcq, data, sizeof(data), NULL), UTOFU_ERR_INVALID_SIZE);
    CHECK(queues_empty(side->vcq));
}

void errors_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side), read_only = side_meet(side), unmapped = side_meet(side);
    utofu_stadd_t none = 1ULL << 57, own_read_only, own_unmapped, stale;
    char *memory_unmapped = memory(8192);

    GOOD(utofu_reg_mem(side->vcq, side->buffer, 4096, UTOFU_REG_MEM_FLAG_READ_ONLY, &own_read_only));
    GOOD(utofu_reg_mem(side->vcq, memory_unmapped, 8192, 0, &own_unmapped));
    munmap(memory_unmapped, 8192);
    GOOD(utofu_reg_mem(side->vcq, side->buffer, 64, 0, &stale));
    GOOD(utofu_dereg_mem(side->vcq, stale, 0));
    put_fails(side, peer, none, peer.stadd, 8, UTOFU_ERR_TCQ_STADD);
    put_fails(side, peer, stale, peer.stadd, 8, UTOFU_ERR_TCQ_STADD);
    put_fails(side, peer, side->stadd + BUFFER - 7, peer.stadd, 8, UTOFU_ERR_TCQ_LENGTH);
    put_fails(side, peer, own_unmapped, peer.stadd, 8, UTOFU_ERR_TCQ_MEMORY);
    put_fails(side, peer, side->stadd, none, 8, UTOFU_ERR_MRQ_RMT_STADD);
    put_fails(side, peer, side->stadd, peer.stadd + BUFFER - 4095, 4096, UTOFU_ERR_MRQ_RMT_LENGTH);
    put_fails(side, peer, side->stadd, read_only.stadd, 8, UTOFU_ERR_MRQ_RMT_MEMORY);
    put_fails(side, peer, side->stadd, unmapped.stadd, 8, UTOFU_ERR_MRQ_RMT_MEMORY);
    get_fails(side, peer, none, peer.stadd, 8, UTOFU_ERR_MRQ_LCL_STADD);
    get_fails(side, peer, side->stadd + BUFFER - 7, peer.stadd, 8, UTOFU_ERR_MRQ_LCL_LENGTH);
    get_fails(side, peer, own_read_only, peer.stadd, 8, UTOFU_ERR_MRQ_LCL_MEMORY);
    get_fails(side, peer, own_unmapped, peer.stadd, 8, UTOFU_ERR_MRQ_LCL_MEMORY);
    get_fails(side, peer, side->stadd, none, 8, UTOFU_ERR_MRQ_RMT_STADD);
    get_fails(side, peer, side->stadd, peer.stadd + BUFFER, 1, UTOFU_ERR_MRQ_RMT_LENGTH);
    get_fails(side, peer, side->stadd, unmapped.stadd, 8, UTOFU_ERR_MRQ_RMT_MEMORY);
    atomic_fails(side, peer, none, UTOFU_ERR_MRQ_RMT_STADD);
    atomic_fails(side, peer, peer.stadd + 4, UTOFU_ERR_MRQ_RMT_STADD);
    atomic_fails(side, peer, peer.stadd + BUFFER - 4, UTOFU_ERR_MRQ_RMT_LENGTH);
    atomic_fails(side, peer, read_only.stadd, UTOFU_ERR_MRQ_RMT_MEMORY);
    atomic_fails(side, peer, unmapped.stadd, UTOFU_ERR_MRQ_RMT_MEMORY);
    GOOD(utofu_get(side->vcq, peer.id, side->stadd, read_only.stadd, 8, 0, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    refusals(side, peer);
    side_signal(side);
}
