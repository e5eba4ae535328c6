/* One side of a test of the software HCA. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

const struct connection usual = {14, 7, 7, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC};

struct side *side_open(int socket, bool with_srq)
{
    struct side *side = calloc(1, sizeof(*side));
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = DEPTH, .max_sge = 2}};

    CHECK(list != NULL && list[0] != NULL);
    side->socket = socket;
    side->context = ibv_open_device(list[0]);
    CHECK(side->context != NULL);
    ibv_free_device_list(list);
    side->pd = ibv_alloc_pd(side->context);
    side->channel = ibv_create_comp_channel(side->context);
    side->cq = ibv_create_cq(side->context, 1024, side, side->channel, 0);
    side->buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    side->mr      = ibv_reg_mr(side->pd, side->buffer, BUFFER,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_ATOMIC);
    CHECK(side->pd != NULL && side->channel != NULL && side->cq != NULL && side->mr != NULL);
    if (with_srq) {
        side->srq = ibv_create_srq(side->pd, &srq);
        CHECK(side->srq != NULL);
    }
    EQUAL(ibv_query_gid(side->context, 1, 3, &side->gid), 0);
    return side;
}

struct ibv_qp *side_qp(struct side *side, enum ibv_qp_type type, int signal_all)
{
    struct ibv_qp_init_attr init = {
        .send_cq = side->cq,
        .recv_cq = side->cq,
        .srq     = side->srq,
        .cap =
            {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 64},
        .qp_type    = type,
        .sq_sig_all = signal_all,
    };
    struct ibv_qp *qp = ibv_create_qp(side->pd, &init);

    CHECK(qp != NULL);
    return qp;
}

void side_connect(struct side *side, struct ibv_qp *qp, const struct hello *peer, const struct connection *connection)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = connection->access,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qpn,
        .max_dest_rd_atomic = 4,
        .max_rd_atomic = 4,
        .min_rnr_timer = 12, /* 0.64 ms */
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 3, .hop_limit = 1}},
        .timeout = connection->timeout,
        .retry_cnt = connection->retry_cnt,
        .rnr_retry = connection->rnr_retry,
    };

    (void)side;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    attr.qp_state = IBV_QPS_RTR;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
                                       | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), 0);
    attr.qp_state = IBV_QPS_RTS;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN
                                       | IBV_QP_MAX_QP_RD_ATOMIC), 0);
}

void side_ud_ready(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    EQUAL(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

struct hello side_meet(struct side *side, struct ibv_qp *qp)
{
    struct hello own = {qp->qp_num, side->mr->rkey, (uintptr_t)side->buffer, side->gid}, peer;

    EQUAL(write(side->socket, &own, sizeof(own)), sizeof(own));
    EQUAL(read(side->socket, &peer, sizeof(peer)), sizeof(peer));
    return peer;
}

void side_signal(struct side *side)
{
    EQUAL(write(side->socket, "x", 1), 1);
}

void side_wait(struct side *side)
{
    char one;

    EQUAL(read(side->socket, &one, 1), 1);
}

void side_receive(struct side *side, struct ibv_qp *qp, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->buffer + offset, length, side->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    EQUAL(side->srq != NULL ? ibv_post_srq_recv(side->srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad), 0);
}

int side_post(struct side *side, struct ibv_qp *qp, struct ibv_send_wr *wr, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->buffer + offset, length, side->mr->lkey};
    struct ibv_send_wr *bad;

    if (wr->sg_list == NULL) {
        wr->sg_list = &sge;
        wr->num_sge = 1;
    }
    return ibv_post_send(qp, wr, &bad);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ULL + now.tv_nsec / 1000000;
}

struct ibv_wc side_poll(struct side *side)
{
    uint64_t until = now_ms() + 10000;
    struct ibv_wc wc;
    int got;

    while ((got = ibv_poll_cq(side->cq, 1, &wc)) == 0 && now_ms() < until)
        usleep(50);
    EQUAL(got, 1);
    return wc;
}

bool side_quiet(struct side *side, int ms)
{
    uint64_t until = now_ms() + ms;
    struct ibv_wc wc;

    while (now_ms() < until) {
        if (ibv_poll_cq(side->cq, 1, &wc) != 0)
            return false;
        usleep(200);
    }
    return true;
}

static FILE *hcactl(const char *assignments)
{
    char command[512];

    snprintf(command, sizeof(command), "%s %s", getenv("HCACTL") != NULL ? getenv("HCACTL") : "hcactl", assignments);
    return popen(command, "r");
}

void fault(const char *assignments)
{
    EQUAL(pclose(hcactl(assignments)), 0);
}

uint64_t counter(const char *name)
{
    FILE *all = hcactl("");
    unsigned long long value = 0, found = 0;
    char line[128];

    while (fgets(line, sizeof(line), all) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), "=%llu", &value) == 1)
            found = value;
    pclose(all);
    return found;
}
