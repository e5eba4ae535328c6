/*
 * Reliable (and unreliable) connections: one request, executed from the sender's side. The lock of the peer's QP is
 * held from the first check of its state to the completion there, so the peer sees requests whole and in order, and its
 * receive completes before the sender's request does.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "hca.h"

bool path_reaches(const struct ibv_ah_attr *path, const struct wire_hca *hca)
{
    if (!hca->ethernet && path->dlid != hca->lid)
        return false;
    if (!path->is_global)
        return !hca->ethernet;
    for (int i = 0; i < WIRE_GIDS; i++)
        if (memcmp(&path->grh.dgid, &hca->gids[i], sizeof(hca->gids[i])) == 0)
            return true;
    return false;
}

bool port_up(const struct wire_hca *hca)
{
    return !fault_port_down(hca->number);
}

/* The RNR wait that a receiver requests of the sender: the field's codes, in units of 10 us. */
static uint64_t rnr_wait(uint8_t timer)
{
    static const uint16_t units[32] = {0,    1,    2,    3,    4,    6,    8,     12,    16,    24,    32,
                                       48,   64,   96,   128,  192,  256,  384,   512,   768,   1024,  1536,
                                       2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

    return (timer == 0 ? 65536 : units[timer & 31]) * 10000ULL;
}

static struct outcome not_ready(const struct wire_qp *peer)
{
    __atomic_fetch_add(&wire->faults.not_ready, 1, __ATOMIC_RELAXED);
    return (struct outcome){.kind = NOT_READY, .wait = rnr_wait(peer->min_rnr_timer)};
}

static struct outcome failed(enum ibv_wc_status status)
{
    return (struct outcome){.kind = FAILED, .status = status};
}

static const struct outcome sent = {.kind = SENT}, no_answer = {.kind = NO_ANSWER};

/* The peer's QP rejects a request: it goes to the error state itself, and notifies its owner. */
static struct outcome refused(struct wire_qp *peer, enum ibv_event_type event, enum ibv_wc_status status)
{
    if (peer->type == IBV_QPT_UC)
        return sent; /* dropped, without an event */
    qp_fail(peer);
    event_async(peer->slot.hca, event, peer->slot.id);
    return failed(status);
}

static bool responds(const struct soft_qp *qp, const struct wire_qp *peer, const struct wire_hca *own,
                     const struct wire_hca *to)
{
    return peer->type == qp->qp.qp_base.qp_type && (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS
                                                    || peer->state == IBV_QPS_SQD || peer->state == IBV_QPS_SQE)
           && peer->dest_qpn == qp->qp.qp_base.qp_num && path_reaches(&qp->attr.ah_attr, to)
           && path_reaches(&peer->path, own)
           /* a real peer drops packets with an unexpected number */
           && (qp->attr.sq_psn & 0xffffff) == peer->rq_psn && port_up(own) && port_up(to) && peer_alive(to);
}

/* The payload on the sender's side. */
static int gather(const struct soft_qp *qp, struct soft_wqe *wqe, uint32_t access, struct iovec *iov, int *count)
{
    if (wqe->wr.send_flags & IBV_SEND_INLINE) {
        iov[0] = (struct iovec){wqe->inlined, wqe->length};
        *count = 1;
        return KEY_OK;
    }
    *count = wqe->wr.num_sge;
    return mr_local(hca_id(qp->qp.qp_base.context), qp->qp.qp_base.pd->handle, wqe->sge, *count, access, iov);
}

/* A send, or a write with immediate data: takes a receive of the peer and completes it. */
static struct outcome deliver(struct soft_qp *qp, struct soft_wqe *wqe, struct wire_qp *peer, const struct wire_hca *to,
                              const struct iovec *from, int count)
{
    union {
        struct wire_recv recv;
        char room[sizeof(struct wire_recv) + WIRE_MAX_SGE * sizeof(struct ibv_sge)];
    } one;
    bool write = wqe->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct ibv_wc wc = {.qp_num = peer->slot.id,
                        .src_qp = qp->qp.qp_base.qp_num,
                        .byte_len = wqe->length,
                        .slid = soft_context(qp->qp.qp_base.context)->hca->lid,
                        .opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV};
    enum ibv_wc_status answer = IBV_WC_SUCCESS;
    struct iovec iov[WIRE_MAX_SGE];
    uint64_t room = 0;

    if (!rq_take(peer, &one.recv))
        return not_ready(peer);
    wc.wr_id = one.recv.wr_id;
    for (uint32_t i = 0; i < one.recv.num_sge; i++)
        room += one.recv.sge[i].length;
    if (wqe->wr.opcode == IBV_WR_SEND_WITH_IMM || write) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wqe->wr.imm_data;
    }
    if (!write) {
        if (room < wqe->length) {
            wc.status = IBV_WC_LOC_LEN_ERR;
            answer = IBV_WC_REM_INV_REQ_ERR;
        } else if (mr_local(peer->slot.hca, peer->pd, one.recv.sge, one.recv.num_sge, IBV_ACCESS_LOCAL_WRITE, iov) !=
                       KEY_OK ||
                   !peer_write(to, from, count, iov, one.recv.num_sge, wqe->length)) {
            wc.status = IBV_WC_LOC_PROT_ERR;
            answer = IBV_WC_REM_OP_ERR;
        }
    }
    if (write)
        __atomic_fetch_add(&wire->faults.words, 1, __ATOMIC_RELAXED);
    cq_push(peer->recv_cq, &wc, wqe->wr.send_flags & IBV_SEND_SOLICITED, NULL, 0);
    if (answer == IBV_WC_SUCCESS)
        return sent;
    qp_fail(peer);
    return peer->type == IBV_QPT_UC ? sent : failed(answer);
}

