/*
 * The wire: one file that every process with a software Tofu maps. In it are the shape of the machine, the processes,
 * the control queues with their steering tags, the VCQs and their message receive queues. Payload is not in it: the
 * initiator copies it, within one process directly and else with process_vm_writev/readv.
 *
 * Two kinds of state. Objects that are created and destroyed (processes, VCQs, registrations) are behind robust
 * process-shared mutexes: a killed owner does not block the others. State of posts and polls is lock-free: see mrq.c
 * for the receive queues. Counters of a VCQ are written by its owner alone, so posts on different VCQs share no cache
 * line that is written.
 */
#ifndef SOFT_TOFU_WIRE_H
#define SOFT_TOFU_WIRE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "utofu.h"

enum {
    WIRE_TNIS = 6,
    WIRE_CQS = 9,  /* of a TNI, for users */
    WIRE_CMPS = 8, /* VCQs of a CQ */
    NODE_CQS = WIRE_TNIS * WIRE_CQS,
    NODE_VCQS = NODE_CQS * WIRE_CMPS,
    WIRE_NODES = 1024,
    WIRE_PROCESSES = 4096,
    WIRE_STAGS = 8192, /* of a CQ; the user chooses among the first RESERVED_STAGS */
    RESERVED_STAGS = 256,
    ATOMIC_LOCKS = 64, /* of a node */
    LINE = 256,        /* bytes: a cache line of an A64FX */
};

struct wire_process {
    _Atomic int pid;       /* 0: free */
    _Atomic uint64_t born; /* one more than the process's that attached before */
    pthread_mutex_t life;  /* held as long as the process lives (peer.c) */
};

/* Injected faults. All zero: none. */
struct wire_faults {
    _Atomic uint64_t node_down, fail_nth, fail_code, busy_nth, reorder_nth, late_us, delay_us, reg_fail_nth,
        post_fail_nth, atomic_gap_us, die_at;
    _Atomic uint64_t operations, registrations, posts; /* counted while fail_nth, reg_fail_nth, post_fail_nth is set */
    _Atomic uint64_t posts_matter; /* some fault is set that a post has to check */
};

/* Points where a process can be ordered to die, like by SIGKILL. */
enum fault_point { DIE_CLAIMED = 1, DIE_WRITTEN, DIE_IN_ATOMIC, DIE_IN_REGISTRATION };

/* Counters of a VCQ. Its owner alone writes, tofuctl reads. They stay when the VCQ is freed. */
enum count {
    COUNT_POSTS,
    COUNT_PUTS,
    COUNT_PIGGYBACKS,
    COUNT_GETS,
    COUNT_ATOMICS,
    COUNT_NOPS,
    COUNT_BYTES,
    COUNT_STRONG,
    COUNT_ROUTED,
    COUNT_TCQ_NOTICES,
    COUNT_LOCAL_NOTICES,
    COUNT_REMOTE_NOTICES,
    COUNT_ERRORS,
    COUNT_BUSY,
    COUNT_REORDERED,
    COUNT_REGISTRATIONS,
    COUNT_DEREGISTRATIONS,
    COUNT_POLLS,
    COUNTS,
};

/*
 * A registration. `tag` is odd while it is valid and changes with every registration; the rest may only be trusted if
 * it is the same before and after.
 */
struct wire_stag {
    _Atomic uint64_t tag;
    _Atomic uint64_t address, size;
    _Atomic uint32_t process, flags; /* STAG_SHARED besides the caller's flags */
    _Atomic uint32_t generation; /* part of the STADD; 0 for reserved stags */
    uint16_t users[WIRE_CMPS];   /* registrations by VCQ; under the CQ's lock */
    char pad[4];
};

struct wire_cq {
    _Alignas(LINE) pthread_mutex_t lock; /* guards the stags, and the owners of the VCQs */
    _Atomic uint32_t ever;               /* a VCQ was made on it once */
    uint32_t exclusive;
    uint32_t stags_end; /* no stag from this index on was ever used */
};

/* An entry of a message receive queue; see mrq.c for `state`. */
struct wire_notice {
    _Atomic uint64_t state;
    uint64_t due; /* ns, monotonic: not visible before; 0: at once */
    uint8_t type, edata;
    int16_t error;
    uint64_t vcq_id, rmt_value, lcl_stadd, rmt_stadd;
    char pad[8];
};

