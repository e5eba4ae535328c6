/* Queue pairs: creation, their states, queries, posting of receives, destruction. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hca.h"

static struct ibv_qp *refuse(int error)
{
    errno = error;
    return NULL;
}

/* Queue pairs of this process. */
static unsigned long there_are;

static bool too_many(void)
{
    const char *most = getenv("SOFT_HCA_QP_MOST");

    return most != NULL && __atomic_load_n(&there_are, __ATOMIC_RELAXED) >= strtoul(most, NULL, 0);
}

static struct ibv_qp *qp_create(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct ibv_qp_cap *cap = &init->cap;
    struct soft_qp *soft;
    struct ibv_qp *qp;

    if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UC && init->qp_type != IBV_QPT_UD)
        return refuse(EOPNOTSUPP);
    if (init->send_cq == NULL || init->recv_cq == NULL || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR
        || cap->max_send_sge > WIRE_MAX_SGE || cap->max_recv_sge > WIRE_MAX_SGE || cap->max_inline_data > MAX_INLINE)
        return refuse(EINVAL);
    if (too_many()
        || (init->qp_type == IBV_QPT_RC && wire->faults.rc_most != 0 && wire->faults.rc_queues >= wire->faults.rc_most))
        return refuse(ENOMEM);
    if (init->srq != NULL)
        cap->max_recv_wr = cap->max_recv_sge = 0;
    soft = calloc(1, sizeof(*soft));
    if (soft == NULL)
        return refuse(ENOMEM);
    soft->sq = calloc(cap->max_send_wr + 1, sizeof(*soft->sq));
    soft->shared = soft->sq == NULL ? NULL : wire_new_qp(hca_id(pd->context));
    if (soft->shared == NULL
        || (init->srq == NULL
            && rq_make(hca_id(pd->context), &soft->shared->rq, cap->max_recv_wr, cap->max_recv_sge) != 0)) {
        if (soft->shared != NULL)
            wire_free(&soft->shared->slot);
        free(soft->sq);
        free(soft);
        return refuse(ENOMEM);
    }
    soft->shared->slot.self = soft;
    soft->shared->type = init->qp_type;
    __atomic_add_fetch(init->qp_type == IBV_QPT_RC ? &wire->faults.rc_queues : &wire->faults.ud_queues, 1,
                       __ATOMIC_RELAXED);
    soft->shared->state = IBV_QPS_RESET;
    soft->shared->pd = pd->handle;
    soft->shared->recv_cq = init->recv_cq->handle;
    soft->shared->srq = init->srq == NULL ? 0 : init->srq->handle;
    qp = &soft->qp.qp_base;
    qp->context = pd->context;
    qp->qp_context = init->qp_context;
    qp->pd = pd;
    qp->send_cq = init->send_cq;
    qp->recv_cq = init->recv_cq;
    qp->srq = init->srq;
    qp->handle = qp->qp_num = soft->shared->slot.id;
    qp->state = IBV_QPS_RESET;
    qp->qp_type = init->qp_type;
    pthread_mutex_init(&qp->mutex, NULL);
    pthread_cond_init(&qp->cond, NULL);
    pthread_mutex_init(&soft->sq_lock, NULL);
    soft->init = *init;
    __atomic_add_fetch(&there_are, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&((struct soft_pd *)pd)->users, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&((struct soft_cq *)init->send_cq)->users, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&((struct soft_cq *)init->recv_cq)->users, 1, __ATOMIC_RELAXED);
    if (init->srq != NULL)
        __atomic_add_fetch(&((struct soft_srq *)init->srq)->users, 1, __ATOMIC_RELAXED);
    return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    return qp_create(pd, init);
}

