/*
 * The rules that the restricted fabric imposes, from SOFT_OFI_RULES=name=value,...: what a provider lacks, and what it
 * asks of its user. README.md describes each.
 */
#ifndef OFI_RULES_H
#define OFI_RULES_H

#include <stdint.h>

struct rules {
    /* What the provider lacks. */
    uint64_t no_sas, no_multi_recv, no_rma, no_atomic, no_delivery, no_wait, no_fence;
    uint64_t inject, max_msg, cq_data, iov; /* upper bounds */
    uint64_t rx_entries;                    /* receives that may be posted at a time */
    uint64_t av_most;                       /* addresses that may be inserted at a time */
    /* What it asks for. */
    uint64_t mr_local, mr_prov_key, mr_endpoint, address8;
    /* What it does now and then: each n-th time; 0: never. */
    uint64_t eagain_nth, reorder_nth, error_nth, reg_fail_nth, damage_nth, lose_nth, fail_read_nth, hide_read_nth;
    uint64_t damage_at, damage_by; /* the byte of a message that is damaged, and the bits that change */
    uint64_t error_after; /* completions of those queues that are none first */
    uint64_t error_code; /* an errno of libfabric */
    uint64_t error_queues; /* bits of the queues whose completions may be errors, in the order of their creation */
    uint64_t full_queues; /* bits of the queues to whose endpoints sends find no room, in that order */
    uint64_t dies_after; /* completions of the first queue */
    uint64_t busy_closes; /* closes of endpoints whose queue is dead that are refused first */
    uint64_t dies_at_read; /* the read of the first queue that is not reported any more */
};

/* Read once; a rule that does not exist ends the program. */
const struct rules *rules(void);

/* Name under which the provider is shown (SOFT_OFI_NAME), and the real one (SOFT_OFI_OVER). NULL: it keeps its name. */
const char *rules_name(void);
const char *rules_over(void);

/* Counts a call; true for each n-th. */
int rules_hits(uint64_t nth, _Atomic uint64_t *count);

/* The user has broken a rule: prints it, and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) void rules_broken(const char *format, ...);

#endif
