/*
 * The software Tofu: private objects of one process, and the internal interfaces of its files.
 *
 * An operation is executed within its post, by the thread that posts it; the target does nothing. Only an injected
 * delay leaves it to a later call or thread (late.c). A VCQ belongs to one thread: it has no lock unless requested
 * (THREAD_SAFE) or a fault needs it.
 */
#ifndef SOFT_TOFU_H
#define SOFT_TOFU_H

#include "wire.h"

enum {
    MAX_LENGTH = 16777215,
    MAX_PIGGYBACK = 32,
    MAX_EDATA = 255,
    MAX_MTU = 1920,
    MAX_GAP = 255,
    MAX_BLOCKS = 65535,
};

enum kind { PUT, GET, ARMW, CSWAP, NOP };

/* One operation; also what utofu_prepare_* writes as a descriptor. */
struct op {
    uint32_t mark; /* OP_MARK: marks a valid descriptor */
    uint8_t kind, edata, width, armw;
    bool piggyback;
    uint32_t length; /* of a block */
    uint32_t blocks;
    uint32_t node, index; /* of the remote VCQ; set by post_check */
    uint64_t stride, flags, rmt_vcq_id, lcl_stadd, rmt_stadd;
    uint64_t value, compare; /* atomics */
    uint8_t data[MAX_PIGGYBACK];
};

enum { OP_MARK = 0x746f6671 };

/* An entry of the transmit order queue, until utofu_poll_tcq passes it. */
struct order {
    void *cbdata;
    uint64_t due; /* ns; 0: at once */
    int16_t status;
    bool notice; /* utofu_poll_tcq reports it */
    bool done;
};

/* An operation that a fault delays. */
struct held {
    struct held *next;
    uint64_t due, place;
    bool overtaken; /* executed when a later put has been, or when it is due */
    struct op op;
};

/* Cached mapping of another process's registered memory: base is NULL if it cannot be mapped. Valid in this epoch
 * (area.c). */
struct seen {
    const struct wire_stag *stag;
    uint64_t tag, epoch;
    char *base;
};

enum { SEEN = 64, STAG_SHARED = 1u << 31 };

/* A notice in flight, of the time model. */
struct flight {
    uint64_t due, number;
    struct wire_notice notice;
};

struct soft_vcq {
    _Alignas(LINE) _Atomic uint32_t live;
    bool thread_safe;
    uint16_t tni, cq, cmp;
    uint32_t node, index; /* of the node; of the VCQ on it */
    uint64_t id;
    struct wire_vcq *shared;
    struct wire_notice *notices;
    struct wire_stag *stags;
    struct order *orders; /* a ring of wire->toq */
    uint64_t posted, passed; /* orders: numbers of the next ones to post and to check */
    uint32_t unread;         /* orders that will be or are in the TCQ */
    uint64_t head;           /* of the MRQ; a copy for others is in `shared` */
    uint64_t attempts, puts; /* for faults of the n-th operation */
    pthread_mutex_t lock;    /* thread_safe, or while operations are delayed */
    struct held *held;
    _Atomic uint32_t helds;
    struct seen seen[SEEN];
    struct flight *flights; /* a heap, the first due on top */
    size_t flying, flights_room;
    uint64_t flights_ever;
};

/* When an operation's notices become visible; 0: at once. */
struct times {
    uint64_t sent, arrived, answered;
};

uint64_t now_ns(void);

/* process.c: this process on the wire. 0 or a return code. */
int process_attach(void);    /* acquires and releases the wire's lock */
uint32_t process_self(void); /* its number; attached */
uint32_t process_node(void);
void process_reclaim(void); /* the wire is locked: releases resources of dead processes */

/* peer.c: the processes on the wire */
bool peer_alive(uint32_t process);
bool peer_live(uint32_t process); /* this process has that number until it ends */

/* torus.c: names of VCQs */
uint64_t torus_id(const uint8_t coords[6], uint16_t tni, uint16_t cq, uint16_t cmp);
bool torus_place(uint64_t id, uint32_t *node, uint32_t *index); /* false: not a valid id of a VCQ */
void torus_coords(uint32_t node, uint8_t coords[6]);
uint32_t torus_hops(uint32_t one, uint32_t two);
uint64_t torus_without_path(uint64_t id);
uint8_t torus_path(uint64_t id, uint64_t flags); /* of an operation; 0: the default */

