/*
 * Registered memory. A STADD from its low end: 36 bits offset, 8 generation, 13 stag, 6 number of the CQ on its node +
 * 1. So one buffer has different STADDs on different CQs and a STADD of another CQ is invalid; one of a released
 * registration is invalid for the next one in its slot. A reserved stag has generation 0: its STADD can be computed.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tofu.h"

enum { GENERATION_AT = 36, STAG_AT = 44, CQ_AT = 57 };
#define OFFSETS (1ULL << GENERATION_AT)

static uint64_t stadd_of(uint32_t cq, uint32_t stag, uint32_t generation)
{
    return (uint64_t)(cq + 1) << CQ_AT | (uint64_t)stag << STAG_AT | (uint64_t)generation << GENERATION_AT;
}

static uint32_t stag_of(uint64_t stadd)
{
    return stadd >> STAG_AT & (WIRE_STAGS - 1);
}

enum region_result stag_resolve(const struct wire_stag *stags, uint32_t cq, uint64_t stadd, uint64_t length,
                                struct region *region)
{
    const struct wire_stag *stag = &stags[stag_of(stadd)];
    uint64_t offset = stadd & (OFFSETS - 1), size, flags;
    /*
     * Acquire: partner of the release in set_tag; the fields are of this tag or a later one, which the second load
     * detects.
     */
    uint64_t tag = atomic_load_explicit(&stag->tag, memory_order_acquire);

    /* Acquire, each: partners of the releases in fill; a field of a later registration makes its tag visible. */
    region->stag = stag;
    region->tag = tag;
    region->offset = offset;
    region->address = atomic_load_explicit(&stag->address, memory_order_acquire) + offset;
    size = atomic_load_explicit(&stag->size, memory_order_acquire);
    region->process = atomic_load_explicit(&stag->process, memory_order_acquire);
    flags = atomic_load_explicit(&stag->flags, memory_order_acquire);
    region->read_only = flags & UTOFU_REG_MEM_FLAG_READ_ONLY;
    region->shared = flags & STAG_SHARED;
    if (tag % 2 == 0 || stadd >> CQ_AT != cq + 1
        || (stadd >> GENERATION_AT & 0xff) != atomic_load_explicit(&stag->generation, memory_order_acquire)
        || atomic_load_explicit(&stag->tag, memory_order_relaxed) != tag)
        return REGION_NONE;
    return offset <= size && length <= size - offset ? REGION_OK : REGION_SHORT;
}

/* Never 0: stags do not lie at the beginning of a wire. */
static uint64_t stag_name(const struct wire_stag *stag)
{
    return (const char *)stag - (const char *)wire;
}

bool stag_hold(struct soft_vcq *vcq, const struct region *region)
{
    /*
     * Sequentially consistent, both, as the two in set_tag and settle: either this thread sees the release, or the
     * waiting thread sees this one.
     */
    atomic_store_explicit(&vcq->shared->touching, stag_name(region->stag), memory_order_seq_cst);
    if (atomic_load_explicit(&region->stag->tag, memory_order_seq_cst) == region->tag)
        return true;
    stag_release(vcq);
    return false;
}

void stag_release(struct soft_vcq *vcq)
{
    /* Release: partner of the load in settle; the memory is not accessed any more. */
    atomic_store_explicit(&vcq->shared->touching, 0, memory_order_release);
}

/* Waits until no operation of a live process accesses the memory of a released registration. */
static void settle(const struct wire_stag *stag)
{
    uint64_t name = stag_name(stag);

    for (uint32_t node = 0; node < wire->nodes; node++) {
        for (uint32_t cq = 0; atomic_load_explicit(&wire_node(node)->made, memory_order_acquire) != 0 && cq < NODE_CQS;
             cq++) {
            if (atomic_load_explicit(&wire_node(node)->cqs[cq].ever, memory_order_acquire) == 0)
                continue;
            for (uint32_t i = cq * WIRE_CMPS; i < (cq + 1) * WIRE_CMPS; i++) {
                struct wire_vcq *vcq = wire_vcq(node, i);
                uint32_t owner;

                while (atomic_load_explicit(&vcq->touching, memory_order_seq_cst) == name &&
                       (owner = atomic_load_explicit(&vcq->owner, memory_order_relaxed)) != 0 && peer_alive(owner - 1))
                    sched_yield();
            }
        }
    }
}

