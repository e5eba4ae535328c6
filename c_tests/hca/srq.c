/* Queues of receives, and the shared ones among them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca.h"

static size_t recv_stride(uint32_t max_sge)
{
    return sizeof(struct wire_recv) + max_sge * sizeof(struct ibv_sge);
}

static struct wire_recv *recv_at(const struct wire_rq *rq, uint64_t position)
{
    return (struct wire_recv *)((char *)wire_page(rq->page) + position % rq->size * recv_stride(rq->max_sge));
}

int rq_make(uint32_t hca, struct wire_rq *rq, uint32_t size, uint32_t max_sge)
{
    rq->size = size;
    rq->max_sge = max_sge == 0 ? 1 : max_sge;
    return wire_pages(hca, size * recv_stride(rq->max_sge), &rq->page, &rq->pages);
}

void rq_drop(struct wire_rq *rq)
{
    wire_pages_free(rq->page, rq->pages);
}

int rq_post(struct wire_rq *rq, const struct ibv_recv_wr *wr)
{
    struct wire_recv *recv;

    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
        return EINVAL;
    if (rq->head - rq->tail == rq->size)
        return ENOMEM;
    recv = recv_at(rq, rq->head);
    recv->wr_id = wr->wr_id;
    recv->num_sge = wr->num_sge;
    memcpy(recv->sge, wr->sg_list, wr->num_sge * sizeof(struct ibv_sge));
    rq->head++;
    return 0;
}

bool rq_empty(struct wire_qp *qp)
{
    struct wire_srq *srq;
    bool empty = true;

    if (qp->srq == 0)
        return qp->rq.head == qp->rq.tail;
    srq = wire_srq_lock(qp->srq);
    if (srq != NULL) {
        empty = srq->rq.head == srq->rq.tail;
        wire_unlock(&srq->slot.lock);
    }
    return empty;
}

static bool rq_pop(struct wire_rq *rq, struct wire_recv *recv)
{
    if (rq->head == rq->tail)
        return false;
    memcpy(recv, recv_at(rq, rq->tail), recv_stride(rq->max_sge));
    rq->tail++;
    return true;
}

bool rq_take(struct wire_qp *qp, struct wire_recv *recv)
{
    struct wire_srq *srq;
    bool taken, limit = false;
    uint32_t hca = qp->slot.hca, id = qp->srq;

    if (id == 0)
        return rq_pop(&qp->rq, recv);
    srq = wire_srq_lock(id);
    if (srq == NULL)
        return false;
    taken = rq_pop(&srq->rq, recv);
    if (srq->limit != 0 && srq->rq.head - srq->rq.tail < srq->limit) {
        srq->limit = 0; /* fires once each time it is set */
        limit = true;
    }
    wire_unlock(&srq->slot.lock);
    if (limit)
        event_async(hca, IBV_EVENT_SRQ_LIMIT_REACHED, id);
    return taken;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct soft_srq *soft;
    struct wire_rq rq = {0};

    if (wire->faults.no_srq != 0) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (attr->attr.max_wr == 0 || attr->attr.max_wr > MAX_WR || attr->attr.max_sge > WIRE_MAX_SGE) {
        errno = EINVAL;
        return NULL;
    }
    soft = calloc(1, sizeof(*soft));
    if (soft == NULL || rq_make(hca_id(pd->context), &rq, attr->attr.max_wr, attr->attr.max_sge) != 0) {
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    soft->shared = wire_new_srq(hca_id(pd->context));
    if (soft->shared == NULL) {
        rq_drop(&rq);
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    soft->shared->slot.self = soft;
    soft->shared->pd = pd->handle;
    soft->shared->rq = rq;
    soft->srq.context = pd->context;
    soft->srq.srq_context = attr->srq_context;
    soft->srq.pd = pd;
    soft->srq.handle = soft->shared->slot.id;
    pthread_mutex_init(&soft->srq.mutex, NULL);
    pthread_cond_init(&soft->srq.cond, NULL);
    __atomic_add_fetch(&((struct soft_pd *)pd)->users, 1, __ATOMIC_RELAXED);
    attr->attr.max_sge = rq.max_sge;
    return &soft->srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    struct wire_srq *shared = ((struct soft_srq *)srq)->shared;
    int result = 0;

    if ((mask & ~IBV_SRQ_LIMIT) != 0)
        return EINVAL; /* max_wr cannot be changed: no IBV_DEVICE_SRQ_RESIZE */
    wire_lock(&shared->slot.lock);
    if ((mask & IBV_SRQ_LIMIT) && attr->srq_limit >= shared->rq.size)
        result = EINVAL;
    else if (mask & IBV_SRQ_LIMIT)
        shared->limit = attr->srq_limit;
    wire_unlock(&shared->slot.lock);
    return result;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    struct wire_srq *shared = ((struct soft_srq *)srq)->shared;

    wire_lock(&shared->slot.lock);
    attr->max_wr = shared->rq.size;
    attr->max_sge = shared->rq.max_sge;
    attr->srq_limit = shared->limit;
    wire_unlock(&shared->slot.lock);
    return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
    struct soft_srq *soft = (struct soft_srq *)srq;
    struct wire_rq rq = soft->shared->rq; /* the slot may be reused as soon as it is free */

    if (__atomic_load_n(&soft->users, __ATOMIC_RELAXED) != 0)
        return EBUSY;
    wire_free(&soft->shared->slot);
    rq_drop(&rq);
    event_wait_acked(&srq->mutex, &srq->cond, &srq->events_completed, &soft->events);
    __atomic_sub_fetch(&((struct soft_pd *)srq->pd)->users, 1, __ATOMIC_RELAXED);
    free(soft);
    return 0;
}

int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wire_srq *shared = ((struct soft_srq *)srq)->shared;
    int result = 0;

    wire_lock(&shared->slot.lock);
    for (; wr != NULL && result == 0; wr = wr->next) {
        result = rq_post(&shared->rq, wr);
        if (result != 0)
            *bad = wr;
    }
    wire_unlock(&shared->slot.lock);
    return result;
}