/* On-demand memory that is not mapped. */
static bool is_gone(const struct iovec *local, int count)
{
    for (int i = 0; i < count; i++)
        if (!mr_mapped(local[i].iov_base, local[i].iov_len))
            return true;
    return false;
}

static struct outcome write_or_read(struct soft_wqe *wqe, struct wire_qp *peer, const struct wire_hca *to,
                                    const struct iovec *local, int count)
{
    bool read = wqe->wr.opcode == IBV_WR_RDMA_READ;
    uint32_t access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    struct wire_mr *mr;
    struct iovec remote;
    bool copied;

    errno = 0;
    if (!(peer->access & access) || (read && peer->max_dest_rd_atomic == 0))
        return refused(peer, IBV_EVENT_QP_ACCESS_ERR,
                       peer->access & access ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_ACCESS_ERR);
    if (wqe->length == 0)
        return sent; /* no key is checked, according to the specification */
    mr = mr_remote(peer->slot.hca, peer->pd, wqe->wr.wr.rdma.rkey, wqe->wr.wr.rdma.remote_addr, wqe->length, access,
                   &remote);
    if (mr == NULL)
        return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    copied = read ? peer_read(to, local, count, &remote, 1, wqe->length)
                  : peer_write(to, local, count, &remote, 1, wqe->length);
    mr_release(mr);
    if (copied)
        fault_count_moved(to->number, wqe->length);
    if (copied && count > 1)
        __atomic_fetch_add(&wire->faults.lists, 1, __ATOMIC_RELAXED);
    if (!copied && errno == ESRCH)
        return no_answer; /* a killed process loses its memory before its pidfd reports the end */
    if (!copied && !(wqe->wr.send_flags & IBV_SEND_INLINE) && is_gone(local, count))
        return failed(IBV_WC_LOC_PROT_ERR);
    return copied ? sent : refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_OP_ERR);
}

/*
 * Atomic among all processes of the wire, not with respect to the target's CPU: the payload is in its private memory.
 */