bool stag_mapped(const void *start, size_t length)
{
    size_t page = sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)start / page * page, to = (uintptr_t)start + length;
    unsigned char present[4096];

    while (from < to) {
        size_t step = to - from < sizeof(present) * page ? to - from : sizeof(present) * page;

        if (mincore((void *)from, step, present) != 0)
            return false;
        from += step;
    }
    return true;
}

/* ---- registering; the CQ is locked ---- */

static void set_tag(struct wire_stag *stag)
{
    atomic_store_explicit(&stag->tag, atomic_load_explicit(&stag->tag, memory_order_relaxed) + 1, memory_order_seq_cst);
}

static void fill(struct wire_stag *stag, uint32_t generation, void *address, size_t size, unsigned long flags)
{
    memset(stag->users, 0, sizeof(stag->users));
    atomic_store_explicit(&stag->generation, generation, memory_order_release);
    atomic_store_explicit(&stag->address, (uintptr_t)address, memory_order_release);
    atomic_store_explicit(&stag->size, size, memory_order_release);
    atomic_store_explicit(&stag->process, process_self(), memory_order_release);
    atomic_store_explicit(&stag->flags, flags | (area_is_shared(address, size) ? STAG_SHARED : 0),
                          memory_order_release);
    set_tag(stag);
}

static bool is_valid(const struct wire_stag *stag)
{
    return atomic_load_explicit(&stag->tag, memory_order_relaxed) % 2 == 1;
}

static bool is_same(const struct wire_stag *stag, void *address, size_t size, unsigned long flags)
{
    return is_valid(stag) && atomic_load_explicit(&stag->process, memory_order_relaxed) == process_self()
           && atomic_load_explicit(&stag->address, memory_order_relaxed) == (uintptr_t)address
           && atomic_load_explicit(&stag->size, memory_order_relaxed) == size
           && (atomic_load_explicit(&stag->flags, memory_order_relaxed) & ~STAG_SHARED) == flags;
}

/* The stag of the same registration if there is one, else a free one; WIRE_STAGS: none. */
static uint32_t find(struct soft_vcq *vcq, struct wire_cq *cq, void *address, size_t size, unsigned long flags)
{
    uint32_t unused = wire->stags;

    if (cq->stags_end < RESERVED_STAGS)
        cq->stags_end = RESERVED_STAGS;
    for (uint32_t s = RESERVED_STAGS; s < cq->stags_end; s++) {
        if (is_same(&vcq->stags[s], address, size, flags))
            return s;
        if (!is_valid(&vcq->stags[s]) && unused == wire->stags)
            unused = s;
    }
    if (unused != wire->stags)
        return unused;
    return cq->stags_end < wire->stags ? cq->stags_end++ : WIRE_STAGS;
}

