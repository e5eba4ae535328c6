/*
 * Tests of the software HCA itself: what the pingpongs of ibverbs-utils do not show.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 *
 * A case has an active side and a passive one in another process, connected by a socket. SOFT_HCA_WIRE names the wire,
 * HCACTL the control program.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "side.h"

static pid_t other; /* the passive side's process, for the active one */

static void pattern(char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        at[i] = (char)(seed + i * 7 + (i >> 8));
}

static bool has_pattern(const char *at, size_t length, int seed)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] != (char)(seed + i * 7 + (i >> 8)))
            return false;
    return true;
}

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, uint64_t wr_id)
{
    return (struct ibv_send_wr){.wr_id = wr_id, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
}

static struct ibv_send_wr rdma(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset)
{
    struct ibv_send_wr wr = request(opcode, 1);

    wr.wr.rdma.remote_addr = peer->address + offset;
    wr.wr.rdma.rkey = peer->rkey;
    return wr;
}

static struct ibv_send_wr atomic(enum ibv_wr_opcode opcode, const struct hello *peer, size_t offset, uint64_t add, uint64_t swap)
{
    struct ibv_send_wr wr = request(opcode, 1);

    wr.wr.atomic.remote_addr = peer->address + offset;
    wr.wr.atomic.rkey = peer->rkey;
    wr.wr.atomic.compare_add = add;
    wr.wr.atomic.swap = swap;
    return wr;
}

/* Most cases begin so; the passive side may do nothing more than wait. */
static struct ibv_qp *meet(struct side *side, struct hello *peer, const struct connection *connection)
{
    struct ibv_qp *qp = side_qp(side, IBV_QPT_RC, 0);

    *peer = side_meet(side, qp);
    side_connect(side, qp, peer, connection);
    side_tell(side);
    side_await(side); /* the other is connected too */
    return qp;
}

static void passive_waits(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;

    meet(side, &peer, &usual);
    side_await(side); /* asleep: whatever happens is done to it */
}

/* ---- reliable connections ---- */

static void one_sided_active(int socket)
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
    side_tell(side);
}

static void messages_active(int socket)
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
    CHECK(side_quiet(side, 10)); /* delayed: not carried out within the post */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    fault("delay_us=0");
    wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, &peer, 200000);
    wr.imm_data = 7;
    EQUAL(side_post(side, qp, &wr, 0, 51000), 0);
    EQUAL(side_poll(side).opcode, IBV_WC_RDMA_WRITE);
    wr = request(IBV_WR_SEND, 10); /* of nothing */
    EQUAL(side_post(side, qp, &wr, 0, 0), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_await(side);
}

static void messages_passive(int socket)
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
    side_tell(side);
    side_await(side);
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
    side_tell(side);
}

/* Each wrong key in a connection of its own: an error ends it. */
static const struct {
    const char *what;
    enum ibv_wr_opcode opcode;
    int rkey, offset, lkey, access; /* added to the right ones; access: taken from the peer */
    enum ibv_wc_status status;
} wrong[] = {
    {"rkey of nobody", IBV_WR_RDMA_WRITE, 1, 0, 0, 0, IBV_WC_REM_ACCESS_ERR},
    {"read past the end", IBV_WR_RDMA_READ, 0, BUFFER - 7, 0, 0, IBV_WC_REM_ACCESS_ERR},
    {"write before the start", IBV_WR_RDMA_WRITE, 0, -1, 0, 0, IBV_WC_REM_ACCESS_ERR},
    {"atomic on an odd address", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 4, 0, 0, IBV_WC_REM_INV_REQ_ERR},
    {"QP without remote writes", IBV_WR_RDMA_WRITE, 0, 0, 0, IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_ACCESS_ERR},
    {"lkey of nobody", IBV_WR_RDMA_WRITE, 0, 0, 1, 0, IBV_WC_LOC_PROT_ERR},
};
enum { WRONG = sizeof(wrong) / sizeof(wrong[0]) };

