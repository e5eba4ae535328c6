/*
 * Message receive queues: rings in the wire, written by any process, read by the VCQ's owner.
 *
 * The `state` of an entry is its lap around the ring << 16, plus 0: free, 1: ready to be read, 2 + p: claimed by
 * process p, which is writing it. A poster claims the entry at the tail by compare-and-swap; then any poster may
 * advance the tail. So a poster that is stopped or killed there blocks no other poster, and the reader skips its entry
 * once it is dead. A new wire is all zero: every entry is free, on lap 0.
 */
#include <stdlib.h>
#include <string.h>

#include "tofu.h"

enum { FREE = 0, READY = 1, CLAIMED = 2 };

static uint64_t state_of(uint64_t number, uint64_t what)
{
    return number >> wire->mrq_shift << 16 | what;
}

static uint64_t mask(void)
{
    return (1ULL << wire->mrq_shift) - 1;
}

/* Returns the number of the claimed entry, or UINT64_MAX: the ring is full. */
static uint64_t claim(struct wire_vcq *vcq, struct wire_notice *notices, uint64_t mine)
{
    for (;;) {
        /* Acquire: partner of the release below; an entry is not older than the tail that leads to it. */
        uint64_t number = atomic_load_explicit(&vcq->tail, memory_order_acquire), last = number;
        struct wire_notice *notice = &notices[number & mask()];
        /* Acquire: partner of the release in mrq_take; the reader is done with the old entry. */
        uint64_t state = atomic_load_explicit(&notice->state, memory_order_acquire), expected = state_of(number, FREE);

        if (state == expected
            && atomic_compare_exchange_strong_explicit(&notice->state, &state, expected | mine, memory_order_acquire,
                                                       memory_order_relaxed)) {
            fault_die(DIE_CLAIMED);
            atomic_compare_exchange_strong_explicit(&vcq->tail, &last, number + 1, memory_order_release,
                                                    memory_order_relaxed);
            return number;
        }
        if (state >> 16 >= expected >> 16) /* claimed by another poster, or even read since: the tail has to advance */
            atomic_compare_exchange_strong_explicit(&vcq->tail, &last, number + 1, memory_order_release,
                                                    memory_order_relaxed);
        else if (atomic_load_explicit(&vcq->tail, memory_order_relaxed) == number)
            return UINT64_MAX;
    }
}

void mrq_push(uint32_t node, uint32_t index, const struct wire_notice *what)
{
    struct wire_notice *notices = wire_notices(node, index);
    struct wire_vcq *vcq = wire_vcq(node, index);
    uint64_t mine = CLAIMED + process_self(), number = claim(vcq, notices, mine), state;
    struct wire_notice *notice = &notices[number & mask()];

    if (number == UINT64_MAX) {
        if (atomic_exchange_explicit(&vcq->overflowed, 1, memory_order_relaxed) == 0)
            atomic_fetch_add_explicit(&wire->overflows, 1, memory_order_relaxed);
        return;
    }
    memcpy((char *)notice + sizeof(notice->state), (const char *)what + sizeof(what->state),
           sizeof(*what) - sizeof(what->state));
    fault_die(DIE_WRITTEN);
    state = state_of(number, mine);
    /* Release: partner of the acquire in mrq_take; the notice and its data are written. It fails if the
     * reader has skipped the entry. */
    atomic_compare_exchange_strong_explicit(&notice->state, &state, state_of(number, READY), memory_order_release,
                                            memory_order_relaxed);
}

/* The entry at `number` may be written again, a lap later. */
static void give_back(struct wire_notice *notice, uint64_t number)
{
    /* Release: partner of the acquire in claim. */
    atomic_store_explicit(&notice->state, state_of(number + mask() + 1, FREE), memory_order_release);
}

/* Advances the head past its entry. */
static void advance(struct soft_vcq *vcq)
{
    give_back(&vcq->notices[vcq->head & mask()], vcq->head);
    vcq->head++;
    atomic_store_explicit(&vcq->shared->head, vcq->head, memory_order_relaxed);
}

