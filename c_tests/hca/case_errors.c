/* Cases of errors on connections: keys, receivers not ready, killed peers, injected errors, invalid arguments. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

/* Each wrong key on a connection of its own: an error ends it. */
static const struct {
    const char *what;
    enum ibv_wr_opcode opcode;
    int rkey, offset, lkey, access; /* added to the right values; access: revoked from the peer */
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

void keys_active(int socket)
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
        wr.send_flags = 0; /* an error completes even an unsignaled request */
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
        side_signal(side);
    }
}

void keys_passive(int socket)
{
    struct side *side = side_open(socket, false);

    for (int i = 0; i < WRONG; i++) {
        struct connection connection = usual;
        struct ibv_async_event event;
        struct hello peer;
        struct ibv_qp *qp;

        connection.access &= ~wrong[i].access;
        qp = meet(side, &peer, &connection);
        side_wait(side);
        for (int b = 0; b < BUFFER; b++)
            EQUAL(side->buffer[b], 0); /* nothing has arrived */
        if (wrong[i].lkey == 0) { /* the responder failed too, and gets an event */
            EQUAL(ibv_get_async_event(side->context, &event), 0);
            CHECK(event.element.qp == qp);
            EQUAL(event.event_type,
                  wrong[i].status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
            ibv_ack_async_event(&event);
        }
        EQUAL(ibv_destroy_qp(qp), 0);
    }
}

void rnr_active(int socket)
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
    side_signal(side); /* now it posts a receive */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    wr = request(IBV_WR_SEND, 2);
    EQUAL(side_post(side, hasty, &wr, 0, 8), 0);
    EQUAL(side_poll(side).status, IBV_WC_RNR_RETRY_EXC_ERR);
    side_signal(side);
}

void rnr_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);

    meet(side, &peer, &usual);
    side_wait(side);
    side_receive(side, qp, 5, 0, 64);
    EQUAL(side_poll(side).wr_id, 5);
    side_wait(side);
}

void too_long_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    side_wait(side);
    EQUAL(side_post(side, qp, &wr, 0, 65), 0);
    EQUAL(side_poll(side).status, IBV_WC_REM_INV_REQ_ERR);
    side_wait(side);
}

void too_long_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);

    side_receive(side, qp, 1, 0, 64);
    side_receive(side, qp, 2, 0, 64);
    side_signal(side);
    EQUAL(side_poll(side).status, IBV_WC_LOC_LEN_ERR);
    EQUAL(side_poll(side).status, IBV_WC_WR_FLUSH_ERR);
    side_signal(side);
}

void killed_active(int socket)
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

void flush_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr;

    for (int i = 0; i < 5; i++)
        side_receive(side, qp, 50 + i, 0, 64);
    for (int i = 0; i < 5; i++) { /* wait for a receive that is never posted; unsignaled */
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
    side_receive(side, qp, 60, 0, 64); /* and at once requests that are posted later */
    EQUAL(side_poll(side).wr_id, 60);
    side_signal(side);
}

void unsignalled_active(int socket)
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
    EQUAL(posted, DEPTH); /* full, although all are executed: no completion was polled yet */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    CHECK(side_quiet(side, 20));
    for (posted = 0; side_post(side, qp, &wr, 0, 8) == 0; posted++)
        wr = rdma(IBV_WR_RDMA_WRITE, &peer, 0), wr.send_flags = 0;
    EQUAL(posted, DEPTH / 2 + 1);
    side_signal(side);
}

void ordered_error_active(int socket)
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
    side_signal(side);
}

void port_down_active(int socket)
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
    side_signal(side);
}

void nothing_passive(int socket)
{
    char one;

    while (read(socket, &one, 1) == 1)
        continue;
}

/* Invalid calls of a program fail at once. */
void refusals_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_RC, 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .port_num = 1};
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL); /* out of RESET only to INIT */
    EQUAL(side_post(side, qp, &wr, 0, 8), EINVAL);
    attr.qp_state = IBV_QPS_INIT;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL); /* a required attribute is missing */
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY),
          EINVAL);
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

/* Peers are killed at random points: no lock of theirs and no half-written completion may remain. */
static void flood(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);

    for (;;) {
        struct ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, &peer, 4096);

        EQUAL(side_post(side, qp, &wr, 0, 200000), 0);
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    }
}

void killed_often_active(int socket)
{
    struct side *side = side_open(socket, false);

    for (int round = 0; round < 20; round++) {
        struct hello peer;
        struct ibv_wc wc;
        struct ibv_qp *qp;
        int ends[2], received = 0;
        pid_t flooder;

        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        flooder = fork();
        if (flooder == 0) {
            alarm(30);
            flood(ends[1]);
        }
        close(ends[1]);
        side->socket = ends[0];
        qp = meet(side, &peer, &usual);
        for (int i = 0; i < DEPTH; i++)
            side_receive(side, qp, i, 0, 8);
        while (received < 20 + round * 7) {
            if (ibv_poll_cq(side->cq, 1, &wc) == 0)
                continue;
            EQUAL(wc.status, IBV_WC_SUCCESS);
            EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
            side_receive(side, qp, received++, 0, 8);
        }
        kill(flooder, SIGKILL);
        waitpid(flooder, NULL, 0);
        while (ibv_poll_cq(side->cq, 1, &wc) == 1)
            EQUAL(wc.status, IBV_WC_SUCCESS);
        EQUAL(ibv_destroy_qp(qp), 0);
        close(ends[0]);
    }
}