static void keys_active(int socket)
{
    struct side *side = side_open(socket, false);

    for (int i = 0; i < WRONG; i++) {
        struct hello peer;
        struct ibv_qp *qp = meet(side, &peer, &usual);
        struct ibv_sge sge = {(uintptr_t)side->buffer, 8, side->mr->lkey + wrong[i].lkey};
        struct ibv_send_wr wr = rdma(wrong[i].opcode, &peer, wrong[i].offset), good = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        struct ibv_qp_init_attr init;
        struct ibv_qp_attr attr;
        struct ibv_wc wc;

        wr.wr.rdma.rkey += wrong[i].rkey;
        if (wrong[i].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            wr = atomic(wrong[i].opcode, &peer, wrong[i].offset, 1, 0);
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.send_flags = 0; /* an error completes all the same */
        EQUAL(side_post(side, qp, &wr, 0, 0), 0);
        wc = side_poll(side);
        if (wc.status != wrong[i].status)
            fprintf(stderr, "%s: %s\n", wrong[i].what, ibv_wc_status_str(wc.status));
        EQUAL(wc.status, wrong[i].status);
        ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
        EQUAL(attr.qp_state, IBV_QPS_ERR);
        EQUAL(side_post(side, qp, &good, 0, 8), 0);
        EQUAL(side_poll(side).status, IBV_WC_WR_FLUSH_ERR);
        EQUAL(ibv_destroy_qp(qp), 0);
        side_tell(side);
    }
}

static void keys_passive(int socket)
{
    struct side *side = side_open(socket, false);

    for (int i = 0; i < WRONG; i++) {
        struct connection connection = usual;
        struct ibv_async_event event;
        struct hello peer;
        struct ibv_qp *qp;

        connection.access &= ~wrong[i].access;
        qp = meet(side, &peer, &connection);
        side_await(side);
        for (int b = 0; b < BUFFER; b++)
            EQUAL(side->buffer[b], 0); /* nothing arrived */
        if (wrong[i].lkey == 0) { /* the responder failed too, and is told */
            EQUAL(ibv_get_async_event(side->context, &event), 0);
            CHECK(event.element.qp == qp);
            EQUAL(event.event_type, wrong[i].status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
            ibv_ack_async_event(&event);
        }
        EQUAL(ibv_destroy_qp(qp), 0);
    }
}

static void rnr_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct connection twice = usual;
    struct hello peer;
    struct ibv_qp *patient = meet(side, &peer, &usual), *hasty;
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    twice.rnr_retry = 2;
    hasty = meet(side, &peer, &twice);
    EQUAL(side_post(side, patient, &wr, 0, 8), 0);
    CHECK(side_quiet(side, 50));
    side_tell(side); /* now it posts a receive */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    wr = request(IBV_WR_SEND, 2);
    EQUAL(side_post(side, hasty, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_RNR_RETRY_EXC_ERR);
    side_tell(side);
}

static void rnr_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);

    meet(side, &peer, &usual);
    side_await(side);
    side_receive(side, qp, 5, 0, 64);
    EQUAL(side_poll(side).wr_id, 5);
    side_await(side);
}

static void too_long_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    side_await(side);
    EQUAL(side_post(side, qp, &wr, 0, 65), 0);
    EQUAL(side_poll(side).status, IBV_WC_REM_INV_REQ_ERR);
    side_await(side);
}

static void too_long_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);

    side_receive(side, qp, 1, 0, 64);
    side_receive(side, qp, 2, 0, 64);
    side_tell(side);
    EQUAL(side_poll(side).status, IBV_WC_LOC_LEN_ERR);
    EQUAL(side_poll(side).status, IBV_WC_WR_FLUSH_ERR);
    side_tell(side);
}

static void killed_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct connection short_one = {10, 2, 7, usual.access}; /* 4 ms, three times */
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &short_one);
    struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);

    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    kill(other, SIGKILL);
    usleep(20000);
    for (int i = 0; i < 3; i++) {
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    }
    EQUAL(side_poll(side).status, IBV_WC_RETRY_EXC_ERR);
    EQUAL(side_poll(side).status, IBV_WC_WR_FLUSH_ERR);
    EQUAL(side_poll(side).status, IBV_WC_WR_FLUSH_ERR);
    CHECK(side_quiet(side, 20));
}

static void flush_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr;

    for (int i = 0; i < 5; i++)
        side_receive(side, qp, 50 + i, 0, 64);
    for (int i = 0; i < 5; i++) { /* wait for a receive that never is posted; unsignalled */
        wr = request(IBV_WR_SEND, i);
        wr.send_flags = 0;
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    }
    CHECK(side_quiet(side, 20));
    EQUAL(ibv_modify_qp(qp, &error, IBV_QP_STATE), 0);
    for (int i = 0, sends = 0, receives = 0; i < 10; i++) {
        struct ibv_wc wc = side_poll(side);

        EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
        EQUAL(wc.wr_id, wc.wr_id >= 50 ? 50 + receives++ : sends++);
    }
    CHECK(side_quiet(side, 20));
    side_receive(side, qp, 60, 0, 64); /* and at once what is posted after */
    EQUAL(side_poll(side).wr_id, 60);
    side_tell(side);
}

