/* Cases without errors on reliable connections: one-sided operations, messages, events. */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

void pattern(char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        at[i] = (char)(seed + i * 7 + (i >> 8));
}

bool has_pattern(const char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] != (char)(seed + i * 7 + (i >> 8)))
            return false;
    return true;
}

struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t wr_id)
{
    return (struct ibv_send_wr){.wr_id = wr_id, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
}

struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset)
{
    struct ibv_send_wr wr = request(opcode, 1);

    wr.wr.rdma.remote_addr = peer->address + offset;
    wr.wr.rdma.rkey = peer->rkey;
    return wr;
}

struct ibv_send_wr atomic(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset, uint64_t add,
                          uint64_t swap)
{
    struct ibv_send_wr wr = request(opcode, 1);

    wr.wr.atomic.remote_addr = peer->address + offset;
    wr.wr.atomic.rkey = peer->rkey;
    wr.wr.atomic.compare_add = add;
    wr.wr.atomic.swap = swap;
    return wr;
}

/* Most cases begin with this; the passive side may only wait. */
struct ibv_qp *meet(struct side *side, struct hello *peer, const struct connection *connection)
{
    struct ibv_qp *qp = side_qp(side, IBV_QPT_RC, 0);

    *peer = side_meet(side, qp);
    side_connect(side, qp, peer, connection);
    side_signal(side);
    side_wait(side); /* the other side is connected too */
    return qp;
}

void passive_waits(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;

    meet(side, &peer, &usual);
    side_wait(side); /* blocked: the peer's operations need no call here */
}

void one_sided_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, &peer, 5);
    struct ibv_sge three[3];
    struct ibv_wc wc;

    pattern(side->buffer, 300000, 1);
    EQUAL(side_post(side, qp, &wr, 0, 300000), 0);
    wc = side_poll(side);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_WRITE);
    /* back in three pieces */
    for (int i = 0; i < 3; i++)
        three[i] = (struct ibv_sge){(uintptr_t)side->buffer + 400000 + 100000 * i, 100000, side->mr->lkey};
    wr = rdma(IBV_WR_RDMA_READ, &peer, 5);
    wr.sg_list = three;
    wr.num_sge = 3;
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    wc = side_poll(side);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(wc.opcode, IBV_WC_RDMA_READ);
    EQUAL(wc.byte_len, 300000);
    CHECK(has_pattern(side->buffer + 400000, 300000, 1));
    /* atomics, on a counter at 512 KiB of the peer's buffer */
    for (uint64_t i = 0; i < 10; i++) {
        wr = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &peer, BUFFER / 2, 3, 0);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
        wc = side_poll(side);
        EQUAL(wc.status, IBV_WC_SUCCESS);
        EQUAL(wc.opcode, IBV_WC_FETCH_ADD);
        EQUAL(*(uint64_t *)side->buffer, 3 * i);
    }
    for (int fits = 0; fits < 2; fits++) {
        wr = atomic(IBV_WR_ATOMIC_CMP_AND_SWP, &peer, BUFFER / 2, fits ? 30 : 29, 77);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
        wc = side_poll(side);
        EQUAL(wc.status, IBV_WC_SUCCESS);
        EQUAL(wc.opcode, IBV_WC_COMP_SWAP);
        EQUAL(*(uint64_t *)side->buffer, 30);
    }
    wr = rdma(IBV_WR_RDMA_READ, &peer, BUFFER / 2);
    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    EQUAL(*(uint64_t *)side->buffer, 77);
    side_signal(side);
}

