/*
 * The model of time. Data moves at once; the model sets when its notices become visible. A transfer occupies the
 * sending TNI, and one wire latency later the receiving one, for its length at the TNI's bandwidth, after the transfers
 * before it.
 */
#include <time.h>

#include "tofu.h"

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Occupies one direction of a TNI from `from` at the earliest; returns the end. */
static uint64_t occupy(_Atomic uint64_t *until, uint64_t from, uint64_t ns)
{
    uint64_t busy = atomic_load_explicit(until, memory_order_relaxed), end;

    do
        end = (busy > from ? busy : from) + ns;
    while (!atomic_compare_exchange_weak_explicit(until, &busy, end, memory_order_relaxed, memory_order_relaxed));
    return end;
}

static uint64_t transfer_ns(uint64_t bytes)
{
    return wire->time.message + bytes * 1000 / wire->time.mb_per_s;
}

/* Beyond a neighbour, which the base latencies are for. */
static uint64_t hop_ns(const struct soft_vcq *vcq, uint32_t node)
{
    uint32_t hops = torus_hops(vcq->node, node);

    return hops > 1 ? (hops - 1) * wire->time.hop : 0;
}

struct times clock_put(struct soft_vcq *vcq, uint32_t node, uint32_t tni, uint64_t bytes, uint64_t now)
{
    struct times times = {0, 0, 0};
    uint64_t ns, hops;

    if (wire->time.on == 0)
        return times;
    ns = transfer_ns(bytes);
    hops = hop_ns(vcq, node);
    times.sent = occupy(&wire_node(vcq->node)->tnis[vcq->tni].sends_until, now, ns);
    times.arrived = occupy(&wire_node(node)->tnis[tni].receives_until, times.sent - ns + wire->time.put + hops, ns);
    times.answered = times.arrived + wire->time.ack + hops;
    return times;
}

struct times clock_get(struct soft_vcq *vcq, uint32_t node, uint32_t tni, uint64_t bytes, uint64_t now)
{
    struct times times = {0, 0, 0};
    uint64_t ns, hops;

    if (wire->time.on == 0)
        return times;
    ns = transfer_ns(bytes);
    hops = hop_ns(vcq, node);
    times.sent = occupy(&wire_node(vcq->node)->tnis[vcq->tni].sends_until, now, wire->time.message);
    times.arrived = occupy(&wire_node(node)->tnis[tni].sends_until, times.sent + wire->time.get + hops, ns);
    times.answered = occupy(&wire_node(vcq->node)->tnis[vcq->tni].receives_until,
                            times.arrived - ns + wire->time.get + hops, ns);
    return times;
}

struct times clock_atomic(struct soft_vcq *vcq, uint32_t node, uint64_t now)
{
    struct times times = {0, 0, 0};

    if (wire->time.on == 0)
        return times;
    times.sent = occupy(&wire_node(vcq->node)->tnis[vcq->tni].sends_until, now, wire->time.message);
    times.arrived = times.sent + wire->time.atomic + hop_ns(vcq, node);
    times.answered = times.arrived + wire->time.atomic + hop_ns(vcq, node);
    return times;
}
