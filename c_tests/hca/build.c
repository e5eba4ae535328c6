/* The wr_start interface: requests are collected into a list that wr_complete posts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca.h"

static struct soft_qp *soft_of(struct ibv_qp_ex *qp)
{
    return (struct soft_qp *)qp;
}

static void wr_start(struct ibv_qp_ex *qp)
{
    soft_of(qp)->builds = 0;
    soft_of(qp)->build_error = 0;
}

static struct ibv_send_wr *wr_add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
    struct soft_qp *soft = soft_of(qp);
    uint32_t max = soft->init.cap.max_send_wr;
    struct ibv_send_wr *wr;

    if ((uint32_t)soft->builds == max) {
        soft->build_error = ENOMEM;
        return &soft->build[max]; /* one more than can be posted: scratch space */
    }
    wr = &soft->build[soft->builds];
    memset(wr, 0, sizeof(*wr));
    wr->wr_id = qp->wr_id;
    wr->send_flags = qp->wr_flags;
    wr->opcode = opcode;
    wr->sg_list = &soft->build_sge[(size_t)soft->builds * WIRE_MAX_SGE];
    if (soft->builds > 0)
        soft->build[soft->builds - 1].next = wr;
    soft->builds++;
    return wr;
}

static struct ibv_send_wr *wr_last(struct ibv_qp_ex *qp)
{
    return &soft_of(qp)->build[soft_of(qp)->builds == 0 ? 0 : soft_of(qp)->builds - 1];
}

static void wr_send(struct ibv_qp_ex *qp)
{
    wr_add(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
    wr_add(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t address, __be32 imm)
{
    struct ibv_send_wr *wr = wr_add(qp, opcode);

    wr->wr.rdma.rkey = rkey;
    wr->wr.rdma.remote_addr = address;
    wr->imm_data = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
    wr_rdma(qp, IBV_WR_RDMA_READ, rkey, address, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address)
{
    wr_rdma(qp, IBV_WR_RDMA_WRITE, rkey, address, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, __be32 imm)
{
    wr_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, imm);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap)
{
    struct ibv_send_wr *wr = wr_add(qp, IBV_WR_ATOMIC_CMP_AND_SWP);

    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.remote_addr = address;
    wr->wr.atomic.compare_add = compare;
    wr->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t address, uint64_t add)
{
    struct ibv_send_wr *wr = wr_add(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);

    wr->wr.atomic.rkey = rkey;
    wr->wr.atomic.remote_addr = address;
    wr->wr.atomic.compare_add = add;
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    struct ibv_send_wr *wr = wr_last(qp);

    wr->wr.ud.ah = ah;
    wr->wr.ud.remote_qpn = qpn;
    wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    struct ibv_send_wr *wr = wr_last(qp);

    if (count > WIRE_MAX_SGE) {
        soft_of(qp)->build_error = EINVAL;
        return;
    }
    memcpy(wr->sg_list, list, count * sizeof(*list));
    wr->num_sge = count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t address, uint32_t length)
{
    struct ibv_sge sge = {.addr = address, .length = length, .lkey = lkey};

    wr_set_sge_list(qp, 1, &sge);
}

/* Inline data must be copied now: the program may reuse its buffer at once. */
static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list)
{
    struct soft_qp *soft = soft_of(qp);
    struct ibv_send_wr *wr = wr_last(qp);
    uint8_t *into = soft->build_inline + (size_t)(wr - soft->build) * MAX_INLINE;
    size_t length = 0;

    for (size_t i = 0; i < count; i++) {
        if (length + list[i].length > MAX_INLINE) {
            soft->build_error = EINVAL;
            return;
        }
        memcpy(into + length, list[i].addr, list[i].length);
        length += list[i].length;
    }
    wr_set_sge(qp, 0, (uintptr_t)into, length);
    wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
    struct ibv_data_buf one = {address, length};

    wr_set_inline_data_list(qp, 1, &one);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
    struct soft_qp *soft = soft_of(qp);
    struct ibv_send_wr *bad;

    if (soft->build_error != 0 || soft->builds == 0)
        return soft->build_error;
    return soft_post_send(&qp->qp_base, soft->build, &bad);
}

static void wr_abort(struct ibv_qp_ex *qp)
{
    soft_of(qp)->builds = 0;
}

void build_init(struct soft_qp *soft)
{
    size_t count = soft->init.cap.max_send_wr + 1;
    struct ibv_qp_ex *qp = &soft->qp;

    soft->build = calloc(count, sizeof(*soft->build));
    soft->build_sge = calloc(count * WIRE_MAX_SGE, sizeof(*soft->build_sge));
    soft->build_inline = calloc(count, MAX_INLINE);
    if (soft->build == NULL || soft->build_sge == NULL || soft->build_inline == NULL) {
        build_free(soft);
        return;
    }
    soft->build[count - 1].sg_list = &soft->build_sge[(count - 1) * WIRE_MAX_SGE];
    qp->wr_start = wr_start;
    qp->wr_complete = wr_complete;
    qp->wr_abort = wr_abort;
    qp->wr_send = wr_send;
    qp->wr_send_imm = wr_send_imm;
    qp->wr_rdma_read = wr_rdma_read;
    qp->wr_rdma_write = wr_rdma_write;
    qp->wr_rdma_write_imm = wr_rdma_write_imm;
    qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp->wr_set_ud_addr = wr_set_ud_addr;
    qp->wr_set_sge = wr_set_sge;
    qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_set_inline_data = wr_set_inline_data;
    qp->wr_set_inline_data_list = wr_set_inline_data_list;
}

void build_free(struct soft_qp *soft)
{
    free(soft->build);
    free(soft->build_sge);
    free(soft->build_inline);
    soft->build = NULL;
    soft->build_sge = NULL;
    soft->build_inline = NULL;
}