static void unsignalled_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr;
    int posted = 0;

    for (;; posted++) {
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        wr.send_flags = posted == DEPTH / 2 ? IBV_SEND_SIGNALED : 0;
        if (side_post(side, qp, &wr, 0, 8) != 0)
            break;
    }
    EQUAL(posted, DEPTH); /* full, although all are carried out: nothing says so yet */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    CHECK(side_quiet(side, 20));
    for (posted = 0; side_post(side, qp, &wr, 0, 8) == 0; posted++)
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0), wr.send_flags = 0;
    EQUAL(posted, DEPTH / 2 + 1);
    side_tell(side);
}

static void ordered_error_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr;

    fault("rc_fail_status=12,rc_fail_nth=4");
    for (int i = 1; i <= 5; i++) {
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);
        EQUAL(side_post(side, qp, &wr, 0, 8), 0);
        EQUAL(side_poll(side).status, i < 4 ? IBV_WC_SUCCESS : i == 4 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    fault("rc_fail_nth=0");
    side_tell(side);
}

static void port_down_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct connection short_one = {12, 1, 7, usual.access};
    struct ibv_async_event event;
    struct ibv_port_attr port;
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &short_one);
    struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0);

    fault("port_down=1");
    EQUAL(ibv_get_async_event(side->context, &event), 0);
    EQUAL(event.event_type, IBV_EVENT_PORT_ERR);
    ibv_ack_async_event(&event);
    EQUAL(ibv_query_port(side->context, 1, &port), 0);
    EQUAL(port.state, IBV_PORT_DOWN);
    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_RETRY_EXC_ERR);
    fault("port_down=0");
    EQUAL(ibv_get_async_event(side->context, &event), 0);
    EQUAL(event.event_type, IBV_EVENT_PORT_ACTIVE);
    side_tell(side);
}

static void events_active(int socket)
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
    side_tell(side); /* the other side sends, and wakes this process */
    for (int i = 0; i < 4; i++)
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_receive(side, qp, 9, 0, 64);
    EQUAL(poll(&wait, 1, 5000), 1);
    EQUAL(side_poll(side).wr_id, 9);
    side_tell(side);
}

static void events_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    side_await(side);
    EQUAL(side_post(side, qp, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    side_await(side);
}

/* ---- a shared receive queue, threads ---- */

enum { SHARED_QPS = 4, SHARED_EACH = 12 };

static void srq_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qps[SHARED_QPS];
    struct hello peer;

    for (int q = 0; q < SHARED_QPS; q++)
        qps[q] = meet(side, &peer, &usual);
    side_await(side);
    for (int i = 0; i < SHARED_EACH * SHARED_QPS; i++) {
        struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, i);

        wr.imm_data = i;
        pattern(side->buffer, 500, i);
        EQUAL(side_post(side, qps[i % SHARED_QPS], &wr, 0, 500), 0);
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    }
    side_await(side);
}

static void srq_passive(int socket)
{
    struct side *side = side_open(socket, true);
    struct ibv_srq_attr limit = {.srq_limit = 8};
    struct ibv_async_event event;
    struct ibv_qp *qps[SHARED_QPS];
    struct hello peer;

    for (int q = 0; q < SHARED_QPS; q++)
        qps[q] = meet(side, &peer, &usual);
    for (int i = 0; i < SHARED_EACH * SHARED_QPS; i++)
        side_receive(side, NULL, i, 500 * i, 500);
    EQUAL(ibv_modify_srq(side->srq, &limit, IBV_SRQ_LIMIT), 0);
    side_tell(side);
    for (int i = 0; i < SHARED_EACH * SHARED_QPS; i++) {
        struct ibv_wc wc = side_poll(side);

        EQUAL(wc.status, IBV_WC_SUCCESS);
        EQUAL(wc.wr_id, i);
        EQUAL(wc.imm_data, i);
        EQUAL(wc.qp_num, qps[i % SHARED_QPS]->qp_num);
        CHECK(has_pattern(side->buffer + 500 * i, 500, i));
    }
    EQUAL(ibv_get_async_event(side->context, &event), 0);
    EQUAL(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    CHECK(event.element.srq == side->srq);
    ibv_ack_async_event(&event);
    side_tell(side);
}

enum { THREADS = 4, ROUNDS = 2000 };
static struct worker {
    struct side *side;
    struct ibv_qp *qp;
    struct hello peer;
    int number;
} workers[THREADS];
static int completions[THREADS]; /* each thread polls the one CQ and may get another's */

static void *work(void *argument)
{
    struct worker *own = argument;
    struct ibv_wc wc;

    for (int i = 0; i < ROUNDS; i++) {
        struct ibv_send_wr wr = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, &own->peer, 0, 1, 0);
        struct ibv_send_wr write = rdma(IBV_WR_RDMA_WRITE, &own->peer, 4096 + own->number * 4096);

        wr.wr_id = write.wr_id = own->number;
        write.send_flags = 0;
        EQUAL(side_post(own->side, own->qp, &write, 65536 * own->number, 4000), 0);
        EQUAL(side_post(own->side, own->qp, &wr, 65536 * own->number + 8192, 8), 0);
        while (__atomic_load_n(&completions[own->number], __ATOMIC_ACQUIRE) <= i)
            if (ibv_poll_cq(own->side->cq, 1, &wc) == 1) {
                EQUAL(wc.status, IBV_WC_SUCCESS);
                __atomic_add_fetch(&completions[wc.wr_id], 1, __ATOMIC_RELEASE);
            }
    }
    return NULL;
}

