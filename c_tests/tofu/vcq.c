/* VCQs: allocation, and queries of the interface. */
#include <stdlib.h>
#include <string.h>

#include "tofu.h"

struct soft_vcq vcqs[NODE_VCQS]; /* this process's, by their index on the node */

struct soft_vcq *vcq_of(utofu_vcq_hdl_t handle)
{
    size_t offset = handle - (uintptr_t)vcqs;
    struct soft_vcq *vcq = (struct soft_vcq *)handle;

    if (offset >= sizeof(vcqs) || offset % sizeof(*vcq) != 0)
        return NULL;
    return atomic_load_explicit(&vcq->live, memory_order_relaxed) != 0 ? vcq : NULL;
}

/* ---- selection; the wire is locked ---- */

static uint32_t users(uint32_t node, uint32_t cq)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < WIRE_CMPS; i++)
        used |= (atomic_load_explicit(&wire_vcq(node, cq * WIRE_CMPS + i)->owner, memory_order_relaxed) != 0) << i;
    return used;
}

static bool is_own(uint32_t node, uint32_t cq)
{
    for (uint32_t i = 0; i < WIRE_CMPS; i++)
        if (atomic_load_explicit(&wire_vcq(node, cq * WIRE_CMPS + i)->owner, memory_order_relaxed) ==
            process_self() + 1)
            return true;
    return false;
}

/*
 * The rank of a CQ, 0: unusable. Without a requested component a free CQ is best, then the one with the
 * fewest users; with one, a CQ that this process has already, so that its components share one.
 */
static uint32_t cq_rank(uint32_t node, uint32_t cq, int cmp, bool exclusive)
{
    uint32_t used = users(node, cq), few = WIRE_CMPS - __builtin_popcount(used);

    if (exclusive || used == 0)
        return used == 0 ? 50 : 0;
    if (wire_node(node)->cqs[cq].exclusive || few == 0 || (cmp >= 0 && (used >> cmp & 1)))
        return 0;
    return cmp >= 0 && is_own(node, cq) ? 100 + few : few;
}

/* Returns the VCQ's index on the node, or -1. */
static int choose(uint32_t node, uint32_t tni, int cmp, bool exclusive)
{
    uint32_t best = 0, best_cq = 0;

    for (uint32_t cq = tni * WIRE_CQS; cq < tni * WIRE_CQS + wire->cqs; cq++) {
        uint32_t one = cq_rank(node, cq, cmp, exclusive);

        if (one > best)
            best = one, best_cq = cq;
    }
    if (best == 0)
        return -1;
    return best_cq * WIRE_CMPS + (cmp >= 0 ? cmp : __builtin_ctz(~users(node, best_cq)));
}

static int take(uint32_t node, uint32_t tni, int cmp, bool exclusive)
{
    struct wire_cq *cq;
    int index;

    wire_lock(&wire->lock);
    index = choose(node, tni, cmp, exclusive);
    if (index < 0) {
        process_reclaim();
        index = choose(node, tni, cmp, exclusive);
    }
    if (index >= 0) {
        cq = &wire_node(node)->cqs[index / WIRE_CMPS];
        wire_lock(&cq->lock);
        cq->exclusive = exclusive;
        atomic_store_explicit(&cq->ever, 1, memory_order_relaxed);
        wire_unlock(&cq->lock);
        atomic_store_explicit(&wire_vcq(node, index)->owner, process_self() + 1, memory_order_relaxed);
    }
    wire_unlock(&wire->lock);
    return index;
}

void vcq_drop_shared(uint32_t node, uint32_t index)
{
    struct wire_cq *cq = &wire_node(node)->cqs[index / WIRE_CMPS];

    wire_lock(&cq->lock);
    stag_drop(node, index / WIRE_CMPS, index % WIRE_CMPS);
    cq->exclusive = 0; /* an exclusive one, or one without users */
    wire_unlock(&cq->lock);
    /*
     * Release: partner of the acquire in carry.c; a thread that still finds an owner may find its registrations
     * released.
     */
    atomic_store_explicit(&wire_vcq(node, index)->owner, 0, memory_order_release);
}

/* ---- the interface ---- */

static int create(utofu_tni_id_t tni, int cmp, unsigned long flags, utofu_vcq_hdl_t *handle)
{
    bool exclusive = flags & UTOFU_VCQ_FLAG_EXCLUSIVE;
    int error = process_attach(), index;
    struct soft_vcq *vcq;
    uint8_t coords[6];

    if (error != UTOFU_SUCCESS)
        return error;
    if (handle == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (tni >= wire->tnis)
        return UTOFU_ERR_INVALID_TNI_ID;
    if (flags & ~(UTOFU_VCQ_FLAG_THREAD_SAFE | UTOFU_VCQ_FLAG_EXCLUSIVE | UTOFU_VCQ_FLAG_SESSION_MODE))
        return UTOFU_ERR_INVALID_FLAGS;
    if (flags & UTOFU_VCQ_FLAG_SESSION_MODE)
        return UTOFU_ERR_NOT_SUPPORTED;
    index = take(process_node(), tni, cmp, exclusive);
    if (index < 0)
        return exclusive ? UTOFU_ERR_NOT_AVAILABLE : UTOFU_ERR_FULL;
    vcq = &vcqs[index];
    memset(vcq, 0, sizeof(*vcq));
    vcq->thread_safe = flags & UTOFU_VCQ_FLAG_THREAD_SAFE;
    vcq->node = process_node();
    vcq->index = index;
    vcq->tni = tni;
    vcq->cq = index / WIRE_CMPS;
    vcq->cmp = index % WIRE_CMPS;
    torus_coords(vcq->node, coords);
    vcq->id = torus_id(coords, tni, vcq->cq % WIRE_CQS, vcq->cmp);
    vcq->shared = wire_vcq(vcq->node, index);
    vcq->notices = wire_notices(vcq->node, index);
    vcq->stags = wire_stags(vcq->node, vcq->cq);
    vcq->orders = calloc(wire->toq, sizeof(*vcq->orders));
    pthread_mutex_init(&vcq->lock, NULL);
    mrq_reset(vcq);
    atomic_store_explicit(&vcq->live, 1, memory_order_release);
    *handle = (utofu_vcq_hdl_t)vcq;
    return UTOFU_SUCCESS;
}

int utofu_create_vcq(utofu_tni_id_t tni, unsigned long flags, utofu_vcq_hdl_t *handle)
{
    return create(tni, -1, flags, handle);
}

int utofu_create_vcq_with_cmp_id(utofu_tni_id_t tni, utofu_cmp_id_t cmp, unsigned long flags, utofu_vcq_hdl_t *handle)
{
    return cmp < WIRE_CMPS ? create(tni, cmp, flags, handle) : UTOFU_ERR_INVALID_CMP_ID;
}

int utofu_free_vcq(utofu_vcq_hdl_t handle)
{
    struct soft_vcq *vcq = vcq_of(handle);

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    pthread_mutex_lock(&vcq->lock);
    late_release(vcq, UINT64_MAX);
    atomic_store_explicit(&vcq->live, 0, memory_order_relaxed);
    pthread_mutex_unlock(&vcq->lock);
    free(vcq->orders);
    free(vcq->flights);
    wire_lock(&wire->lock);
    vcq_drop_shared(vcq->node, vcq->index);
    wire_unlock(&wire->lock);
    return UTOFU_SUCCESS;
}

int utofu_query_vcq_id(utofu_vcq_hdl_t handle, utofu_vcq_id_t *id)
{
    struct soft_vcq *vcq = vcq_of(handle);

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (id == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    *id = vcq->id;
    return UTOFU_SUCCESS;
}