static struct outcome atomic(struct soft_qp *qp, struct soft_wqe *wqe, struct wire_qp *peer, const struct wire_hca *to,
                             const struct iovec *local, int count)
{
    struct iovec remote, one = {NULL, sizeof(uint64_t)};
    uint64_t before = 0, after, gap_us;
    struct wire_mr *mr;
    bool copied;

    if (!(peer->access & IBV_ACCESS_REMOTE_ATOMIC))
        return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    if (wqe->wr.wr.atomic.remote_addr % sizeof(uint64_t) != 0 || peer->max_dest_rd_atomic == 0)
        return refused(peer, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
    mr = mr_remote(peer->slot.hca, peer->pd, wqe->wr.wr.atomic.rkey, wqe->wr.wr.atomic.remote_addr, sizeof(uint64_t),
                   IBV_ACCESS_REMOTE_ATOMIC, &remote);
    if (mr == NULL)
        return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
    wire_lock(&wire->atomic_lock);
    one.iov_base = &before;
    copied = peer_read(to, &one, 1, &remote, 1, sizeof(before));
    if (wqe->wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        after = before + wqe->wr.wr.atomic.compare_add;
    else
        after = before == wqe->wr.wr.atomic.compare_add ? wqe->wr.wr.atomic.swap : before;
    gap_us = __atomic_load_n(&wire->faults.atomic_gap_us, __ATOMIC_RELAXED);
    if (gap_us != 0)
        usleep(gap_us);
    one.iov_base = &after;
    if (copied && after != before)
        copied = peer_write(to, &one, 1, &remote, 1, sizeof(after));
    wire->faults.atomics += copied;
    wire_unlock(&wire->atomic_lock);
    if (gap_us != 0) /* the last owner would get the lock again before any woken waiter, for ever */
        usleep(gap_us);
    mr_release(mr);
    if (!copied)
        return refused(peer, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_OP_ERR);
    one.iov_base = &before;
    if (!peer_write(soft_context(qp->qp.qp_base.context)->hca, &one, 1, local, count, sizeof(before)))
        return failed(IBV_WC_LOC_PROT_ERR);
    return sent;
}

static struct outcome carry_out(struct soft_qp *qp, struct soft_wqe *wqe, struct wire_qp *peer,
                                const struct wire_hca *to, const struct iovec *local, int count)
{
    struct outcome outcome = sent;

    switch (wqe->wr.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_RDMA_WRITE:
        return write_or_read(wqe, peer, to, local, count);
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        if (rq_empty(peer)) /* before the write, so that a later try does not write again */
            return not_ready(peer);
        outcome = write_or_read(wqe, peer, to, local, count);
        return outcome.kind == SENT ? deliver(qp, wqe, peer, to, local, count) : outcome;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return atomic(qp, wqe, peer, to, local, count);
    default:
        return deliver(qp, wqe, peer, to, local, count);
    }
}

struct outcome rc_send(struct soft_qp *qp, struct soft_wqe *wqe)
{
    struct wire_hca *own = soft_context(qp->qp.qp_base.context)->hca, *to;
    bool answer = wqe->wr.opcode >= IBV_WR_RDMA_READ, reliable = qp->qp.qp_base.qp_type == IBV_QPT_RC;
    bool is_atomic = answer && wqe->wr.opcode != IBV_WR_RDMA_READ;
    struct iovec local[WIRE_MAX_SGE];
    struct outcome outcome;
    enum ibv_wc_status status;
    struct wire_qp *peer;
    int count;

    if (is_atomic)
        wqe->length = sizeof(uint64_t);
    if (answer && qp->attr.max_rd_atomic == 0)
        return failed(IBV_WC_LOC_QP_OP_ERR);
    if (is_atomic && (wqe->wr.num_sge != 1 || wqe->sge[0].length != sizeof(uint64_t)))
        return failed(IBV_WC_LOC_LEN_ERR);
    if (gather(qp, wqe, answer ? IBV_ACCESS_LOCAL_WRITE : 0, local, &count) != KEY_OK)
        return failed(IBV_WC_LOC_PROT_ERR);
    if (wqe->deadline == 0 && reliable && fault_rc_fails(&status))
        return failed(status);
    peer = wire_qp_lock(qp->attr.dest_qp_num);
    to = peer == NULL ? NULL : wire_hca(peer->slot.hca);
    if (to == NULL || !responds(qp, peer, own, to))
        outcome = no_answer;
    else
        outcome = carry_out(qp, wqe, peer, to, local, count);
    if (peer != NULL)
        wire_unlock(&peer->slot.lock);
    return reliable || outcome.kind == FAILED ? outcome : sent;
}