/* vcq.c */
struct soft_vcq *vcq_of(utofu_vcq_hdl_t handle); /* NULL: none */
void vcq_drop_shared(uint32_t node, uint32_t index);
extern struct soft_vcq vcqs[NODE_VCQS];
static inline bool vcq_must_lock(struct soft_vcq *vcq)
{
    /* Acquire: partner of the release in late.c; when no operation is delayed, the late thread does not use the VCQ. */
    return vcq->thread_safe || fault_matters() || atomic_load_explicit(&vcq->helds, memory_order_acquire) != 0;
}
static inline void count(struct soft_vcq *vcq, enum count what, uint64_t more)
{
    _Atomic uint64_t *at = &vcq->shared->counts[what];

    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + more, memory_order_relaxed);
}

/* stag.c: registered memory */
struct region {
    const struct wire_stag *stag;
    uint64_t tag, address, offset; /* `address` is in `process`, `offset` behind its registration's begin */
    uint32_t process;
    bool read_only, shared;
    char *here; /* the same memory in this process, if it is mapped */
};
enum region_result { REGION_OK, REGION_NONE, REGION_SHORT };
/* `cq`: of the node, 0 to NODE_CQS - 1. */
enum region_result stag_resolve(const struct wire_stag *stags, uint32_t cq, uint64_t stadd, uint64_t length,
                                struct region *region);
void stag_drop(uint32_t node, uint32_t cq, uint32_t cmp); /* the CQ is locked: all registrations of a VCQ */
/*
 * A resolved registration stays until released, even if its owner deregisters it meanwhile. False: it was deregistered.
 */
bool stag_hold(struct soft_vcq *vcq, const struct region *region);
void stag_release(struct soft_vcq *vcq);
bool stag_mapped(const void *start, size_t length);       /* all of it, in this process */

/* area.c */
bool area_is_shared(const void *address, size_t size);                  /* of this process */
void area_in_child(void); /* of a fork */
void area_tidy(const struct soft_vcq *vcq); /* unmaps stale memory; no operation of the VCQ is in flight */
char *area_here(struct soft_vcq *vcq, const struct region *region); /* it is held; NULL: not in this process */

/* copy.c; region.here is set */
enum copy_result { COPIED, COPY_GONE, COPY_REMOTE, COPY_LOCAL };
enum copy_result copy_to(const struct region *to, const void *from, size_t length);
enum copy_result copy_from(const struct region *from, void *to, size_t length);

/* carry.c */
void carry_out(struct soft_vcq *vcq, const struct op *op, uint64_t place);

/* atomic.c: MRQ code or 0 */
int atomic_carry(const struct op *op, uint32_t node, const struct region *region, uint64_t *old);

/* mrq.c */
void mrq_push(uint32_t node, uint32_t index, const struct wire_notice *notice);
void mrq_reset(struct soft_vcq *vcq);

/* flight.c */
void flight_add(struct soft_vcq *vcq, const struct wire_notice *notice);
bool flight_arrives(struct soft_vcq *vcq, struct wire_notice *notice); /* the next one that is due */

/* late.c; the VCQ is locked */
bool late_hold(struct soft_vcq *vcq, const struct op *op, uint64_t place); /* false: execute it now, then... */
void late_in_child(void); /* of a fork */
void late_overtaken(struct soft_vcq *vcq);
void late_release(struct soft_vcq *vcq, uint64_t now); /* executes operations that are due */

/* clock.c: all zero while the model is off. `now`: ns, of the post, so that the copying is not counted as well */
struct times clock_put(struct soft_vcq *vcq, uint32_t node, uint32_t tni, uint64_t bytes, uint64_t now);
struct times clock_get(struct soft_vcq *vcq, uint32_t node, uint32_t tni, uint64_t bytes, uint64_t now);
struct times clock_atomic(struct soft_vcq *vcq, uint32_t node, uint64_t now);
#endif
