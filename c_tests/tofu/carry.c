/* Execution of one operation, at the initiator: addresses, data, then the notices. */
#include <string.h>

#include "tofu.h"

/* The remote end of an operation. */
struct target {
    uint32_t node, index; /* of the node; of the VCQ on it */
    const struct wire_stag *stags;
};

struct outcome {
    int code;     /* 0, a TCQ code or an MRQ code */
    uint64_t old; /* previous value, of an atomic */
};

static int target_of(const struct op *op, const struct soft_vcq *vcq, struct target *target)
{
    target->node = op->node;
    target->index = op->index;
    target->stags = wire_stags(target->node, target->index / WIRE_CMPS);
    if (fault_matters() && (fault_down(target->node) || fault_down(vcq->node)))
        return UTOFU_ERR_MRQ_PEER;
    /* Acquire: partner of the release in vcq_drop_shared, and of wire_make_node by way of the wire's lock there. */
    if (atomic_load_explicit(&wire_vcq(target->node, target->index)->owner, memory_order_acquire) == 0)
        return UTOFU_ERR_MRQ_PEER;
    return 0;
}

static int resolve_local(const struct soft_vcq *vcq, const struct op *op, uint64_t stadd, struct region *region)
{
    bool put = op->kind == PUT;

    switch (stag_resolve(vcq->stags, vcq->cq, stadd, op->length, region)) {
    case REGION_NONE: return put ? UTOFU_ERR_TCQ_STADD : UTOFU_ERR_MRQ_LCL_STADD;
    case REGION_SHORT: return put ? UTOFU_ERR_TCQ_LENGTH : UTOFU_ERR_MRQ_LCL_LENGTH;
    default: break;
    }
    if (region->process != process_self()) /* a CQ that two processes share */
        return put ? UTOFU_ERR_TCQ_STADD : UTOFU_ERR_MRQ_LCL_STADD;
    return !put && region->read_only ? UTOFU_ERR_MRQ_LCL_MEMORY : 0;
}

/* 0: it is held. */
static int resolve_remote(struct soft_vcq *vcq, const struct target *target, uint64_t stadd, uint64_t length,
                          bool write, struct region *region)
{
    switch (stag_resolve(target->stags, target->index / WIRE_CMPS, stadd, length, region)) {
    case REGION_NONE: return UTOFU_ERR_MRQ_RMT_STADD;
    case REGION_SHORT: return UTOFU_ERR_MRQ_RMT_LENGTH;
    default: break;
    }
    if (write && region->read_only)
        return UTOFU_ERR_MRQ_RMT_MEMORY;
    if (!peer_alive(region->process))
        return UTOFU_ERR_MRQ_PEER; /* memory of a dead process that is mapped here would still be accessible */
    if (!stag_hold(vcq, region))
        return UTOFU_ERR_MRQ_RMT_STADD;
    region->here = area_here(vcq, region);
    return 0;
}

static int code_of(enum copy_result result, bool put)
{
    switch (result) {
    case COPIED: return 0;
    case COPY_GONE: return UTOFU_ERR_MRQ_PEER;
    case COPY_REMOTE: return UTOFU_ERR_MRQ_RMT_MEMORY;
    default: return put ? UTOFU_ERR_TCQ_MEMORY : UTOFU_ERR_MRQ_LCL_MEMORY;
    }
}

/* A put or a get of one block, `at` bytes behind the operation's STADDs. */
static int move_block(struct soft_vcq *vcq, const struct op *op, const struct target *target, uint64_t at)
{
    const void *data = op->data;
    struct region local, remote;
    int error;

    if (!op->piggyback) {
        error = resolve_local(vcq, op, op->lcl_stadd + at, &local);
        if (error != 0)
            return error;
        data = (const void *)local.address;
    }
    error = resolve_remote(vcq, target, op->rmt_stadd + at, op->length, op->kind == PUT, &remote);
    if (error != 0)
        return error;
    if (op->kind == PUT)
        error = code_of(copy_to(&remote, data, op->length), true);
    else
        error = code_of(copy_from(&remote, (void *)local.address, op->length), false);
    stag_release(vcq);
    return error;
}

static struct outcome move(struct soft_vcq *vcq, const struct op *op, const struct target *target)
{
    struct outcome outcome = {0, 0};
    struct region remote;

