/* Cases of datagrams: their arrival, and the effects of injected faults. */
#include <string.h>
#include <unistd.h>

#include "cases.h"

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
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS); /* whether it arrives or not */
    }
}

static const char *const ud_faults[] = {"ud_packets=0", "ud_packets=0,ud_drop_nth=4",
                                        "ud_packets=0,ud_drop_nth=0,ud_duplicate_nth=5",
                                        "ud_packets=0,ud_duplicate_nth=0,ud_reorder_nth=10"};

void ud_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_UD, 0);
    struct hello peer = side_meet(side, qp);
    struct ibv_ah_attr attr = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .sgid_index = 3, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(side->pd, &attr);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    CHECK(ah != NULL);
    side_ud_ready(qp);
    for (int f = 0; f < 4; f++) {
        side_wait(side); /* its receives are posted */
        fault(ud_faults[f]);
        ud_send_numbers(side, qp, ah, peer.qpn, QKEY);
        usleep(20000); /* the last delayed packet */
        side_signal(side);
    }
    fault("ud_reorder_nth=0,ud_lost=0");
    side_wait(side);
    ud_send_numbers(side, qp, ah, peer.qpn, QKEY + 1); /* a wrong Q_Key, and an unknown QP: dropped silently */
    ud_send_numbers(side, qp, ah, 0xabcdef, QKEY);
    EQUAL(counter("ud_lost"), 2 * PACKETS);
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = peer.qpn;
    wr.wr.ud.remote_qkey = QKEY;
    EQUAL(side_post(side, qp, &wr, 0, 1025), 0); /* more than the MTU */
    EQUAL(side_poll(side).status, IBV_WC_LOC_LEN_ERR);
    side_signal(side);
}

void ud_passive(int socket)
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
        side_signal(side);
        side_wait(side);
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
        { /* a new receive queue for the next */
            struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

            EQUAL(ibv_modify_qp(qp, &reset, IBV_QP_STATE), 0);
            side_ud_ready(qp);
        }
    }
    side_signal(side);
    side_wait(side);
    CHECK(side_quiet(side, 10));
}
