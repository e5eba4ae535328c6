/*
 * Operations that an injected fault delays, and the thread that executes them in the end, for initiators that make no
 * further calls. An operation with STRONG_ORDER is executed after all earlier ones to the same VCQ by the same path:
 * those that are delayed are executed first.
 */
#include <stdlib.h>
#include <string.h>

#include "../soft/thread.h"
#include "tofu.h"

enum { LATE_US = 2000 };

static struct soft_thread engine = SOFT_THREAD_INITIALIZER;
static uint64_t engine_due = UINT64_MAX; /* ns */

void late_in_child(void)
{
    engine = (struct soft_thread)SOFT_THREAD_INITIALIZER;
    engine_due = UINT64_MAX;
}

static uint64_t setting(_Atomic uint64_t *fault)
{
    return atomic_load_explicit(fault, memory_order_relaxed);
}

static bool same_path(const struct op *one, const struct op *two)
{
    return torus_without_path(one->rmt_vcq_id) == torus_without_path(two->rmt_vcq_id)
           && torus_path(one->rmt_vcq_id, one->flags) == torus_path(two->rmt_vcq_id, two->flags);
}

static void release_before(struct soft_vcq *vcq, const struct op *op, const struct held *end);

/* Removes `held` from the list and executes it. */
static void release(struct soft_vcq *vcq, struct held *held)
{
    struct held **at = &vcq->held;

    if (held->op.flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER)
        release_before(vcq, &held->op, held);
    while (*at != held)
        at = &(*at)->next;
    *at = held->next;
    carry_out(vcq, &held->op, held->place);
    free(held);
    /* Release: partner of the acquire in vcq_must_lock. */
    atomic_fetch_sub_explicit(&vcq->helds, 1, memory_order_release);
}

/* Executes the operations of the path of `op` that precede `end` in the list, from the oldest on. */
static void release_before(struct soft_vcq *vcq, const struct op *op, const struct held *end)
{
    struct held *held = vcq->held;

    while (held != end) {
        bool same = same_path(&held->op, op);

        if (same)
            release(vcq, held);
        held = same ? vcq->held : held->next;
    }
}

void late_release(struct soft_vcq *vcq, uint64_t now)
{
    struct held *held = vcq->held;

    while (held != NULL) {
        bool due = held->due <= now;

        if (due)
            release(vcq, held);
        held = due ? vcq->held : held->next;
    }
}

void late_overtaken(struct soft_vcq *vcq)
{
    struct held *held = vcq->held;

    while (held != NULL) {
        bool goes = held->overtaken;

        if (goes)
            release(vcq, held);
        held = goes ? vcq->held : held->next;
    }
}

/* ---- the thread ---- */

/* Returns the time of its next run. */
static uint64_t release_due(void)
{
    uint64_t first = UINT64_MAX;

    for (int i = 0; i < NODE_VCQS; i++) {
        struct soft_vcq *vcq = &vcqs[i];

        if (atomic_load_explicit(&vcq->live, memory_order_acquire) == 0
            || atomic_load_explicit(&vcq->helds, memory_order_acquire) == 0)
            continue;
        pthread_mutex_lock(&vcq->lock);
        late_release(vcq, now_ns());
        for (struct held *held = vcq->held; held != NULL; held = held->next)
            first = held->due < first ? held->due : first;
        pthread_mutex_unlock(&vcq->lock);
    }
    return first;
}

static void *engine_run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&engine.lock);
    for (;;) {
        uint64_t due = engine_due;

        if (due > now_ns())
            soft_thread_wait(&engine, due);
        else {
            engine_due = UINT64_MAX;
            pthread_mutex_unlock(&engine.lock);
            due = release_due();
            pthread_mutex_lock(&engine.lock);
            engine_due = due < engine_due ? due : engine_due;
        }
    }
    return NULL;
}

static void hold(struct soft_vcq *vcq, const struct op *op, uint64_t place, uint64_t due, bool overtaken)
{
    struct held *held = malloc(sizeof(*held)), **end = &vcq->held;

    *held = (struct held){.due = due, .place = place, .overtaken = overtaken, .op = *op};
    while (*end != NULL)
        end = &(*end)->next;
    *end = held;
    atomic_fetch_add_explicit(&vcq->helds, 1, memory_order_release);
    pthread_mutex_lock(&engine.lock);
    soft_thread_start(&engine, engine_run);
    if (due < engine_due) {
        engine_due = due;
        pthread_cond_signal(&engine.work);
    }
    pthread_mutex_unlock(&engine.lock);
}

bool late_hold(struct soft_vcq *vcq, const struct op *op, uint64_t place)
{
    uint64_t nth = setting(&wire->faults.reorder_nth), delay = setting(&wire->faults.delay_us);
    uint64_t late = setting(&wire->faults.late_us);
    bool strong = op->flags & UTOFU_ONESIDED_FLAG_STRONG_ORDER, reorder;

    if (op->kind == NOP)
        return false;
    reorder = op->kind == PUT && !strong && nth != 0 && ++vcq->puts % nth == 0;
    if (strong && delay == 0)
        release_before(vcq, op, NULL);
    if (!reorder && delay == 0)
        return false;
    if (reorder)
        count(vcq, COUNT_REORDERED, 1);
    hold(vcq, op, place, now_ns() + (delay + (reorder ? late != 0 ? late : LATE_US : 0)) * 1000, reorder && delay == 0);
    return true;
}
