/* Cases of VCQs: their ids, their number, their owners. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { TNIS = 6, CQS = 9, CMPS = 8, ALL = TNIS * CQS };

void names_active(int socket)
{
    uint8_t coords[6] = {0, 1, 2, 1, 2, 0}, back[6], path[3] = {1, 2, 1};
    struct utofu_onesided_caps *caps;
    utofu_vcq_id_t id, plain;
    utofu_tni_id_t tni, *tnis;
    utofu_path_id_t path_id;
    utofu_cq_id_t cq;
    uint16_t extra;
    size_t count;

    (void)socket;
    GOOD(utofu_get_onesided_tnis(&tnis, &count));
    EQUAL(count, TNIS);
    EQUAL(tnis[5], 5);
    free(tnis);
    GOOD(utofu_query_onesided_caps(0, &caps));
    EQUAL(caps->max_putget_size, 16777215);
    EQUAL(caps->num_reserved_stags, 256);
    EQUAL(utofu_query_onesided_caps(TNIS, &caps), UTOFU_ERR_INVALID_TNI_ID);
    GOOD(utofu_construct_vcq_id(coords, 3, 7, 5, &id)); /* no process there */
    plain = id;
    GOOD(utofu_get_path_id(id, path, &path_id));
    GOOD(utofu_set_vcq_id_path(&id, path));
    CHECK(id != plain);
    GOOD(utofu_query_vcq_info(id, back, &tni, &cq, &extra));
    CHECK(memcmp(coords, back, 6) == 0 && tni == 3 && cq == 7 && (extra & 0xff) == 5 && extra >> 8 == path_id);
    memset(path, 9, 3);
    GOOD(utofu_get_path_coords(id, path_id, path));
    CHECK(path[0] == 1 && path[1] == 2 && path[2] == 1);
    GOOD(utofu_set_vcq_id_path(&id, NULL));
    EQUAL(id, plain);
    EQUAL(utofu_construct_vcq_id(coords, 6, 0, 0, &id), UTOFU_ERR_INVALID_TNI_ID);
    EQUAL(utofu_construct_vcq_id(coords, 0, 9, 0, &id), UTOFU_ERR_INVALID_CQ_ID);
    EQUAL(utofu_construct_vcq_id(coords, 0, 0, 8, &id), UTOFU_ERR_INVALID_CMP_ID);
    coords[0] = 1;
    EQUAL(utofu_construct_vcq_id(coords, 0, 0, 0, &id), UTOFU_ERR_INVALID_COORDS);
    GOOD(utofu_query_my_coords(back));
    CHECK(memcmp(back, "\0\0\0\0\0\0", 6) == 0);
    set_node(7); /* too late */
    GOOD(utofu_query_my_coords(back));
    CHECK(memcmp(back, "\0\0\0\0\0\0", 6) == 0);
    EQUAL(utofu_query_vcq_info(0, back, &tni, &cq, &extra), UTOFU_ERR_INVALID_VCQ_ID);
}

/* The node follows from the rank: two processes on each of six nodes. */
void ranks_active(int socket)
{
    uint8_t coords[6];

    (void)socket;
    unsetenv("SOFT_TOFU_NODE");
    setenv("OMPI_COMM_WORLD_RANK", "9", 1);
    setenv("PMI_RANK", "1", 1);
    GOOD(utofu_query_my_coords(coords));
    CHECK(memcmp(coords, "\0\0\0\2\0\0", 6) == 0); /* node 4; the last axis is the fastest */
}

void ranks_passive(int socket)
{
    uint8_t coords[6];

    (void)socket;
    unsetenv("SOFT_TOFU_NODE");
    unsetenv("OMPI_COMM_WORLD_RANK");
    setenv("PMI_RANK", "15", 1);
    GOOD(utofu_query_my_coords(coords));
    CHECK(memcmp(coords, "\0\0\0\0\1\0", 6) == 0);
}

/* Both processes are on node 1. The passive one takes `CQS - 4` CQs of TNI 0 exclusively, and one shareable VCQ. */
void shared_passive(int socket)
{
    utofu_vcq_hdl_t vcq;

    for (int i = 0; i < CQS - 4; i++)
        GOOD(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcq));
    GOOD(utofu_create_vcq(0, 0, &vcq));
    EQUAL(write(socket, "", 1), 1);
    pause();
}

static int create_until_full(unsigned long flags, utofu_vcq_hdl_t *vcqs, int *count)
{
    for (*count = 0;; ++*count) {
        int code = utofu_create_vcq(0, flags, &vcqs[*count]);

        if (code != UTOFU_SUCCESS)
            return code;
    }
}

