/*
 * The wire: one file that every process with a software HCA maps, with the tables of open HCAs, queue pairs, completion
 * queues, shared receive queues and memory regions. Everything that a sender accesses in a peer (receive queue, CQ,
 * keys) is here, payload is not: it goes from process to process with process_vm_writev/readv.
 *
 * Every object of a table begins with a wire_slot. Its lock is a robust process-shared mutex: a killed owner does not
 * block the others. Order of locks: soft_qp.sq_lock (private) -> wire_qp -> wire_srq -> wire_mr -> wire_cq; of each
 * kind at most one at a time. `table_lock` (allocation) is taken with none of them held.
 */
#ifndef SOFT_HCA_WIRE_H
#define SOFT_HCA_WIRE_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    WIRE_HCAS = 256, /* powers of two: an id is generation * size + index */
    WIRE_QPS = 4096,
    WIRE_CQS = 4096,
    WIRE_SRQS = 512,
    WIRE_MRS = 32768,
    WIRE_PAGE = 4096,   /* bytes: unit of the arena for queues */
    WIRE_PAGES = 131072, /* 512 MiB, a hole in the file until used */
    WIRE_MAX_SGE = 16,
    WIRE_GIDS = 4, /* entries of a port's GID table */
};

struct wire_slot {
    pthread_mutex_t lock;
    bool     lock_made; /* mutexes are created at the first use of a slot and never again: a late sender may hold one */
    uint32_t generation; /* of the last user of the slot */
    uint32_t id;         /* 0: free */
    uint32_t hca;        /* id of the wire_hca that owns it */
    void *self;          /* the owner's private object; an address in the owner's process only */
};

/* A device that a process has opened. */
struct wire_hca {
    struct wire_slot slot;
    pid_t pid;
    uint64_t born;      /* start time from /proc/PID/stat: a pid alone may belong to another process by now */
    int number;         /* of the device: 0 is soft0 */
    int async_fd;       /* the writing end for asynchronous events, a descriptor of the owner */
    uint32_t async_tag; /* distinguishes it from a later descriptor of the same number */
    bool ethernet;      /* else InfiniBand */
    uint16_t lid;
    union ibv_gid gids[WIRE_GIDS];
};

struct wire_cqe {
    struct ibv_wc wc;
    void *sender;       /* completion of a send: the owner's soft_qp, whose send queue polling this frees ... */
    uint64_t send_done; /* ... up to here */
    bool solicited;
};

struct wire_cq {
    struct wire_slot slot;
    uint32_t size; /* entries */
    uint32_t page, pages;
    uint64_t head, tail; /* pushed, polled */
    enum { WIRE_DISARMED, WIRE_ARMED_SOLICITED, WIRE_ARMED_ALL } armed;
    bool overrun;
    int channel_fd;       /* the writing end of the completion channel in the owner's process */
    uint32_t channel_tag; /* 0: no channel */
};

/* A posted receive; num_sge entries follow. */
struct wire_recv {
    uint64_t wr_id;
    uint32_t num_sge;
    struct ibv_sge sge[];
};

/* A queue of receives, of a QP or of an SRQ; its slot's lock guards it. */
struct wire_rq {
    uint32_t size, max_sge;
    uint32_t page, pages;
    uint64_t head, tail;
};

struct wire_srq {
    struct wire_slot slot;
    uint32_t pd;
    struct wire_rq rq;
    uint32_t limit; /* event when fewer are left; 0: not armed */
};

struct wire_qp {
    struct wire_slot slot; /* id is the QP number */
    enum ibv_qp_type type;
    enum ibv_qp_state state;
    uint32_t pd;
    uint32_t recv_cq, srq; /* ids; srq 0: own receive queue */
    struct wire_rq rq;
    uint32_t qkey, access, dest_qpn, sq_psn, rq_psn;
    struct ibv_ah_attr path;
    uint8_t max_dest_rd_atomic, min_rnr_timer;
};

struct wire_mr {
    struct wire_slot slot; /* id is lkey and rkey */
    uint32_t pd, access;
    uint64_t iova, start, length; /* start: address in the owner's process */
};

