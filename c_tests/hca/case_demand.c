/* On-demand paging: one memory region for the whole address space, parts of which are unmapped and mapped again. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "cases.h"

enum { PAGES = 16 * 4096 };

static char *map_at(char *at)
{
    char *memory =
        mmap(at, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static uint64_t general_caps(struct side *side)
{
    struct ibv_device_attr_ex attr;

    EQUAL(ibv_query_device_ex(side->context, NULL, &attr), 0);
    return attr.odp_caps.general_caps;
}

static struct ibv_mr *whole(struct side *side)
{
    return ibv_reg_mr(side->pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
}

/* Posts one request from or to this memory; returns the status of its completion. */
static enum ibv_wc_status move(struct side *side, struct ibv_qp *qp, const struct hello *peer,
                               enum ibv_wr_opcode opcode, char *memory, const struct ibv_mr *mr)
{
    struct ibv_sge sge = {(uintptr_t)memory, PAGES, mr->lkey};
    struct ibv_send_wr wr = rdma(opcode, peer, 0);

    wr.sg_list = &sge;
    wr.num_sge = 1;
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    return side_poll(side).status;
}

void demand_active(int socket)
{
    struct side *side = side_open(socket, false);
    char *memory = map_at(NULL);
    struct ibv_mr *all, *part;
    struct hello peer;
    struct ibv_qp *qp;

    EQUAL(general_caps(side), 0);
    CHECK(whole(side) == NULL && errno == EOPNOTSUPP);
    setenv("SOFT_HCA_ODP", "explicit", 1);
    EQUAL(general_caps(side), IBV_ODP_SUPPORT);
    CHECK(whole(side) == NULL && errno == EOPNOTSUPP);
    setenv("SOFT_HCA_ODP", "implicit", 1);
    EQUAL(general_caps(side), IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
    all = whole(side);
    CHECK(all != NULL);
    qp = meet(side, &peer, &usual);
    for (int i = 0; i < 3; i++) {
        pattern(memory, PAGES, i);
        EQUAL(move(side, qp, &peer, IBV_WR_RDMA_WRITE, memory, all), IBV_WC_SUCCESS);
        EQUAL(munmap(memory, PAGES), 0);
        map_at(memory);
        EQUAL(move(side, qp, &peer, IBV_WR_RDMA_READ, memory, all), IBV_WC_SUCCESS);
        CHECK(has_pattern(memory, PAGES, i));
    }
    EQUAL(munmap(memory, PAGES), 0);
    /* A part may be registered before it is mapped. */
    CHECK(ibv_reg_mr(side->pd, memory, PAGES, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
    part = ibv_reg_mr(side->pd, memory, PAGES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    CHECK(part != NULL);
    map_at(memory);
    EQUAL(move(side, qp, &peer, IBV_WR_RDMA_READ, memory, part), IBV_WC_SUCCESS);
    CHECK(has_pattern(memory, PAGES, 2));
    /* An access to unmapped memory fails the connection, not the process. */
    EQUAL(munmap(memory, PAGES), 0);
    EQUAL(move(side, qp, &peer, IBV_WR_RDMA_WRITE, memory, all), IBV_WC_LOC_PROT_ERR);
    EQUAL(ibv_dereg_mr(part), 0);
    EQUAL(ibv_dereg_mr(all), 0);
    side_signal(side);
}
