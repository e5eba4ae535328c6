/*
 * The software HCA: private objects of one process, and the internal interfaces of its files.
 *
 * A QP executes its requests in the thread that posts them; the peer does nothing. Requests that cannot be executed at
 * once (receiver not ready, no answer, an injected delay) stay in the send queue, and the engine's thread tries again.
 */
#ifndef SOFT_HCA_H
#define SOFT_HCA_H

#include "wire.h"

enum {
    MAX_INLINE = 256, /* bytes */
    MAX_WR = 16384,
    MAX_CQE = 1 << 20,
    MAX_RD_ATOMIC = 16,
    UD_MTU_MAX = 4096,
    GRH = 40,
};

/* The device list: made once, never freed, so pointers to devices outlive ibv_free_device_list. */
struct soft_device {
    struct ibv_device device;
    /*
     * libmlx5 and libefa check behind the public part whether a device is theirs: a null pointer means that it is not
     */
    void *not_theirs[64];
    int number;
};

struct soft_context {
    struct soft_device *device;
    struct wire_hca *hca;
    int async_write;             /* the other end of context.async_fd */
    struct verbs_context verbs; /* last: its last field is the ibv_context */
};

struct soft_pd {
    struct ibv_pd pd;
    uint32_t users; /* objects made from it; ibv_dealloc_pd refuses while there are any */
};

struct soft_mr {
    struct ibv_mr mr;
    struct wire_mr *shared;
    void *mapped; /* memory of a descriptor, which the region has mapped; else NULL */
};

struct soft_ah {
    struct ibv_ah ah;
    struct ibv_ah_attr attr;
};

struct soft_channel {
    struct ibv_comp_channel channel;
    int write_fd; /* the other end of channel.fd */
    uint32_t tag;
};

struct soft_cq {
    struct ibv_cq_ex cq; /* begins as an ibv_cq */
    struct wire_cq *shared;
    uint32_t events, async_events; /* handed out by ibv_get_*_event; the cq's own counters are the acknowledged ones */
    uint32_t users;                /* QPs */
    struct ibv_wc current;         /* of the start_poll interface */
};

struct soft_srq {
    struct ibv_srq srq;
    struct wire_srq *shared;
    uint32_t events, users;
};

/* A request in the send queue: everything of it is a copy. */
struct soft_wqe {
    struct ibv_send_wr wr; /* sg_list, next: not used */
    struct ibv_sge sge[WIRE_MAX_SGE];
    struct ibv_ah_attr path; /* UD */
    uint32_t length;         /* bytes of payload */
    uint8_t inlined[MAX_INLINE];
    uint64_t due;      /* ns, monotonic: not to be executed before */
    uint64_t deadline; /* ns: without an answer until then it fails; 0: no try went unanswered */
    uint8_t rnr_left;
};

/* A UD packet delayed by a fault. */
struct soft_packet {
    struct ibv_ah_attr path;
    uint32_t source_qpn, qpn, qkey, length;
    bool solicited, with_imm;
    __be32 imm;
    uint8_t payload[UD_MTU_MAX];
};

struct soft_qp {
    struct ibv_qp_ex qp; /* begins as an ibv_qp */
    struct wire_qp *shared;
    struct ibv_qp_attr attr; /* what modify_qp set */
    struct ibv_qp_init_attr init;
    pthread_mutex_t sq_lock; /* guards what follows */
    struct soft_wqe *sq;
    uint64_t sq_posted, sq_done; /* done: executed */
    uint64_t sq_free;            /* slots before it may be used again: their completion, or a later one, was polled */
    struct soft_packet *held;
    uint64_t held_due; /* ns */
    uint32_t events;
    /* of the wr_start interface: the list being built */
    struct ibv_send_wr *build;
    struct ibv_sge *build_sge;
    uint8_t *build_inline;
    int builds, build_error;
    /* of the engine, under its lock */
    struct soft_qp *engine_next;
    bool engine_listed;
    uint64_t engine_due;
};

