/* Injected faults, and the counters that tests check. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../soft/assignments.h"
#include "wire.h"

typedef _Atomic uint64_t word;

static const struct {
    const char *name;
    size_t offset;
    bool matters; /* to posts */
} names[] = {
    {"node_down", offsetof(struct wire_faults, node_down), true},
    {"fail_nth", offsetof(struct wire_faults, fail_nth), true},
    {"fail_code", offsetof(struct wire_faults, fail_code), false},
    {"busy_nth", offsetof(struct wire_faults, busy_nth), true},
    {"reorder_nth", offsetof(struct wire_faults, reorder_nth), true},
    {"late_us", offsetof(struct wire_faults, late_us), false},
    {"delay_us", offsetof(struct wire_faults, delay_us), true},
    {"reg_fail_nth", offsetof(struct wire_faults, reg_fail_nth), false},
    {"post_fail_nth", offsetof(struct wire_faults, post_fail_nth), true},
    {"die_at", offsetof(struct wire_faults, die_at), true},
    {"atomic_gap_us", offsetof(struct wire_faults, atomic_gap_us), false},
};

static const char *const counts[COUNTS] = {
    [COUNT_POSTS] = "posts",
    [COUNT_PUTS] = "puts",
    [COUNT_PIGGYBACKS] = "piggybacks",
    [COUNT_GETS] = "gets",
    [COUNT_ATOMICS] = "atomics",
    [COUNT_NOPS] = "nops",
    [COUNT_BYTES] = "bytes",
    [COUNT_STRONG] = "strong",
    [COUNT_ROUTED] = "routed",
    [COUNT_TCQ_NOTICES] = "tcq_notices",
    [COUNT_LOCAL_NOTICES] = "local_notices",
    [COUNT_REMOTE_NOTICES] = "remote_notices",
    [COUNT_ERRORS] = "errors",
    [COUNT_BUSY] = "busy",
    [COUNT_REORDERED] = "reordered",
    [COUNT_REGISTRATIONS] = "registrations",
    [COUNT_DEREGISTRATIONS] = "deregistrations",
    [COUNT_POLLS] = "polls",
};

static word *field_of(size_t i)
{
    return (word *)((char *)&wire->faults + names[i].offset);
}

static uint64_t value_of(word *field)
{
    return atomic_load_explicit(field, memory_order_relaxed);
}

static void note_what_matters(void)
{
    uint64_t any = 0;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        any |= names[i].matters && value_of(field_of(i)) != 0;
    atomic_store_explicit(&wire->faults.posts_matter, any, memory_order_relaxed);
}

static int fault_set_one(const char *name, size_t length, uint64_t value)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i].name) != length || memcmp(names[i].name, name, length) != 0)
            continue;
        if (field_of(i) == &wire->faults.fail_nth)
            atomic_store_explicit(&wire->faults.operations, 0, memory_order_relaxed);
        if (field_of(i) == &wire->faults.reg_fail_nth)
            atomic_store_explicit(&wire->faults.registrations, 0, memory_order_relaxed);
        if (field_of(i) == &wire->faults.post_fail_nth)
            atomic_store_explicit(&wire->faults.posts, 0, memory_order_relaxed);
        /* Release: partner of the acquire in counts_down; the counter is 0 before it is read. */
        atomic_store_explicit(field_of(i), value, memory_order_release);
        note_what_matters();
        return 0;
    }
    return EINVAL;
}

int fault_set(const char *text)
{
    return soft_assignments(text, fault_set_one);
}

static bool counts_down(word *nth, word *counter)
{
    uint64_t n = atomic_load_explicit(nth, memory_order_acquire);

    return n != 0 && atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1 == n;
}

bool fault_fails(int *code)
{
    if (!counts_down(&wire->faults.fail_nth, &wire->faults.operations))
        return false;
    *code = (int)value_of(&wire->faults.fail_code);
    if (*code == 0)
        *code = UTOFU_ERR_MRQ_PEER;
    return true;
}

void fault_die(enum fault_point here)
{
    if (fault_matters() && value_of(&wire->faults.die_at) == here)
        kill(getpid(), SIGKILL);
}

bool fault_refuses(void)
{
    return counts_down(&wire->faults.reg_fail_nth, &wire->faults.registrations);
}

bool fault_refuses_post(void)
{
    return counts_down(&wire->faults.post_fail_nth, &wire->faults.posts);
}

/* ---- for tofuctl ---- */

struct sum {
    uint64_t counts[COUNTS], bytes[WIRE_TNIS], vcqs, cqs;
};

static void add_cq(struct sum *sum, uint32_t node, uint32_t cq)
{
    bool used = false;

    for (uint32_t i = cq * WIRE_CMPS; i < (cq + 1) * WIRE_CMPS; i++) {
        struct wire_vcq *vcq = wire_vcq(node, i);

        for (int c = 0; c < COUNTS; c++)
            sum->counts[c] += value_of(&vcq->counts[c]);
        sum->bytes[cq / WIRE_CQS] += value_of(&vcq->counts[COUNT_BYTES]);
        if (atomic_load_explicit(&vcq->owner, memory_order_relaxed) != 0) {
            sum->vcqs++;
            used = true;
        }
    }
    sum->cqs += used;
}

static struct sum add_all(void)
{
    struct sum sum = {0};

    for (uint32_t n = 0; n < wire->nodes; n++)
        for (uint32_t c = 0; atomic_load_explicit(&wire_node(n)->made, memory_order_acquire) != 0 && c < NODE_CQS; c++)
            if (atomic_load_explicit(&wire_node(n)->cqs[c].ever, memory_order_acquire) != 0)
                add_cq(&sum, n, c);
    return sum;
}

static void print_one(const char *name, uint64_t value)
{
    printf("%s=%llu\n", name, (unsigned long long)value);
}

void fault_print(void)
{
    struct sum sum = add_all();

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        print_one(names[i].name, value_of(field_of(i)));
    for (int c = 0; c < COUNTS; c++)
        print_one(counts[c], sum.counts[c]);
    for (int t = 0; t < WIRE_TNIS; t++)
        printf("bytes[%d]=%llu\n", t, (unsigned long long)sum.bytes[t]);
    print_one("vcqs", sum.vcqs);
    print_one("cqs", sum.cqs);
    print_one("overflows", value_of(&wire->overflows));
    print_one("abandoned", value_of(&wire->abandoned));
    print_one("locks_recovered", value_of(&wire->locks_recovered));
}
