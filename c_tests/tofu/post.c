/* The transmit order queue: posting, and the transmit complete queue that follows from it. */
#include <string.h>

#include "post.h"

enum {
    KNOWN_FLAGS = UTOFU_ONESIDED_FLAG_STRONG_ORDER | UTOFU_ONESIDED_FLAG_PACKET_RESPONSE |
        UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE | UTOFU_ONESIDED_FLAG_PADDING | UTOFU_ONESIDED_FLAG_CACHE_INJECTION |
        UTOFU_ONESIDED_FLAG_DELAY_START | UTOFU_ONESIDED_FLAG_TCQ_NOTICE | UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE,
};
#define ALL_FLAGS ((unsigned long)KNOWN_FLAGS | UTOFU_ONESIDED_FLAG_SPS(15) | UTOFU_ONESIDED_FLAG_PATH(255))

int post_check(struct op *op)
{
    if (op->flags & ~ALL_FLAGS)
        return UTOFU_ERR_INVALID_FLAGS;
    if (op->kind == NOP)
        return UTOFU_SUCCESS;
    if (!torus_place(op->rmt_vcq_id, &op->node, &op->index))
        return UTOFU_ERR_INVALID_VCQ_ID;
    return UTOFU_SUCCESS;
}

/* Whether another `orders` can be posted, `notices` of which go to the TCQ. */
static bool has_room(struct soft_vcq *vcq, uint64_t orders, uint64_t notices)
{
    uint64_t nth;

    if (vcq->posted - vcq->passed + orders > wire->toq || vcq->unread + notices > wire->tcq)
        return false;
    if (!fault_matters())
        return true;
    nth = atomic_load_explicit(&wire->faults.busy_nth, memory_order_relaxed);
    return nth == 0 || ++vcq->attempts % nth != 0;
}

static void count_op(struct soft_vcq *vcq, const struct op *op)
{
    static const uint8_t kinds[] = {
        [PUT] = COUNT_PUTS, [GET] = COUNT_GETS, [ARMW] = COUNT_ATOMICS, [CSWAP] = COUNT_ATOMICS, [NOP] = COUNT_NOPS};

    count(vcq, op->piggyback ? COUNT_PIGGYBACKS : kinds[op->kind], 1);
    count(vcq, COUNT_BYTES, op->kind == PUT || op->kind == GET ? (uint64_t)op->blocks * op->length : op->width);
    if (op->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER)
        count(vcq, COUNT_STRONG, 1);
    if (torus_path(op->rmt_vcq_id, op->flags) != 0)
        count(vcq, COUNT_ROUTED, 1);
    if (op->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE)
        count(vcq, COUNT_TCQ_NOTICES, 1);
}

/* Without the VCQ's lock no operation may be delayed, even if a fault has just been set. */
static void order(struct soft_vcq *vcq, const struct op *op, void *cbdata, bool locked)
{
    uint64_t place = vcq->posted++;
    bool notice = op->flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE;

    vcq->orders[place % wire->toq] = (struct order){.cbdata = cbdata, .notice = notice};
    vcq->unread += notice;
    count_op(vcq, op);
    if (!locked || (!fault_matters() && atomic_load_explicit(&vcq->helds, memory_order_relaxed) == 0))
        carry_out(vcq, op, place);
    else if (!late_hold(vcq, op, place)) {
        carry_out(vcq, op, place);
        if (op->kind == PUT)
            late_overtaken(vcq);
    }
}

static int post_all(struct soft_vcq *vcq, const struct op *ops, size_t number, void *cbdata, bool locked)
{
    uint64_t notices = 0;

    for (size_t i = 0; i < number; i++)
        notices += (ops[i].flags & UTOFU_ONESIDED_FLAG_TCQ_NOTICE) != 0;
    if (!has_room(vcq, number, notices)) {
        count(vcq, COUNT_BUSY, 1);
        return UTOFU_ERR_BUSY;
    }
    if (fault_matters() && fault_refuses_post())
        return UTOFU_ERR_FATAL;
    count(vcq, COUNT_POSTS, 1);
    for (size_t i = 0; i < number; i++)
        order(vcq, &ops[i], cbdata, locked);
    return UTOFU_SUCCESS;
}

int post_ops(utofu_vcq_hdl_t handle, const struct op *ops, size_t number, void *cbdata)
{
    struct soft_vcq *vcq = vcq_of(handle);
    bool locked;
    int result;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    locked = vcq_must_lock(vcq);
    if (locked)
        pthread_mutex_lock(&vcq->lock);
    result = post_all(vcq, ops, number, cbdata, locked);
    if (locked)
        pthread_mutex_unlock(&vcq->lock);
    return result;
}

/* Passes completed orders up to the next entry of the TCQ: only this makes room in the TOQ. */
static int pass(struct soft_vcq *vcq, void **cbdata)
{
    uint64_t now = 0;

    while (vcq->passed != vcq->posted) {
        struct order *first = &vcq->orders[vcq->passed % wire->toq];

        if (!first->done)
            break;
        if (first->due != 0) {
            now = now == 0 ? now_ns() : now;
            if (first->due > now)
                break;
        }
        vcq->passed++;
        if (!first->notice)
            continue;
        vcq->unread--;
        *cbdata = first->cbdata;
        return first->status;
    }
    return UTOFU_ERR_NOT_FOUND;
}

int utofu_poll_tcq(utofu_vcq_hdl_t handle, unsigned long flags, void **cbdata)
{
    struct soft_vcq *vcq = vcq_of(handle);
    bool locked;
    int result;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (cbdata == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (flags != 0)
        return UTOFU_ERR_INVALID_FLAGS;
    locked = vcq_must_lock(vcq);
    if (locked)
        pthread_mutex_lock(&vcq->lock);
    count(vcq, COUNT_POLLS, 1);
    if (atomic_load_explicit(&vcq->helds, memory_order_relaxed) != 0)
        late_release(vcq, now_ns());
    result = pass(vcq, cbdata);
    if (locked)
        pthread_mutex_unlock(&vcq->lock);
    return result;
}

int utofu_query_num_unread_tcq(utofu_vcq_hdl_t handle, size_t *count)
{
    struct soft_vcq *vcq = vcq_of(handle);
    uint64_t now;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (count == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    now = now_ns();
    *count = 0;
    pthread_mutex_lock(&vcq->lock);
    for (uint64_t n = vcq->passed; n != vcq->posted; n++) {
        struct order *one = &vcq->orders[n % wire->toq];

        if (!one->done || one->due > now)
            break;
        *count += one->notice;
    }
    pthread_mutex_unlock(&vcq->lock);
    return UTOFU_SUCCESS;
}
