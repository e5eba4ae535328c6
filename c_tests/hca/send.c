/* The send queue: posting, execution in order, completions, flushing in error. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "hca.h"

enum { RETRY_NS = 1000 * 1000 }; /* a request without an answer is tried again after so long */

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static enum ibv_wc_opcode completion_opcode(enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    default:
        return IBV_WC_SEND;
    }
}

/* The oldest request is over. */
static void send_complete(struct soft_qp *qp, struct soft_wqe *wqe, enum ibv_wc_status status)
{
    struct ibv_wc wc = {.wr_id = wqe->wr.wr_id,
                        .status = status,
                        .opcode = completion_opcode(wqe->wr.opcode),
                        .byte_len = wqe->length,
                        .qp_num = qp->qp.qp_base.qp_num};

    qp->sq_done++;
    if (status != IBV_WC_SUCCESS || qp->init.sq_sig_all || (wqe->wr.send_flags & IBV_SEND_SIGNALED))
        cq_push(qp->qp.qp_base.send_cq->handle, &wc, false, qp, qp->sq_done);
}

/* A request failed: the QP goes to the error state, the other requests are flushed by send_progress. */
static void send_failed(struct soft_qp *qp, struct soft_wqe *wqe, enum ibv_wc_status status)
{
    send_complete(qp, wqe, status);
    wire_lock(&qp->shared->slot.lock);
    qp_fail(qp->shared);
    wire_unlock(&qp->shared->slot.lock);
}

/* When a request without an answer fails: 4.096 us * 2^timeout for each try; timeout 0 is for ever. */
static uint64_t answer_deadline(struct soft_qp *qp, uint64_t now)
{
    uint64_t cap = wire->faults.retry_cap_us * 1000;
    uint64_t wait = qp->attr.timeout == 0 ? UINT64_MAX / 4 : (4096ULL << qp->attr.timeout) * (qp->attr.retry_cnt + 1);

    return now + (cap != 0 && cap < wait ? cap : wait);
}

uint64_t send_progress(struct soft_qp *qp)
{
    while (qp->sq_done != qp->sq_posted) {
        struct soft_wqe *wqe = &qp->sq[qp->sq_done % qp->init.cap.max_send_wr];
        enum ibv_qp_state state = __atomic_load_n(&qp->shared->state, __ATOMIC_ACQUIRE);
        struct outcome outcome;
        uint64_t now = 0;

        if (state == IBV_QPS_ERR || state == IBV_QPS_SQE) {
            send_complete(qp, wqe, IBV_WC_WR_FLUSH_ERR);
            continue;
        }
        if (state != IBV_QPS_RTS)
            return 0; /* SQD: a modify_qp goes on with it */
        if (wqe->due != 0) {
            now = now_ns();
            if (now < wqe->due)
                return wqe->due;
        }
        outcome = qp->qp.qp_base.qp_type == IBV_QPT_UD ? ud_send(qp, wqe) : rc_send(qp, wqe);
        if (outcome.kind == SENT) {
            send_complete(qp, wqe, IBV_WC_SUCCESS);
            continue;
        }
        if (outcome.kind == FAILED) {
            send_failed(qp, wqe, outcome.status);
            continue;
        }
        now = now_ns();
        if (outcome.kind == NOT_READY) {
            wqe->deadline = 0;
            if (qp->attr.rnr_retry != 7 && wqe->rnr_left-- == 0) {
                send_failed(qp, wqe, IBV_WC_RNR_RETRY_EXC_ERR);
                continue;
            }
            wqe->due = now + outcome.wait;
        } else {
            if (wqe->deadline == 0)
                wqe->deadline = answer_deadline(qp, now);
            if (now >= wqe->deadline) {
                send_failed(qp, wqe, IBV_WC_RETRY_EXC_ERR);
                continue;
            }
            wqe->due = now + RETRY_NS < wqe->deadline ? now + RETRY_NS : wqe->deadline;
        }
        return wqe->due;
    }
    if (qp->held != NULL) {
        if (now_ns() < qp->held_due)
            return qp->held_due;
        ud_release_held(qp);
    }
    return 0;
}

static bool opcode_allowed(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
    switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
        return true;
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return type != IBV_QPT_UD;
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return type == IBV_QPT_RC;
    default:
        return false;
    }
}

/* sq_lock held. */
static int post_one(struct soft_qp *qp, const struct ibv_send_wr *wr, uint64_t delay)
{
    struct ibv_qp_cap *cap = &qp->init.cap;
    struct soft_wqe *wqe;
    uint64_t length = 0;
    bool inlined = wr->send_flags & IBV_SEND_INLINE;

    if (!opcode_allowed(qp->qp.qp_base.qp_type, wr->opcode) || wr->num_sge < 0 ||
        (uint32_t)wr->num_sge > cap->max_send_sge)
        return EINVAL;
    if (qp->sq_posted - __atomic_load_n(&qp->sq_free, __ATOMIC_ACQUIRE) >= cap->max_send_wr)
        return ENOMEM;
    for (int i = 0; i < wr->num_sge; i++)
        length += wr->sg_list[i].length;
    if (length > 1u << 30 || (inlined && length > cap->max_inline_data)
        || (inlined && wr->opcode >= IBV_WR_RDMA_READ))
        return EINVAL;
    wqe = &qp->sq[qp->sq_posted % cap->max_send_wr];
    wqe->wr = *wr;
    wqe->length = length;
    wqe->due = delay;
    wqe->deadline = 0;
    wqe->rnr_left = qp->attr.rnr_retry;
    if (qp->qp.qp_base.qp_type == IBV_QPT_UD)
        wqe->path = ((struct soft_ah *)wr->wr.ud.ah)->attr;
    if (inlined) {
        for (int i = 0, at = 0; i < wr->num_sge; at += wr->sg_list[i++].length)
            memcpy(wqe->inlined + at, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
    } else if (wr->num_sge > 0)
        memcpy(wqe->sge, wr->sg_list, wr->num_sge * sizeof(struct ibv_sge));
    qp->sq_posted++;
    return 0;
}

int soft_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    struct soft_qp *qp = (struct soft_qp *)ibv_qp;
    uint64_t delay_us = fault_delay_us(soft_context(qp->qp.qp_base.context)->hca->number), due;
    enum ibv_qp_state state;
    int result = 0;

    pthread_mutex_lock(&qp->sq_lock);
    state = __atomic_load_n(&qp->shared->state, __ATOMIC_ACQUIRE);
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR) {
        *bad = wr;
        result = EINVAL;
    }
    if (result == 0 && qp->qp.qp_base.qp_type == IBV_QPT_RC
        && fault_post_refused(soft_context(qp->qp.qp_base.context)->hca->number)) {
        *bad = wr;
        result = EIO;
    }
    for (; wr != NULL && result == 0; wr = wr->next) {
        result = post_one(qp, wr, delay_us == 0 ? 0 : now_ns() + delay_us * 1000);
        if (result != 0)
            *bad = wr;
    }
    due = send_progress(qp);
    pthread_mutex_unlock(&qp->sq_lock);
    if (due != 0)
        engine_watch(qp, due);
    return result;
}