static int check(struct soft_vcq *vcq, void *address, size_t size, unsigned long flags, uint64_t *stadd)
{
    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (stadd == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (flags & ~UTOFU_REG_MEM_FLAG_READ_ONLY)
        return UTOFU_ERR_INVALID_FLAGS;
    if (size == 0 || size >= OFFSETS)
        return UTOFU_ERR_INVALID_SIZE;
    if (address == NULL || !stag_mapped(address, size))
        return UTOFU_ERR_INVALID_ADDRESS;
    if (fault_refuses())
        return UTOFU_ERR_FULL;
    return UTOFU_SUCCESS;
}

int utofu_reg_mem(utofu_vcq_hdl_t handle, void *address, size_t size, unsigned long flags, utofu_stadd_t *stadd)
{
    struct soft_vcq *vcq = vcq_of(handle);
    int error = check(vcq, address, size, flags, stadd);
    struct wire_stag *stag;
    struct wire_cq *cq;
    uint32_t number;

    if (error != UTOFU_SUCCESS)
        return error;
    cq = &wire_node(vcq->node)->cqs[vcq->cq];
    wire_lock(&cq->lock);
    number = find(vcq, cq, address, size, flags);
    fault_die(DIE_IN_REGISTRATION);
    stag = &vcq->stags[number];
    if (number < WIRE_STAGS) {
        if (!is_valid(stag)) {
            uint32_t last = atomic_load_explicit(&stag->generation, memory_order_relaxed);

            /* Nodes begin at different generations, so that a STADD used with the wrong node is detected. */
            fill(stag, (last != 0 ? last : vcq->node * 37 + number) % 255 + 1, address, size, flags);
        }
        stag->users[vcq->cmp]++;
        *stadd = stadd_of(vcq->cq, number, atomic_load_explicit(&stag->generation, memory_order_relaxed));
        count(vcq, COUNT_REGISTRATIONS, 1);
    }
    wire_unlock(&cq->lock);
    return number < WIRE_STAGS ? UTOFU_SUCCESS : UTOFU_ERR_FULL;
}

int utofu_reg_mem_with_stag(utofu_vcq_hdl_t handle, void *address, size_t size, unsigned int number,
                            unsigned long flags, utofu_stadd_t *stadd)
{
    struct soft_vcq *vcq = vcq_of(handle);
    int error = check(vcq, address, size, flags, stadd);
    struct wire_cq *cq;

    if (error != UTOFU_SUCCESS)
        return error;
    if (number >= RESERVED_STAGS)
        return UTOFU_ERR_INVALID_STAG;
    if ((uintptr_t)address % 256 != 0)
        return UTOFU_ERR_INVALID_ADDRESS;
    cq = &wire_node(vcq->node)->cqs[vcq->cq];
    wire_lock(&cq->lock);
    if (is_valid(&vcq->stags[number]) && !is_same(&vcq->stags[number], address, size, flags))
        error = UTOFU_ERR_USED;
    else {
        if (!is_valid(&vcq->stags[number]))
            fill(&vcq->stags[number], 0, address, size, flags);
        vcq->stags[number].users[vcq->cmp]++;
        *stadd = stadd_of(vcq->cq, number, 0);
        count(vcq, COUNT_REGISTRATIONS, 1);
    }
    wire_unlock(&cq->lock);
    return error;
}

int utofu_query_stadd(utofu_vcq_id_t id, unsigned int number, utofu_stadd_t *stadd)
{
    uint32_t node, index;

    if (process_attach() != UTOFU_SUCCESS || !torus_place(id, &node, &index))
        return UTOFU_ERR_INVALID_VCQ_ID;
    if (stadd == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (number >= RESERVED_STAGS)
        return UTOFU_ERR_INVALID_STAG;
    *stadd = stadd_of(index / WIRE_CMPS, number, 0);
    return UTOFU_SUCCESS;
}

static void drop_if_unused(struct wire_stag *stag)
{
    for (int i = 0; i < WIRE_CMPS; i++)
        if (stag->users[i] != 0)
            return;
    set_tag(stag);
    settle(stag);
}

int utofu_dereg_mem(utofu_vcq_hdl_t handle, utofu_stadd_t stadd, unsigned long flags)
{
    struct soft_vcq *vcq = vcq_of(handle);
    int error = UTOFU_SUCCESS;
    struct wire_stag *stag;
    struct region region;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (flags != 0)
        return UTOFU_ERR_INVALID_FLAGS;
    stag = &vcq->stags[stag_of(stadd)];
    wire_lock(&wire_node(vcq->node)->cqs[vcq->cq].lock);
    if (stadd % OFFSETS != 0 || stag_resolve(vcq->stags, vcq->cq, stadd, 0, &region) != REGION_OK ||
        stag->users[vcq->cmp] == 0)
        error = UTOFU_ERR_INVALID_STADD;
    else {
        stag->users[vcq->cmp]--;
        drop_if_unused(stag);
        count(vcq, COUNT_DEREGISTRATIONS, 1);
    }
    wire_unlock(&wire_node(vcq->node)->cqs[vcq->cq].lock);
    area_tidy(vcq); /* a program that gives memory up has often lost a peer */
    return error;
}

void stag_drop(uint32_t node, uint32_t cq, uint32_t cmp)
{
    uint32_t end = wire_node(node)->cqs[cq].stags_end;

    for (uint32_t s = 0; s < (end < RESERVED_STAGS ? RESERVED_STAGS : end); s++) {
        struct wire_stag *stag = &wire_stags(node, cq)[s];

        if (!is_valid(stag) || stag->users[cmp] == 0)
            continue;
        stag->users[cmp] = 0;
        drop_if_unused(stag);
    }
}