/* Injected faults; 0 is "no fault" everywhere. Read without a lock: each is a separate word. */
struct wire_faults {
    uint64_t ud_drop_nth;     /* every n-th UD packet of the wire is lost */
    uint64_t ud_drop_permille; /* this share is lost, by a fixed pseudo-random sequence */
    uint64_t ud_duplicate_nth;
    uint64_t ud_reorder_nth; /* the n-th comes after the sender's next one, or 2 ms late */
    uint64_t delay_us;       /* every request is executed this long after it is posted */
    uint64_t delay_ports;    /* bit d: only by soft<d>; 0: by all */
    uint64_t rc_fail_nth;    /* the n-th RC request from when it is set ends with rc_fail_status */
    uint64_t rc_fail_status; /* enum ibv_wc_status; 0 means IBV_WC_RETRY_EXC_ERR */
    uint64_t port_down;      /* bit d: the port of soft<d> is down, in all processes */
    uint64_t posts_refused;  /* bit d: soft<d> takes no more requests for reliable connections: posting fails */
    uint64_t retry_cap_us;   /* upper bound of the time until IBV_WC_RETRY_EXC_ERR, whatever the QP's timeout */
    /* A property of mlx5, no fault: arming a CQ raises the event for completions in it already, where the specification
     * asks the program to poll once more. 0: it does not. */
    uint64_t arm_fires;
    uint64_t no_srq;         /* 1: the device has no shared receive queues */
    uint64_t dmabuf_refused; /* 1: registering memory of other devices fails for lack of memory */
    uint64_t rc_most;        /* limit of the queue pairs for reliable connections on the wire */
    uint64_t atomic_gap_us; /* delay between the two halves of an atomic operation: a CPU's writes meanwhile are lost */
    /* counters for the tests; rc_requests counts while rc_fail_nth is set */
    uint64_t ud_packets, ud_dropped, ud_duplicated, ud_reordered, ud_lost, rc_requests;
    uint64_t locks_recovered; /* of killed processes */
    uint64_t rc_queues;       /* queue pairs for reliable connections that were made */
    uint64_t atomics;         /* operations that were executed */
    uint64_t words;           /* writes with immediate data */
    uint64_t lists;           /* writes and reads of memory in several pieces at the requester */
    uint64_t not_ready;       /* requests that found no receive, each time */
    uint64_t moved[4];        /* bytes that were written and read through soft<d> */
    uint64_t ud_queues;       /* queue pairs for datagrams that were made */
    uint64_t registered;      /* regions of memory that were made */
    uint64_t dmabufs;         /* of them those of memory of other devices */
};

struct wire {
    uint64_t magic; /* written last, so that a file of a killed creator is created again by the next process */
    pthread_mutex_t table_lock;
    pthread_mutex_t atomic_lock; /* fetch-add and compare-and-swap of all processes */
    uint32_t next_pd, next_tag;
    struct wire_faults faults;
    struct wire_hca hcas[WIRE_HCAS];
    struct wire_qp qps[WIRE_QPS];
    struct wire_cq cqs[WIRE_CQS];
    struct wire_srq srqs[WIRE_SRQS];
    struct wire_mr mrs[WIRE_MRS];
    uint16_t page_owner[WIRE_PAGES]; /* index of the HCA + 1; 0: free */
    char arena[] __attribute__((aligned(WIRE_PAGE)));
};

extern struct wire *wire; /* mapped once, for as long as the process lives */

/* Maps the file that SOFT_HCA_WIRE names, creating it if needed; 0 or an errno. */
int wire_open(void);
void wire_lock(pthread_mutex_t *lock);
static inline void wire_unlock(pthread_mutex_t *lock)
{
    pthread_mutex_unlock(lock);
}
uint32_t wire_tag(void);
uint32_t wire_pd(void);

/*
 * Takes a free slot for `hca` and zeroes everything after the slot header, which is invalid for peers; NULL: none free.
 */
struct wire_hca *wire_new_hca(void);
struct wire_qp *wire_new_qp(uint32_t hca);
struct wire_cq *wire_new_cq(uint32_t hca);
struct wire_srq *wire_new_srq(uint32_t hca);
struct wire_mr *wire_new_mr(uint32_t hca);
/* Frees a slot; when it returns no other process accesses the object. */
void wire_free(struct wire_slot *slot);
/* Frees everything that an HCA still owns, and it. */
void wire_free_hca(uint32_t hca);

/* Objects by id. _lock returns it locked, or NULL. */
struct wire_hca *wire_hca(uint32_t id);
struct wire_qp *wire_qp_lock(uint32_t id);
struct wire_cq *wire_cq_lock(uint32_t id);
struct wire_srq *wire_srq_lock(uint32_t id);
struct wire_mr *wire_mr_lock(uint32_t id);

/* Pages of the arena for `bytes`; 0 or ENOMEM. */
int wire_pages(uint32_t hca, size_t bytes, uint32_t *page, uint32_t *pages);
void wire_pages_free(uint32_t page, uint32_t pages);
static inline void *wire_page(uint32_t page)
{
    return wire->arena + (size_t)page * WIRE_PAGE;
}

/* peer.c: the processes. */
uint64_t peer_born(pid_t pid); /* 0: no such process */
bool peer_alive(const struct wire_hca *hca);
/* Sends a datagram to a descriptor of the process of `hca`; never blocks, a full queue loses it. */
void peer_signal(const struct wire_hca *hca, int fd, uint32_t tag, const void *message, size_t length);
/* Copies min(local, remote) bytes; true if `length` bytes were. Unlike memcpy it does not crash on a bad address. */
bool peer_write(const struct wire_hca *hca, const struct iovec *local, int locals, const struct iovec *remote,
                int remotes, size_t length);
bool peer_read(const struct wire_hca *hca, const struct iovec *local, int locals, const struct iovec *remote,
               int remotes, size_t length);

/* fault.c */
int fault_set(const char *assignments); /* "name=value,name=value"; 0 or EINVAL */
void fault_print(void);
uint64_t fault_delay_us(int number);
void fault_count_moved(int number, uint64_t bytes);
bool fault_port_down(int number);
bool fault_post_refused(int number);
bool fault_rc_fails(enum ibv_wc_status *status);
struct fault_ud {
    bool drop, duplicate, reorder;
};
struct fault_ud fault_ud_next(void);

#endif