static void threads_active(int socket)
{
    struct side *side = side_open(socket, false);
    pthread_t threads[THREADS];

    pattern(side->buffer, BUFFER, 3);
    for (int t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.side = side, .number = t};
        workers[t].qp = meet(side, &workers[t].peer, &usual);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, work, &workers[t]);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    side_tell(side);
    side_await(side);
}

static void threads_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;

    for (int t = 0; t < THREADS; t++)
        meet(side, &peer, &usual);
    side_await(side);
    EQUAL(*(uint64_t *)side->buffer, THREADS * ROUNDS);
    for (int t = 0; t < THREADS; t++)
        EQUAL(side->buffer[4096 + t * 4096 + 3999], (char)(3 + (65536 * t + 3999) * 7 + ((65536 * t + 3999) >> 8)));
    side_tell(side);
}

/* ---- datagrams ---- */

enum { PACKETS = 40 };

static void ud_send_numbers(struct side *side, struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    for (uint32_t i = 0; i < PACKETS; i++) {
        struct ibv_send_wr wr = request(IBV_WR_SEND, i);

        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = qpn;
        wr.wr.ud.remote_qkey = qkey;
        *(uint32_t *)side->buffer = i;
        EQUAL(side_post(side, qp, &wr, 0, 100), 0);
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS); /* whatever becomes of it */
    }
}

static const char *const ud_faults[] = {"ud_packets=0", "ud_packets=0,ud_drop_nth=4", "ud_packets=0,ud_drop_nth=0,ud_duplicate_nth=5",
                                        "ud_packets=0,ud_duplicate_nth=0,ud_reorder_nth=10"};

static void ud_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_UD, 0);
    struct hello peer = side_meet(side, qp);
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .sgid_index = 3, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(side->pd, &attr);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    CHECK(ah != NULL);
    side_ud_ready(qp);
    for (int f = 0; f < 4; f++) {
        side_await(side); /* its receives are posted */
        fault(ud_faults[f]);
        ud_send_numbers(side, qp, ah, peer.qpn, QKEY);
        usleep(20000); /* the last held packet */
        side_tell(side);
    }
    fault("ud_reorder_nth=0,ud_lost=0");
    side_await(side);
    ud_send_numbers(side, qp, ah, peer.qpn, QKEY + 1); /* the wrong key, and nobody: lost in silence */
    ud_send_numbers(side, qp, ah, 0xabcdef, QKEY);
    EQUAL(counter("ud_lost"), 2 * PACKETS);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = peer.qpn;
    wr.wr.ud.remote_qkey = QKEY;
    EQUAL(side_post(side, qp, &wr, 0, 1025), 0); /* more than the MTU */
    EQUAL(side_poll(side).status, IBV_WC_LOC_LEN_ERR);
    side_tell(side);
}

