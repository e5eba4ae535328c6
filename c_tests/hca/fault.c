/* Injected faults: named numbers in the wire file, and the decisions that follow from them. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../soft/assignments.h"
#include "wire.h"

static const struct {
    const char *name;
    size_t offset;
} names[] = {
#define NAME(field) {#field, offsetof(struct wire_faults, field)}
    NAME(ud_drop_nth), NAME(ud_drop_permille), NAME(ud_duplicate_nth), NAME(ud_reorder_nth), NAME(delay_us),
    NAME(rc_fail_nth), NAME(rc_fail_status),   NAME(port_down),        NAME(retry_cap_us),   NAME(ud_packets),
    NAME(ud_dropped),  NAME(ud_duplicated),    NAME(ud_reordered),     NAME(ud_lost),        NAME(rc_requests),
    NAME(arm_fires),   NAME(locks_recovered),  NAME(rc_queues),        NAME(no_srq),         NAME(atomic_gap_us),
    NAME(atomics),     NAME(posts_refused),    NAME(delay_ports),      NAME(moved[0]),
    NAME(moved[1]),    NAME(moved[2]),         NAME(moved[3]),        NAME(words),         NAME(lists),
    NAME(ud_queues),   NAME(registered),       NAME(rc_most),         NAME(not_ready),
    NAME(dmabuf_refused), NAME(dmabufs),
#undef NAME
};

static uint64_t *field_of(size_t i)
{
    return (uint64_t *)((char *)&wire->faults + names[i].offset);
}

/* Notifies every open HCA of the devices in `mask` that its port went down or came up. */
static void port_events(uint64_t mask, enum ibv_event_type type)
{
    for (uint32_t i = 0; i < WIRE_HCAS; i++) {
        struct wire_hca *hca = &wire->hcas[i];
        uint32_t message[2] = {type, 0};

        if (hca->slot.id != 0 && (mask >> hca->number & 1) && peer_alive(hca))
            peer_signal(hca, hca->async_fd, hca->async_tag, message, sizeof(message));
    }
}

static int fault_set_one(const char *name, size_t length, uint64_t value)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        uint64_t *field = field_of(i), before = *field;

        if (strlen(names[i].name) != length || memcmp(names[i].name, name, length) != 0)
            continue;
        if (field == &wire->faults.rc_fail_nth)
            __atomic_store_n(&wire->faults.rc_requests, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(field, value, __ATOMIC_SEQ_CST);
        if (field == &wire->faults.port_down) {
            port_events(value & ~before, IBV_EVENT_PORT_ERR);
            port_events(before & ~value, IBV_EVENT_PORT_ACTIVE);
        }
        return 0;
    }
    return EINVAL;
}

int fault_set(const char *text)
{
    return soft_assignments(text, fault_set_one);
}

void fault_print(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        printf("%s=%llu\n", names[i].name, (unsigned long long)*field_of(i));
}

uint64_t fault_delay_us(int number)
{
    uint64_t ports = __atomic_load_n(&wire->faults.delay_ports, __ATOMIC_RELAXED);

    return ports == 0 || (ports >> number & 1) ? __atomic_load_n(&wire->faults.delay_us, __ATOMIC_RELAXED) : 0;
}

void fault_count_moved(int number, uint64_t bytes)
{
    if (number < (int)(sizeof(wire->faults.moved) / sizeof(wire->faults.moved[0])))
        __atomic_add_fetch(&wire->faults.moved[number], bytes, __ATOMIC_RELAXED);
}

bool fault_port_down(int number)
{
    return __atomic_load_n(&wire->faults.port_down, __ATOMIC_RELAXED) >> number & 1;
}

bool fault_post_refused(int number)
{
    return __atomic_load_n(&wire->faults.posts_refused, __ATOMIC_RELAXED) >> number & 1;
}

bool fault_rc_fails(enum ibv_wc_status *status)
{
    uint64_t nth = __atomic_load_n(&wire->faults.rc_fail_nth, __ATOMIC_RELAXED);

    if (nth == 0 || __atomic_add_fetch(&wire->faults.rc_requests, 1, __ATOMIC_RELAXED) != nth)
        return false;
    *status = wire->faults.rc_fail_status != 0 ? wire->faults.rc_fail_status : IBV_WC_RETRY_EXC_ERR;
    return true;
}

struct fault_ud fault_ud_next(void)
{
    struct wire_faults *faults = &wire->faults;
    uint64_t n = __atomic_add_fetch(&faults->ud_packets, 1, __ATOMIC_RELAXED), hash = n * 0x9e3779b97f4a7c15ULL;
    struct fault_ud fault = {false, false, false};

    hash ^= hash >> 32; /* the same packets are hit in every run */
    hash *= 0xd6e8feb86659fd93ULL;
    hash ^= hash >> 32;
    fault.drop = (faults->ud_drop_nth != 0 && n % faults->ud_drop_nth == 0) || hash % 1000 < faults->ud_drop_permille;
    if (fault.drop)
        __atomic_add_fetch(&faults->ud_dropped, 1, __ATOMIC_RELAXED);
    else {
        fault.duplicate = faults->ud_duplicate_nth != 0 && n % faults->ud_duplicate_nth == 0;
        fault.reorder = faults->ud_reorder_nth != 0 && n % faults->ud_reorder_nth == 0;
        __atomic_add_fetch(&faults->ud_duplicated, fault.duplicate, __ATOMIC_RELAXED);
        __atomic_add_fetch(&faults->ud_reordered, fault.reorder, __ATOMIC_RELAXED);
    }
    return fault;
}
