/*
 * Atomics. They are atomic with respect to each other on the wire, by a lock selected by node and address; with respect
 * to CPU instructions they are not, unless the initiator can reach the memory directly.
 */
#include <string.h>
#include <unistd.h>

#include "tofu.h"

static uint64_t result(const struct op *op, uint64_t old)
{
    if (op->kind == CSWAP)
        return old == op->compare ? op->value : old;
    switch (op->armw) {
    case UTOFU_ARMW_OP_SWAP: return op->value;
    case UTOFU_ARMW_OP_ADD: return old + op->value;
    case UTOFU_ARMW_OP_XOR: return old ^ op->value;
    case UTOFU_ARMW_OP_AND: return old & op->value;
    default: return old | op->value;
    }
}

/*
 * Memory that is mapped in this process, too: acquire and release, so that atomics order other accesses like CPU
 * atomics do.
 */
#define HERE(type)                                                                                              \
    do {                                                                                                        \
        type before = __atomic_load_n((type *)address, __ATOMIC_ACQUIRE);                                       \
                                                                                                                \
        while (!__atomic_compare_exchange_n((type *)address, &before, (type)result(op, before), false,          \
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))                                \
            ;                                                                                                   \
        return before;                                                                                          \
    } while (0)

static uint64_t atomic4(const struct op *op, void *address)
{
    HERE(uint32_t);
}

static uint64_t atomic8(const struct op *op, void *address)
{
    HERE(uint64_t);
}

static void gap(void)
{
    uint64_t gap_us = atomic_load_explicit(&wire->faults.atomic_gap_us, memory_order_relaxed);

    if (gap_us != 0)
        usleep(gap_us);
}

static enum copy_result there(const struct op *op, const struct region *region, uint64_t *old)
{
    uint64_t after, wide = 0;
    uint32_t narrow = 0;
    void *at = op->width == 4 ? (void *)&narrow : (void *)&wide;
    enum copy_result copied = copy_from(region, at, op->width);

    *old = op->width == 4 ? narrow : wide;
    after = result(op, *old);
    gap();
    narrow = after;
    wide = after;
    if (copied == COPIED && after != *old)
        copied = copy_to(region, at, op->width);
    return copied;
}

int atomic_carry(const struct op *op, uint32_t node, const struct region *region, uint64_t *old)
{
    pthread_mutex_t *lock = &wire_node(node)->atomic_locks[region->address / sizeof(uint64_t) % ATOMIC_LOCKS];
    enum copy_result copied = COPIED;

    if (region->address % op->width != 0 || region->read_only)
        return region->read_only ? UTOFU_ERR_MRQ_RMT_MEMORY : UTOFU_ERR_MRQ_RMT_STADD;
    wire_lock(lock);
    fault_die(DIE_IN_ATOMIC);
    if (region->here == NULL)
        copied = there(op, region, old);
    else
        *old = op->width == 4 ? atomic4(op, region->here) : atomic8(op, region->here);
    wire_unlock(lock);
    /*
     * With a gap the lock is nearly always taken, and its last owner would get it again before any woken waiter:
     * without end.
     */
    if (region->here == NULL)
        gap();
    return copied == COPIED ? 0 : copied == COPY_GONE ? UTOFU_ERR_MRQ_PEER : UTOFU_ERR_MRQ_RMT_MEMORY;
}
