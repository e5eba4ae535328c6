/* Cases of forks: what threads of the parent are doing does not concern the child's own device, nor the reverse. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { POSTERS = 2, FORKS = 60, CHILD_SECONDS = 5 };

static struct ibv_ah *path_to(struct side *side, const struct hello *peer)
{
    struct ibv_ah_attr attr = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .sgid_index = 3, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(side->pd, &attr);

    CHECK(ah != NULL);
    return ah;
}

/* Sends a datagram, whether it arrives or not. The completion may be of another one. */
static void send_datagram(struct side *side, struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn)
{
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);

    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = QKEY;
    EQUAL(side_post(side, qp, &wr, 0, 100), 0);
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
}

/* A child opens the device and sends a datagram. */
static void send_from_child(int socket, const struct hello *peer)
{
    struct side *side;
    struct ibv_qp *qp;

    alarm(CHILD_SECONDS);
    side = side_open(socket, false);
    qp = side_qp(side, IBV_QPT_UD, 0);
    side_ud_ready(qp);
    send_datagram(side, qp, path_to(side, peer), peer->qpn);
}

static struct hello target;
static int enough;

static void *post_on(void *argument)
{
    struct side *side = side_open(*(int *)argument, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_UD, 0);
    struct ibv_ah *ah = path_to(side, &target);

    side_ud_ready(qp);
    while (!__atomic_load_n(&enough, __ATOMIC_RELAXED))
        send_datagram(side, qp, ah, target.qpn);
    return NULL;
}

void forked_threads_active(int socket)
{
    struct side *side = side_open(socket, false);
    pthread_t threads[POSTERS];
    int status;

    target = side_meet(side, side_qp(side, IBV_QPT_UD, 0));
    side_wait(side);
    for (int t = 0; t < POSTERS; t++)
        pthread_create(&threads[t], NULL, post_on, &socket);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();

        if (child == 0) {
            send_from_child(socket, &target);
            _exit(0);
        }
        EQUAL(waitpid(child, &status, 0), child);
        EQUAL(status, 0);
    }
    __atomic_store_n(&enough, 1, __ATOMIC_RELAXED);
    for (int t = 0; t < POSTERS; t++)
        pthread_join(threads[t], NULL);
    side_signal(side);
}

void forked_threads_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct ibv_qp *qp = side_qp(side, IBV_QPT_UD, 0);

    side_meet(side, qp);
    side_ud_ready(qp);
    side_signal(side);
    side_wait(side);
}

/* A request that waits for a receive is executed once, by the process that posted it. */
void forked_requests_active(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual);
    struct ibv_send_wr wr = request(IBV_WR_SEND, 1);
    pid_t child;
    int status;

    peer = side_meet(side, qp); /* of datagrams */
    EQUAL(side_post(side, qp, &wr, 0, 100), 0);
    fault("delay_us=1000"); /* the child's request needs a thread, as the parent's does */
    child = fork();
    if (child == 0) {
        send_from_child(socket, &peer);
        side_signal(side);
        pause();
    }
    side_wait(side); /* for the passive side, which the child has signalled */
    EQUAL(side_poll(side).status, IBV_WC_SUCCESS);
    CHECK(side_quiet(side, 50));
    kill(child, SIGKILL);
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(WTERMSIG(status), SIGKILL);
    side_signal(side);
}

void forked_requests_passive(int socket)
{
    struct side *side = side_open(socket, false);
    struct hello peer;
    struct ibv_qp *qp = meet(side, &peer, &usual), *datagrams = side_qp(side, IBV_QPT_UD, 0);

    side_meet(side, datagrams);
    side_ud_ready(datagrams);
    side_wait(side);
    side_receive(side, qp, 1, 0, 100);
    side_receive(side, qp, 2, 100, 100);
    EQUAL(side_poll(side).wr_id, 1);
    side_signal(side);
    CHECK(side_quiet(side, 50));
    side_wait(side);
}