struct ibv_qp *soft_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND
                   | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                   | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    struct ibv_qp *qp;

    (void)context;
    if ((attr->comp_mask & ~known) != 0 || !(attr->comp_mask & IBV_QP_INIT_ATTR_PD)
        || ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags != 0)
        || ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->send_ops_flags & ~ops) != 0))
        return refuse(EOPNOTSUPP);
    qp = qp_create(attr->pd, (struct ibv_qp_init_attr *)attr); /* the same fields come first */
    if (qp != NULL && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
        build_init((struct soft_qp *)qp);
    return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct soft_qp *soft = (struct soft_qp *)qp;

    return soft->build == NULL ? NULL : &soft->qp; /* only a QP made for it has the interface */
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
    struct soft_qp *soft = (struct soft_qp *)qp;
    struct wire_rq rq = soft->shared->rq; /* the slot may be reused as soon as it is free */

    engine_forget(soft);
    wire_free(&soft->shared->slot); /* no peer accesses it any more */
    cq_forget(qp->send_cq, qp->qp_num);
    cq_forget(qp->recv_cq, qp->qp_num);
    rq_drop(&rq);
    event_wait_acked(&qp->mutex, &qp->cond, &qp->events_completed, &soft->events);
    __atomic_sub_fetch(&((struct soft_pd *)qp->pd)->users, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&((struct soft_cq *)qp->send_cq)->users, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&((struct soft_cq *)qp->recv_cq)->users, 1, __ATOMIC_RELAXED);
    if (qp->srq != NULL)
        __atomic_sub_fetch(&((struct soft_srq *)qp->srq)->users, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&there_are, 1, __ATOMIC_RELAXED);
    build_free(soft);
    pthread_mutex_destroy(&soft->sq_lock);
    free(soft->held);
    free(soft->sq);
    free(soft);
    return 0;
}

/* ---- states ---- */

/* Required and optional attributes of each transition, by QP type; the current state may always be given. */
static const struct transition {
    enum ibv_qp_type type;
    enum ibv_qp_state from, to;
    int needed, allowed;
} transitions[] = {
    {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS},
    {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY},
};

static bool transition_allowed(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return mask == 0;
    for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
        const struct transition *t = &transitions[i];

        if (t->type == type && t->from == from && t->to == to)
            return (mask & t->needed) == t->needed && (mask & ~(t->needed | t->allowed)) == 0;
    }
    return false;
}

static bool values_good(struct soft_qp *soft, const struct ibv_qp_attr *attr, int mask)
{
    bool ethernet = soft_context(soft->qp.qp_base.context)->hca->ethernet;

    if ((mask & IBV_QP_PORT) && attr->port_num != 1)
        return false;
    if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
        return false;
    if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > device_mtu(ethernet)))
        return false;
    if ((mask & IBV_QP_AV) && (attr->ah_attr.port_num != 1 || (ethernet && !attr->ah_attr.is_global) ||
                               (!ethernet && attr->ah_attr.dlid == 0) ||
                               (attr->ah_attr.is_global && attr->ah_attr.grh.sgid_index >= (ethernet ? WIRE_GIDS : 1))))
        return false;
    if (((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > MAX_RD_ATOMIC)
        || ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > MAX_RD_ATOMIC))
        return false;
    if (((mask & IBV_QP_TIMEOUT) && attr->timeout > 31) || ((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
        ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7) ||
        ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31))
        return false;
    return true;
}