void mrq_reset(struct soft_vcq *vcq)
{
    vcq->head = atomic_load_explicit(&vcq->shared->head, memory_order_relaxed);
    while (vcq->head != atomic_load_explicit(&vcq->shared->tail, memory_order_acquire))
        advance(vcq);
    atomic_store_explicit(&vcq->shared->overflowed, 0, memory_order_relaxed);
}

/* Whether the claim is of a dead process. */
static bool is_abandoned(const struct wire_notice *notice, uint64_t state)
{
    /* The second load: the process may have completed the entry before it died. */
    if (peer_alive((state & 0xffff) - CLAIMED)
        || atomic_load_explicit(&notice->state, memory_order_acquire) != state)
        return false;
    atomic_fetch_add_explicit(&wire->abandoned, 1, memory_order_relaxed);
    return true;
}

/* The oldest notice of the ring. */
static bool mrq_take(struct soft_vcq *vcq, struct wire_notice *notice)
{
    struct wire_notice *first = &vcq->notices[vcq->head & mask()];
    /* Acquire: partner of the release in mrq_push. */
    uint64_t state = atomic_load_explicit(&first->state, memory_order_acquire);

    if (state == state_of(vcq->head, READY)) {
        memcpy((char *)notice + sizeof(state), (char *)first + sizeof(state), sizeof(*notice) - sizeof(state));
        advance(vcq);
        return true;
    }
    if (state > state_of(vcq->head, READY) && state >> 16 == state_of(vcq->head, FREE) >> 16 &&
        is_abandoned(first, state))
        advance(vcq);
    return false;
}

static bool next_arrived(struct soft_vcq *vcq, struct wire_notice *notice)
{
    struct wire_notice one;

    if (wire->time.on == 0)
        return mrq_take(vcq, notice);
    while (mrq_take(vcq, &one))
        flight_add(vcq, &one);
    return flight_arrives(vcq, notice);
}

static int poll(struct soft_vcq *vcq, struct utofu_mrq_notice *notice)
{
    struct wire_notice one;

    count(vcq, COUNT_POLLS, 1);
    if (atomic_load_explicit(&vcq->helds, memory_order_acquire) != 0)
        late_release(vcq, now_ns());
    if (atomic_load_explicit(&vcq->shared->overflowed, memory_order_relaxed) != 0)
        return UTOFU_ERR_MRQ_OTHER;
    if (!next_arrived(vcq, &one))
        return UTOFU_ERR_NOT_FOUND;
    *notice = (struct utofu_mrq_notice){.notice_type = one.type,
                                        .vcq_id = one.vcq_id,
                                        .edata = one.edata,
                                        .rmt_value = one.rmt_value,
                                        .lcl_stadd = one.lcl_stadd,
                                        .rmt_stadd = one.rmt_stadd};
    return one.error;
}

int utofu_poll_mrq(utofu_vcq_hdl_t handle, unsigned long flags, struct utofu_mrq_notice *notice)
{
    struct soft_vcq *vcq = vcq_of(handle);
    bool locked;
    int result;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (notice == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    if (flags != 0)
        return UTOFU_ERR_INVALID_FLAGS;
    locked = vcq_must_lock(vcq);
    if (locked)
        pthread_mutex_lock(&vcq->lock);
    result = poll(vcq, notice);
    if (locked)
        pthread_mutex_unlock(&vcq->lock);
    return result;
}

int utofu_query_num_unread_mrq(utofu_vcq_hdl_t handle, size_t *count)
{
    struct soft_vcq *vcq = vcq_of(handle);
    uint64_t now;

    if (vcq == NULL)
        return UTOFU_ERR_INVALID_VCQ_HDL;
    if (count == NULL)
        return UTOFU_ERR_INVALID_POINTER;
    now = wire->time.on ? now_ns() : 0;
    *count = 0;
    pthread_mutex_lock(&vcq->lock);
    for (size_t i = 0; i < vcq->flying; i++)
        *count += vcq->flights[i].due <= now;
    for (uint64_t n = vcq->head; n <= vcq->head + mask(); n++) {
        struct wire_notice *one = &vcq->notices[n & mask()];

        if (atomic_load_explicit(&one->state, memory_order_acquire) != state_of(n, READY))
            break;
        *count += one->due <= now;
    }
    pthread_mutex_unlock(&vcq->lock);
    return UTOFU_SUCCESS;
}