void messages_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, 8);
    struct ibv_sge two[2] = {{(uintptr_t)side->buffer, 1000, side->mr->lkey},
                             {(uintptr_t)side->buffer + 1000, 50000, side->mr->lkey}};
    char text[16] = "inline";

    pattern(side->buffer, 51000, 9);
    wr.imm_data = 0x11223344;
    wr.sg_list = two;
    wr.num_sge = 2;
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    EQUAL(side_poll(side).wr_id, 8);
    /* inline: not registered, and the buffer is changed at once */
    wr = request(IBV_WR_SEND, 9);
    two[0] = (struct ibv_sge){(uintptr_t)text, sizeof(text), 0};
    wr.sg_list = two;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_INLINE;
    fault("delay_us=20000");
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    memset(text, 'x', sizeof(text));
    CHECK(side_quiet(side, 10)); /* delayed: not executed within the post */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    fault("delay_us=0");
    wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, &peer, 200000);
    wr.imm_data = 7;
    EQUAL(side_post(side, qp, &wr, 0, 51000), 0);
    EQUAL(side_poll(side).opcode, IBV_WC_RDMA_WRITE);
    wr = request(IBV_WR_SEND, 10); /* zero bytes */
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_wait(side);
}

void messages_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp;
    struct ibv_wc wc;

    qp = side_qp(side, IBV_QPT_RC, 0);
    peer = side_meet(side, qp);
    side_connect(side, qp, &peer, &usual);
    for (int i = 0; i < 4; i++)
        side_receive(side, qp, 100 + i, 60000 * i, 60000);
    side_signal(side);
    side_wait(side);
    wc = side_poll(side);
    EQUAL(wc.status, IBV_WC_SUCCESS);
    EQUAL(wc.wr_id, 100);
    EQUAL(wc.opcode, IBV_WC_RECV);
    EQUAL(wc.byte_len, 51000);
    EQUAL(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
    EQUAL(wc.imm_data, 0x11223344);
    EQUAL(wc.qp_num, qp->qp_num);
    CHECK(has_pattern(side->buffer, 51000, 9));
    wc = side_poll(side);
    EQUAL(wc.byte_len, 16);
    CHECK(strcmp(side->buffer + 60000, "inline") == 0);
    wc = side_poll(side);
    EQUAL(wc.wr_id, 102);
    EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EQUAL(wc.imm_data, 7);
    CHECK(has_pattern(side->buffer + 200000, 51000, 9));
    wc = side_poll(side);
    EQUAL(wc.byte_len, 0);
    side_signal(side);
}

void events_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct pollfd wait = {side->channel->fd, POLLIN, 0};
    struct ibv_send_wr wr;
    struct ibv_cq *cq;
    void *user;

    for (int i = 0; i < 2; i++) { /* not armed: no event */
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    }
    EQUAL(ibv_req_notify_cq(side->cq, 0), 0);
    EQUAL(poll(&wait, 1, 20), 0); /* armed after they came: none either */
    for (int i = 0; i < 2; i++) {
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    }
    EQUAL(poll(&wait, 1, 1000), 1);
    EQUAL(ibv_get_cq_event(side->channel, &cq, &user), 0);
    CHECK(cq == side->cq && user == side);
    EQUAL(poll(&wait, 1, 20), 0); /* one for both */
    ibv_ack_cq_events(cq, 1);
    EQUAL(ibv_req_notify_cq(side->cq, 0), 0);
    side_signal(side); /* the other side sends, which raises an event in this process */
    for (int i = 0; i < 4; i++)
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_receive(side, qp, 9, 0, 64);
    EQUAL(poll(&wait, 1, 5000), 1);
    EQUAL(side_poll(side).wr_id, 9);
    /* as mlx5 does: armed after they came, and an event all the same */
    EQUAL(ibv_get_cq_event(side->channel, &cq, &user), 0);
    ibv_ack_cq_events(cq, 1);
    fault("arm_fires=1");
    wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(ibv_req_notify_cq(side->cq, 1), 0);
    EQUAL(poll(&wait, 1, 20), 0); /* it was not a solicited one */
    EQUAL(ibv_req_notify_cq(side->cq, 0), 0);
    EQUAL(poll(&wait, 1, 1000), 1);
    fault("arm_fires=0");
    side_signal(side);
}

void events_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    side_wait(side);
    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_wait(side);
}