struct wire_vcq {
    _Alignas(LINE) _Atomic uint32_t owner; /* process number + 1; 0: free */
    _Atomic uint32_t overflowed;
    _Atomic uint64_t touching; /* the registration, as stag_name, whose memory an operation accesses; 0: none */
    _Alignas(LINE) _Atomic uint64_t tail; /* entries of the MRQ that were claimed */
    _Alignas(LINE) _Atomic uint64_t head; /* and that were read; the owner writes */
    _Atomic uint64_t counts[COUNTS];
};

struct wire_tni {
    _Alignas(LINE) _Atomic uint64_t sends_until, receives_until; /* ns: the time model's occupancy */
};

struct wire_node {
    _Atomic uint32_t made;
    pthread_mutex_t atomic_locks[ATOMIC_LOCKS]; /* by address: Tofu atomics are atomic with respect to each other */
    struct wire_tni tnis[WIRE_TNIS];
    struct wire_cq cqs[NODE_CQS];
};

/* The model of time; ns. */
struct wire_time {
    uint64_t on, put, get, atomic, ack, hop, message;
    uint64_t mb_per_s; /* of a TNI, each way */
};

struct wire {
    uint64_t magic, size;
    pthread_mutex_t lock; /* guards the processes, the making of VCQs */
    uint32_t shape[6], strides[6], nodes, cqs, tnis, stags;
    uint32_t toq, tcq, mrq_shift; /* depths; the MRQ's is a power of two */
    uint32_t armw_ops;            /* as in the capabilities */
    struct wire_time time;
    size_t node_offset, stag_offset, vcq_offset, notice_offset;
    _Alignas(LINE) struct wire_faults faults;
    _Alignas(LINE) _Atomic uint64_t locks_recovered, overflows, abandoned;
    uint64_t births; /* processes that ever attached */
    struct wire_process processes[WIRE_PROCESSES];
};

extern struct wire *wire;

/* Maps the wire that SOFT_TOFU_WIRE names, once; 0 or an errno. */
int wire_open(void);
void wire_lock(pthread_mutex_t *lock);
static inline void wire_unlock(pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
}
void wire_make_node(uint32_t node); /* the wire is locked: creates the locks of a node, if there are none */

static inline struct wire_node *wire_node(uint32_t node)
{
    return (struct wire_node *)((char *)wire + wire->node_offset) + node;
}

static inline struct wire_stag *wire_stags(uint32_t node, uint32_t cq)
{
    return (struct wire_stag *)((char *)wire + wire->stag_offset) + ((size_t)node * NODE_CQS + cq) * WIRE_STAGS;
}

/* `index`: of the VCQ on its node. */
static inline struct wire_vcq *wire_vcq(uint32_t node, uint32_t index)
{
    return (struct wire_vcq *)((char *)wire + wire->vcq_offset) + (size_t)node * NODE_VCQS + index;
}

static inline struct wire_notice *wire_notices(uint32_t node, uint32_t index)
{
    return (struct wire_notice *)((char *)wire + wire->notice_offset) +
           (((size_t)node * NODE_VCQS + index) << wire->mrq_shift);
}

/* setup.c: writes the layout of a new wire, from the environment; returns the bytes of the file. */
size_t setup_size(struct wire *layout);
uint64_t setup_number(const char *name, uint64_t otherwise);

/* fault.c */
int fault_set(const char *text); /* "name=value,...": 0 or EINVAL */
void fault_print(void);
void fault_die(enum fault_point here); /* ends this process if that fault is set */
bool fault_fails(int *code);    /* counts an operation */
bool fault_refuses(void);       /* counts a registration */
bool fault_refuses_post(void);  /* counts a post */

static inline bool fault_matters(void)
{
    return atomic_load_explicit(&wire->faults.posts_matter, memory_order_relaxed) != 0;
}

static inline bool fault_down(uint32_t node)
{
    return node < 64 && (atomic_load_explicit(&wire->faults.node_down, memory_order_relaxed) >> node & 1);
}

#endif