static void ud_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_UD, 0);
    struct hello peer = side_meet(side, qp);
    uint32_t expected[4][PACKETS + 8], counts[4] = {0};

    side_ud_ready(qp);
    for (uint32_t i = 0; i < PACKETS; i++) { /* packet i is the (i + 1)-th */
        expected[0][counts[0]++] = i;
        if ((i + 1) % 4 != 0)
            expected[1][counts[1]++] = i;
        expected[2][counts[2]++] = i;
        if ((i + 1) % 5 == 0)
            expected[2][counts[2]++] = i;
        if ((i + 1) % 10 != 0 || i + 1 == PACKETS)
            expected[3][counts[3]++] = i;
        if (i % 10 == 0 && i > 0)
            expected[3][counts[3]++] = i - 1;
    }
    for (int f = 0; f < 4; f++) {
        for (int i = 0; i < DEPTH; i++)
            side_receive(side, qp, i, 4096 * i, 2048);
        side_tell(side);
        side_await(side);
        for (uint32_t i = 0; i < counts[f]; i++) {
            struct ibv_wc wc = side_poll(side);
            const char *at = side->buffer + 4096 * wc.wr_id;

            EQUAL(wc.status, IBV_WC_SUCCESS);
            EQUAL(wc.byte_len, 140);
            EQUAL(wc.src_qp, peer.qpn);
            EQUAL(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
            CHECK(memcmp(at + 36, side->gid.raw + 12, 4) == 0); /* the IPv4 destination, at the end of the GRH */
            EQUAL(*(uint32_t *)(at + 40), expected[f][i]);
        }
        CHECK(side_quiet(side, 10));
        { /* a fresh receive queue for the next */
            struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

            EQUAL(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
            side_ud_ready(qp);
        }
    }
    side_tell(side);
    side_await(side);
    CHECK(side_quiet(side, 10));
}

static void nothing_passive(int socket)
{
    char one;

    while (read(socket, &one, 1) == 1)
        continue;
}

/* What a program does wrong is refused at once. */
static void refusals_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_RC, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .port_num = 1};
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL); /* out of RESET only to INIT */
    EQUAL(side_post(side, qp, &wr, 0, 8), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL); /* something needed is missing */
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY), EINVAL);
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS), 0);
    CHECK(ibv_reg_mr(side->pd, side->buffer, 8, IBV_ACCESS_REMOTE_WRITE) == NULL);
    EQUAL(errno, EINVAL);
    CHECK(ibv_reg_mr(side->pd, (void *)4096, 8, IBV_ACCESS_LOCAL_WRITE) == NULL);
    EQUAL(errno, EFAULT);
    EQUAL(ibv_destroy_cq(side->cq), EBUSY);
    EQUAL(ibv_dealloc_pd(side->pd), EBUSY);
    EQUAL(ibv_destroy_qp(qp), 0);
    EQUAL(ibv_destroy_cq(side->cq), 0);
    EQUAL(ibv_destroy_comp_channel(side->channel), 0);
    EQUAL(ibv_dereg_mr(side->mr), 0);
    EQUAL(ibv_dealloc_pd(side->pd), 0);
    EQUAL(ibv_close_device(side->context), 0);
}

static const struct {
    const char *name;
    void (*active)(int socket), (*passive)(int socket);
} cases[] = {
    {"one_sided", one_sided_active, passive_waits},
    {"messages", messages_active, messages_passive},
    {"keys", keys_active, keys_passive},
    {"rnr", rnr_active, rnr_passive},
    {"too_long", too_long_active, too_long_passive},
    {"killed", killed_active, passive_waits},
    {"flush", flush_active, passive_waits},
    {"unsignalled", unsignalled_active, passive_waits},
    {"ordered_error", ordered_error_active, passive_waits},
    {"port_down", port_down_active, passive_waits},
    {"events", events_active, events_passive},
    {"srq", srq_active, srq_passive},
    {"threads", threads_active, threads_passive},
    {"ud", ud_active, ud_passive},
    {"refusals", refusals_active, nothing_passive},
};

static bool run_case(size_t i)
{
    int ends[2], status, passive;
    pid_t active;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    other = fork();
    if (other == 0) {
        alarm(60);
        close(ends[0]);
        cases[i].passive(ends[1]);
        exit(0);
    }
    active = fork();
    if (active == 0) {
        alarm(60);
        close(ends[1]);
        cases[i].active(ends[0]);
        exit(0);
    }
    close(ends[0]);
    close(ends[1]);
    waitpid(active, &status, 0);
    waitpid(other, &passive, 0);
    return status == 0 && (passive == 0 || (WIFSIGNALED(passive) && cases[i].active == killed_active));
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            puts(cases[i].name);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool wanted = argc == 1, good;

        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (!wanted)
            continue;
        good = run_case(i);
        printf("%s %s\n", good ? "PASS" : "FAIL", cases[i].name);
        failed += !good;
    }
    return failed != 0;
}