void shared_active(int socket)
{
    utofu_vcq_hdl_t vcqs[CQS * CMPS + 1];
    utofu_vcq_id_t id;
    char byte;
    int count;

    EQUAL(read(socket, &byte, 1), 1);
    set_node(1);
    /* A VCQ with a component goes to a CQ with others; there is one of the other process and none of this one. */
    GOOD(utofu_create_vcq(0, 0, &vcqs[0]));
    EQUAL(create_until_full(UTOFU_VCQ_FLAG_EXCLUSIVE, vcqs + 1, &count), UTOFU_ERR_NOT_AVAILABLE);
    EQUAL(count, 2);
    EQUAL(create_until_full(0, vcqs + 3, &count), UTOFU_ERR_FULL);
    EQUAL(count, 2 * CMPS - 2); /* VCQs left on this process's shared CQ and on the other's */
    EQUAL(counter("vcqs"), CQS - 2 + 2 * CMPS);
    EQUAL(counter("cqs"), CQS);
    /* A killed process's VCQs are freed when they are needed. */
    kill(other, SIGKILL);
    CHECK(read(socket, &byte, 1) <= 0); /* the socket is closed: the process has ended */
    EQUAL(create_until_full(UTOFU_VCQ_FLAG_EXCLUSIVE, vcqs + 20, &count), UTOFU_ERR_NOT_AVAILABLE);
    EQUAL(count, CQS - 4);
    GOOD(utofu_query_vcq_id(vcqs[1], &id));
    GOOD(utofu_free_vcq(vcqs[1]));
    EQUAL(utofu_free_vcq(vcqs[1]), UTOFU_ERR_INVALID_VCQ_HDL);
    EQUAL(utofu_query_vcq_id(vcqs[1], &id), UTOFU_ERR_INVALID_VCQ_HDL);
    GOOD(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcqs[1]));
}

/* All CQs of a node exclusively, then all its VCQs, each for a put to itself. */
void limits_active(int socket)
{
    static utofu_vcq_hdl_t vcqs[ALL * CMPS];
    utofu_stadd_t stadd;
    utofu_vcq_hdl_t more;
    utofu_vcq_id_t id;
    char *buffer = memory(4096);

    (void)socket;
    for (int i = 0; i < ALL; i++)
        GOOD(utofu_create_vcq(i % TNIS, UTOFU_VCQ_FLAG_EXCLUSIVE, &vcqs[i]));
    EQUAL(utofu_create_vcq(0, UTOFU_VCQ_FLAG_EXCLUSIVE, &more), UTOFU_ERR_NOT_AVAILABLE);
    EQUAL(utofu_create_vcq(0, 0, &more), UTOFU_ERR_FULL);
    for (int i = 0; i < ALL; i++)
        GOOD(utofu_free_vcq(vcqs[i]));
    for (int i = 0; i < ALL * CMPS; i++)
        GOOD(utofu_create_vcq(i % TNIS, 0, &vcqs[i]));
    EQUAL(utofu_create_vcq(5, 0, &more), UTOFU_ERR_FULL);
    for (int i = 0; i < ALL * CMPS; i++) {
        GOOD(utofu_reg_mem(vcqs[i], buffer, 4096, 0, &stadd));
        GOOD(utofu_query_vcq_id(vcqs[i], &id));
        GOOD(utofu_put_piggyback8(vcqs[i], id, i, stadd + 8 * i, 8, i % 256, REMOTE, NULL));
    }
    for (int i = 0; i < ALL * CMPS; i++) {
        EQUAL(expect(vcqs[i], UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, i % 256);
        EQUAL(((uint64_t *)buffer)[i], i);
        CHECK(queues_empty(vcqs[i]));
    }
    EQUAL(utofu_create_vcq_with_cmp_id(0, 8, 0, &more), UTOFU_ERR_INVALID_CMP_ID);
    EQUAL(utofu_create_vcq(6, 0, &more), UTOFU_ERR_INVALID_TNI_ID);
    EQUAL(utofu_create_vcq(0, 1 << 9, &more), UTOFU_ERR_INVALID_FLAGS);
    EQUAL(utofu_create_vcq(0, UTOFU_VCQ_FLAG_SESSION_MODE, &more), UTOFU_ERR_NOT_SUPPORTED);
}

void mapped_killed_passive(int socket)
{
    memory_is_shared = true;
    passive_waits(socket);
}

/* Operations to a killed process, or to a VCQ that does not exist, fail with MRQ_PEER. */
void killed_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    utofu_vcq_id_t nobody = peer.id ^ 7;
    char byte;

    GOOD(utofu_put_piggyback8(side->vcq, nobody, 1, peer.stadd, 8, 1, 0, NULL));
    EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_PEER).vcq_id, nobody);
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, 4096, 1, LOCAL, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_SUCCESS);
    kill(other, SIGKILL);
    CHECK(read(socket, &byte, 1) <= 0);
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, 4096, 1, 0, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_PEER);
    GOOD(utofu_put(side->vcq, peer.id, side->stadd, peer.stadd, 0, 1, REMOTE, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_PUT, UTOFU_ERR_MRQ_PEER);
    GOOD(utofu_get(side->vcq, peer.id, side->stadd, peer.stadd, 8, 1, 0, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_ERR_MRQ_PEER);
    GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 1, 0, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_ERR_MRQ_PEER);
    EQUAL(counter("errors"), 5);
    CHECK(queues_empty(side->vcq));
}