static inline struct soft_context *soft_context(struct ibv_context *context)
{
    return (struct soft_context *)((char *)context - offsetof(struct soft_context, verbs.context));
}

static inline uint32_t hca_id(struct ibv_context *context)
{
    return soft_context(context)->hca->slot.id;
}

uint64_t now_ns(void);

/* text.c */
int mtu_bytes(enum ibv_mtu mtu);

/* device.c */
int soft_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size);
int soft_query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                         struct ibv_device_attr_ex *attr, size_t size);
enum ibv_mtu device_mtu(bool ethernet);
void device_address(int number, struct wire_hca *hca); /* fills in link layer, LID and GIDs */
struct soft_device *device_by_number(int number);

/* event.c: asynchronous events. `element` is the id of a wire object, or a port number. */
void event_async(uint32_t hca, enum ibv_event_type type, uint32_t element);
void event_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acked, uint32_t *events);

/* mr.c */
enum demand { NO_DEMAND, EXPLICIT, IMPLICIT };
enum demand mr_demand(void);
struct soft_mr *mr_make(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access);
bool mr_mapped(const void *start, size_t length); /* all of it, in this process */
enum key_result { KEY_OK, KEY_BAD };
/* Local keys: fills iov with the addresses of the entries, valid in the process of `hca`. */
enum key_result mr_local(uint32_t hca, uint32_t pd, const struct ibv_sge *sge, int count, uint32_t access,
                         struct iovec *iov);
/* A remote key: the region stays locked (so it cannot be deregistered meanwhile) until mr_release. NULL: invalid. */
struct wire_mr *mr_remote(uint32_t hca, uint32_t pd, uint32_t rkey, uint64_t address, size_t length, uint32_t access,
                          struct iovec *iov);
void mr_release(struct wire_mr *mr);

/* cq.c */
void cq_push(uint32_t cq, const struct ibv_wc *wc, bool solicited, void *sender, uint64_t send_done);
void cq_forget(struct ibv_cq *cq, uint32_t qpn);
int soft_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);

/* srq.c: receive queues */
int rq_make(uint32_t hca, struct wire_rq *rq, uint32_t size, uint32_t max_sge);
void rq_drop(struct wire_rq *rq);
int rq_post(struct wire_rq *rq, const struct ibv_recv_wr *wr);
/* Takes the oldest receive of a QP's queue or SRQ into `recv` (room for WIRE_MAX_SGE); the QP's lock is held. */
bool rq_take(struct wire_qp *qp, struct wire_recv *recv);
bool rq_empty(struct wire_qp *qp);
int soft_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* qp.c */
struct ibv_qp *soft_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* The QP's lock is held: it goes to the error state and its receives are flushed. */
void qp_fail(struct wire_qp *qp);

/* send.c */
int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* sq_lock held: executes requests; returns when (ns) to try again, 0: nothing is left. */
uint64_t send_progress(struct soft_qp *qp);

struct outcome {
    enum { SENT, FAILED, NOT_READY, NO_ANSWER } kind;
    enum ibv_wc_status status; /* FAILED */
    uint64_t wait;             /* NOT_READY: ns to wait, as the receiver requests */
};

/* rc.c, ud.c: execute one request; sq_lock held, no other. */
struct outcome rc_send(struct soft_qp *qp, struct soft_wqe *wqe);
struct outcome ud_send(struct soft_qp *qp, struct soft_wqe *wqe);
void ud_release_held(struct soft_qp *qp);
/* Whether `path` is the address of this HCA. */
bool path_reaches(const struct ibv_ah_attr *path, const struct wire_hca *hca);
bool port_up(const struct wire_hca *hca);

/* engine.c */
void engine_watch(struct soft_qp *qp, uint64_t due);
void engine_forget(struct soft_qp *qp); /* waits until the engine is not inside it */

/* build.c: the wr_start interface */
void build_init(struct soft_qp *qp);
void build_free(struct soft_qp *qp);
#endif
