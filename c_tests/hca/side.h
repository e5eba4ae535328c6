/* One side of a test of the software HCA: the objects that a program opens, and the exchange between two sides. */
#ifndef SOFT_HCA_SIDE_H
#define SOFT_HCA_SIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "../soft/sides.h"

enum { BUFFER = 1 << 20, QKEY = 0x1234, DEPTH = 64 };

struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq; /* of sends and receives */
    struct ibv_srq *srq; /* NULL: own receive queues */
    struct ibv_mr *mr;
    char *buffer; /* BUFFER bytes, registered for everything */
    union ibv_gid gid;
    int socket; /* to the other side */
};

/* Message from one side to the other. */
struct hello {
    uint32_t qpn, rkey;
    uint64_t address;
    union ibv_gid gid;
};


struct side *side_open(int socket, bool with_srq);
struct ibv_qp *side_qp(struct side *side, enum ibv_qp_type type, int signal_all);
/* Settings of a connection that tests vary. */
struct connection {
    uint8_t timeout, retry_cnt, rnr_retry, access;
};
extern const struct connection usual;
void side_connect(struct side *side, struct ibv_qp *qp, const struct hello *peer, const struct connection *connection);
void side_ud_ready(struct ibv_qp *qp);
/* Sends a QP's parameters to the other side and returns the other's. */
struct hello side_meet(struct side *side, struct ibv_qp *qp);
void side_signal(struct side *side);  /* sends a byte, on which the other side continues */
void side_wait(struct side *side); /* waits for a byte */
void side_receive(struct side *side, struct ibv_qp *qp, uint64_t wr_id, size_t offset, uint32_t length);
/* Posts a request of `length` bytes of the buffer from `offset`; the result of ibv_post_send. */
int side_post(struct side *side, struct ibv_qp *qp, struct ibv_send_wr *wr, size_t offset, uint32_t length);
/* The next completion; waits up to 10 s. */
struct ibv_wc side_poll(struct side *side);
bool side_quiet(struct side *side, int ms); /* no completion arrives */
void fault(const char *assignments);        /* hcactl */
uint64_t counter(const char *name);

#endif