    if (op->kind == NOP)
        return outcome;
    if (op->kind == PUT || op->kind == GET) {
        for (uint32_t b = 0; b < op->blocks && outcome.code == 0; b++)
            outcome.code = move_block(vcq, op, target, b * op->stride);
        return outcome;
    }
    outcome.code = resolve_remote(vcq, target, op->rmt_stadd, op->width, true, &remote);
    if (outcome.code == 0) {
        outcome.code = atomic_carry(op, target->node, &remote, &outcome.old);
        stag_release(vcq);
    }
    return outcome;
}

/* Bytes from the first of the STADD to behind the last one. */
static uint64_t span(const struct op *op)
{
    return op->kind == PUT || op->kind == GET ? (op->blocks - 1) * op->stride + op->length : op->width;
}

static uint64_t payload(const struct op *op)
{
    return op->kind == PUT || op->kind == GET ? (uint64_t)op->blocks * op->length : 0;
}

static struct times times_of(struct soft_vcq *vcq, const struct op *op, const struct target *target, int code,
                             uint64_t now)
{
    uint32_t tni = target->index / WIRE_CMPS / WIRE_CQS;

    if (op->kind == NOP || code != 0)
        return (struct times){0, 0, 0};
    if (op->kind == PUT)
        return clock_put(vcq, target->node, tni, payload(op), now);
    if (op->kind == GET)
        return clock_get(vcq, target->node, tni, payload(op), now);
    return clock_atomic(vcq, target->node, now);
}

/* The notice types come in pairs, local and remote, in this order. */
static uint8_t type_of(const struct op *op, bool remote)
{
    static const uint8_t local[] = {[PUT] = UTOFU_MRQ_TYPE_LCL_PUT,
                                    [GET] = UTOFU_MRQ_TYPE_LCL_GET,
                                    [ARMW] = UTOFU_MRQ_TYPE_LCL_ARMW,
                                    [CSWAP] = UTOFU_MRQ_TYPE_LCL_ARMW};

    return local[op->kind] + remote;
}

static void notify(struct soft_vcq *vcq, const struct op *op, const struct target *target,
                   const struct outcome *outcome, const struct times *times)
{
    struct wire_notice notice = {.edata = op->edata, .rmt_stadd = op->rmt_stadd + span(op)};

    if (!op->piggyback && op->lcl_stadd != 0)
        notice.lcl_stadd = op->lcl_stadd + span(op);
    if (outcome->code == 0 && (op->flags & UTOFU_ONESIDED_FLAG_REMOTE_MRQ_NOTICE)) {
        notice.type = type_of(op, true);
        notice.vcq_id = vcq->id;
        notice.due = times->arrived;
        mrq_push(target->node, target->index, &notice);
        count(vcq, COUNT_REMOTE_NOTICES, 1);
    }
    if (outcome->code == 0 && !(op->flags & UTOFU_ONESIDED_FLAG_LOCAL_MRQ_NOTICE))
        return;
    notice.type = type_of(op, false);
    notice.vcq_id = torus_without_path(op->rmt_vcq_id);
    notice.error = outcome->code;
    notice.rmt_value = outcome->old;
    notice.due = times->answered;
    mrq_push(vcq->node, vcq->index, &notice);
    count(vcq, COUNT_LOCAL_NOTICES, 1);
}

static bool is_tcq(int code)
{
    return code <= UTOFU_ERR_TCQ_OTHER && code > UTOFU_ERR_MRQ_OTHER;
}

void carry_out(struct soft_vcq *vcq, const struct op *op, uint64_t place)
{
    struct order *order = &vcq->orders[place % wire->toq];
    struct outcome outcome = {0, 0};
    uint64_t now = wire->time.on ? now_ns() : 0;
    struct target target = {0};
    struct times times;

    if (op->kind != NOP) {
        if (!fault_matters() || !fault_fails(&outcome.code))
            outcome.code = target_of(op, vcq, &target);
        if (outcome.code == 0)
            outcome = move(vcq, op, &target);
    }
    times = times_of(vcq, op, &target, outcome.code, now);
    order->due = times.sent;
    if (is_tcq(outcome.code)) {
        order->status = outcome.code;
        if (!order->notice)
            vcq->unread++;
        order->notice = true;
    } else if (op->kind != NOP)
        notify(vcq, op, &target, &outcome, &times);
    if (outcome.code != 0)
        count(vcq, COUNT_ERRORS, 1);
    order->done = true;
}