/* sq_lock and the shared lock are held. */
static void values_set(struct soft_qp *soft, const struct ibv_qp_attr *attr, int mask)
{
    struct ibv_qp_attr *own = &soft->attr;
    struct wire_qp *shared = soft->shared;

#define SET(flag, field)   \
    if (mask & (flag))     \
        own->field = attr->field
    SET(IBV_QP_PKEY_INDEX, pkey_index);
    SET(IBV_QP_PORT, port_num);
    SET(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    SET(IBV_QP_QKEY, qkey);
    SET(IBV_QP_AV, ah_attr);
    SET(IBV_QP_PATH_MTU, path_mtu);
    SET(IBV_QP_DEST_QPN, dest_qp_num);
    SET(IBV_QP_RQ_PSN, rq_psn);
    SET(IBV_QP_SQ_PSN, sq_psn);
    SET(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    SET(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    SET(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    SET(IBV_QP_TIMEOUT, timeout);
    SET(IBV_QP_RETRY_CNT, retry_cnt);
    SET(IBV_QP_RNR_RETRY, rnr_retry);
    SET(IBV_QP_PATH_MIG_STATE, path_mig_state);
#undef SET
    shared->access = own->qp_access_flags;
    shared->qkey = own->qkey;
    shared->path = own->ah_attr;
    shared->dest_qpn = own->dest_qp_num;
    shared->rq_psn = own->rq_psn & 0xffffff;
    shared->sq_psn = own->sq_psn & 0xffffff;
    shared->max_dest_rd_atomic = own->max_dest_rd_atomic;
    shared->min_rnr_timer = own->min_rnr_timer;
}

void qp_fail(struct wire_qp *qp)
{
    struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->slot.id};
    union {
        struct wire_recv recv;
        char room[sizeof(struct wire_recv) + WIRE_MAX_SGE * sizeof(struct ibv_sge)];
    } one;
    bool was = qp->state == IBV_QPS_ERR;

    qp->state = IBV_QPS_ERR;
    if (qp->srq != 0) {
        if (!was)
            event_async(qp->slot.hca, IBV_EVENT_QP_LAST_WQE_REACHED, qp->slot.id);
        return;
    }
    while (rq_take(qp, &one.recv)) {
        wc.wr_id = one.recv.wr_id;
        cq_push(qp->recv_cq, &wc, false, NULL, 0);
    }
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct soft_qp *soft = (struct soft_qp *)qp;
    struct wire_qp *shared = soft->shared;
    enum ibv_qp_state from, to;
    uint64_t due = 0;
    int result = 0;

    pthread_mutex_lock(&soft->sq_lock);
    wire_lock(&shared->slot.lock);
    from = shared->state;
    to = mask & IBV_QP_STATE ? attr->qp_state : from;
    if (((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from) || !transition_allowed(qp->qp_type, from, to, mask)
        || !values_good(soft, attr, mask))
        result = EINVAL;
    else {
        values_set(soft, attr, mask);
        if (to == IBV_QPS_ERR)
            qp_fail(shared);
        else if (to == IBV_QPS_RESET)
            shared->rq.tail = shared->rq.head;
        shared->state = to;
        qp->state = to;
    }
    wire_unlock(&shared->slot.lock);
    if (result == 0 && to == IBV_QPS_RESET) {
        soft->sq_done = soft->sq_posted;
        cq_forget(qp->send_cq, qp->qp_num);
        cq_forget(qp->recv_cq, qp->qp_num);
        __atomic_store_n(&soft->sq_free, soft->sq_posted, __ATOMIC_RELEASE);
    } else if (result == 0 && to != from)
        due = send_progress(soft); /* flushes, or goes on */
    pthread_mutex_unlock(&soft->sq_lock);
    if (due != 0)
        engine_watch(soft, due);
    return result;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    struct soft_qp *soft = (struct soft_qp *)qp;

    (void)mask;
    pthread_mutex_lock(&soft->sq_lock);
    wire_lock(&soft->shared->slot.lock);
    *attr = soft->attr;
    attr->qp_state = attr->cur_qp_state = qp->state = soft->shared->state;
    attr->cap = soft->init.cap;
    *init = soft->init;
    wire_unlock(&soft->shared->slot.lock);
    pthread_mutex_unlock(&soft->sq_lock);
    return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
    (void)qp, (void)op, (void)flags;
    return 0;
}

int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct wire_qp *shared = ((struct soft_qp *)qp)->shared;
    int result = 0;

    wire_lock(&shared->slot.lock);
    for (; wr != NULL && result == 0; wr = wr->next) {
        result = shared->state == IBV_QPS_RESET || qp->srq != NULL ? EINVAL : rq_post(&shared->rq, wr);
        if (result != 0)
            *bad = wr;
    }
    if (shared->state == IBV_QPS_ERR)
        qp_fail(shared);
    wire_unlock(&shared->slot.lock);
    return result;
}
