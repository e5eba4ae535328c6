/* Cases of shared objects: a receive queue of several QPs, a completion queue of several threads. */
#include <pthread.h>

#include "cases.h"

enum { SHARED_QPS = 4, SHARED_EACH = 12 };

void srq_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qps[SHARED_QPS];
    struct hello peer;

    for (int q = 0; q < SHARED_QPS; q++)
        qps[q] = meet(side, &peer, &usual);
    side_wait(side);
    for (int i = 0; i < SHARED_EACH * SHARED_QPS; i++) {
        struct ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, i);

        wr.imm_data = i;
        pattern(side->buffer, 500, i);
        EQUAL(side_post(side, qps[i % SHARED_QPS], &wr, 0, 500), 0);
        EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    }
    side_wait(side);
}

void srq_passive(int socket)
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
    side_signal(side);
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
    side_signal(side);
}

enum { THREADS = 4, ROUNDS = 2000 };
static struct worker {
    struct side *side;
    struct ibv_qp *qp;
    struct hello peer;
    int number;
} workers[THREADS];
static int completions[THREADS]; /* each thread polls the one CQ and may get a completion of another thread */

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

void threads_active(int socket)
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
    side_signal(side);
    side_wait(side);
}

void threads_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;

    for (int t = 0; t < THREADS; t++)
        meet(side, &peer, &usual);
    side_wait(side);
    EQUAL(*(uint64_t *)side->buffer, THREADS * ROUNDS);
    for (int t = 0; t < THREADS; t++)
        EQUAL(side->buffer[4096 + t * 4096 + 3999], (char)(3 + (65536 * t + 3999) * 7 + ((65536 * t + 3999) >> 8)));
    side_signal(side);
}
