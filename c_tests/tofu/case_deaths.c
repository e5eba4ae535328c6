/* Cases of initiators that are killed during an operation: no other process waits for them. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

/* Initiators are killed repeatedly; the others, and the target, go on. */
static void post_for_ever(struct hello to)
{
    utofu_vcq_hdl_t vcq;

    set_node(2);
    GOOD(utofu_create_vcq(1, 0, &vcq));
    for (uint64_t i = 0;; i++) {
        struct utofu_mrq_notice notice;
        void *cbdata;

        utofu_put_piggyback8(vcq, to.id, i, to.stadd + 64, 8, 1, REMOTE, NULL);
        utofu_armw8(vcq, to.id, UTOFU_ARMW_OP_ADD, 1, to.stadd, 0, LOCAL, NULL);
        while (utofu_poll_mrq(vcq, 0, &notice) == UTOFU_SUCCESS)
            ;
        utofu_poll_tcq(vcq, 0, &cbdata);
    }
}

void killed_often_active(int socket)
{
    struct hello peer;
    struct side *side;
    pid_t poster;

    EQUAL(read(socket, &peer, sizeof(peer)), sizeof(peer));
    for (int i = 0; i < 60; i++) {
        poster = fork();
        if (poster == 0)
            post_for_ever(peer);
        usleep(1000 + i * 100); /* at some point of an operation */
        kill(poster, SIGKILL);
        waitpid(poster, NULL, 0);
    }
    side = side_open(socket, 0);
    for (int i = 0; i < 100; i++) {
        GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 0, LOCAL, NULL));
        expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
    }
    GOOD(utofu_put_piggyback8(side->vcq, peer.id, 0, peer.stadd + 64, 8, 2, REMOTE, NULL));
    EQUAL(counter("vcqs"), 2);
}

void killed_often_passive(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello own = {side->id, side->stadd};

    EQUAL(write(socket, &own, sizeof(own)), sizeof(own));
    while (expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata != 2)
        ;
    CHECK(queues_empty(side->vcq));
}

/* Many processes contend for the lock of one word, and are killed while they wait for it or have just got it. */
enum { CONTENDERS = 4, DEATHS = 40 };

static void add_for_ever(struct hello to, _Atomic uint64_t *done)
{
    utofu_vcq_hdl_t vcq;
    void *cbdata;

    set_node(2);
    GOOD(utofu_create_vcq(1, 0, &vcq));
    for (;; ++*done) {
        GOOD(utofu_armw8(vcq, to.id, UTOFU_ARMW_OP_ADD, 1, to.stadd, 0, LOCAL, NULL));
        expect(vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
        utofu_poll_tcq(vcq, 0, &cbdata);
    }
}

void contenders_die_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    _Atomic uint64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t poster[CONTENDERS] = {0};

    for (int i = 0; i < DEATHS + CONTENDERS; i++) {
        int next = i % CONTENDERS;

        if (poster[next] != 0) {
            kill(poster[next], SIGKILL);
            waitpid(poster[next], NULL, 0);
        }
        for (int one = 0; one < CONTENDERS; one++)
            for (uint64_t before = done[one]; one != next && poster[one] != 0 && done[one] == before;)
                usleep(100);
        poster[next] = fork();
        if (poster[next] == 0)
            add_for_ever(peer, &done[next]);
        for (uint64_t before = done[next]; done[next] == before;)
            usleep(100);
    }
    for (int i = 0; i < CONTENDERS; i++) {
        kill(poster[i], SIGKILL);
        waitpid(poster[i], NULL, 0);
    }
    side_signal(side);
}

static void die_posting(struct hello to)
{
    utofu_vcq_hdl_t vcq;
    utofu_stadd_t stadd;

    set_node(2);
    GOOD(utofu_create_vcq(1, 0, &vcq));
    GOOD(utofu_armw8(vcq, to.id, UTOFU_ARMW_OP_ADD, 1, to.stadd, 0, 0, NULL));
    GOOD(utofu_put_piggyback8(vcq, to.id, 1, to.stadd + 64, 8, 1, REMOTE, NULL));
    GOOD(utofu_reg_mem(vcq, memory(4096), 4096, 0, &stadd));
}

/* Every point where a killed process could block others: no process waits for it. */
void dies_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    char order[] = "die_at=0";
    int status;

    for (int place = 1; place <= 4; place++) {
        pid_t poster;

        order[7] = '0' + place;
        fault(order);
        poster = fork();
        if (poster == 0) {
            die_posting(peer);
            exit(0);
        }
        waitpid(poster, &status, 0);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        fault("die_at=0");
        GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd + 64, 8, 10 + place, REMOTE, NULL));
        GOOD(utofu_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 1, peer.stadd, 0, LOCAL, NULL));
        expect(side->vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS);
        side_wait(side);
    }
    EQUAL(counter("abandoned"), 2);
    EQUAL(counter("locks_recovered"), 1);
    if (fork() == 0) { /* releases everything that the last process held, first the lock */
        set_node(2);
        free(side_open(-1, 0));
        exit(0);
    }
    wait(&status);
    EQUAL(status, 0);
    EQUAL(counter("locks_recovered"), 2);
    side_signal(side);
}

void dies_passive(int socket)
{
    struct side *side = side_open(socket, 0);

    side_meet(side);
    for (int place = 1; place <= 4; place++) {
        if (place == 4) /* the process that dies while registering has sent this byte before */
            EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, 1);
        EQUAL(expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, 10 + place);
        side_signal(side);
    }
    side_wait(side);
}
