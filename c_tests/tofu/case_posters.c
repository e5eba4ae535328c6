/* Cases of many posters to one target, in one process and in several, some of which are killed. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { POSTERS = 48, EACH = 400, CELLS = 8 };
static struct poster {
    struct hello to;
    int number;
    utofu_vcq_hdl_t shared; /* THREAD_SAFE */
} posters[POSTERS];

static void put_retrying(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t data, utofu_stadd_t stadd, unsigned long flags)
{
    void *cbdata;
    int code;

    while ((code = utofu_put_piggyback8(vcq, to, data, stadd, 8, data & 0xff, flags, NULL)) == UTOFU_ERR_BUSY)
        utofu_poll_tcq(vcq, 0, &cbdata);
    GOOD(code);
}

/* Tells the target, by its own VCQ, in order; adds to shared cells, by its own VCQ and by one that all share. */
static void *post(void *argument)
{
    struct poster *own = argument;
    utofu_vcq_hdl_t vcq;

    GOOD(utofu_create_vcq(own->number % 6, 0, &vcq));
    for (int i = 0; i < EACH; i++) {
        put_retrying(vcq, own->to.id, i, own->to.stadd + 4096 + own->number * 8, REMOTE);
        GOOD(utofu_armw8(vcq, own->to.id, UTOFU_ARMW_OP_ADD, 1, own->to.stadd + i % CELLS * 8, 0, LOCAL, NULL));
        GOOD(expect(vcq, UTOFU_MRQ_TYPE_LCL_ARMW, UTOFU_SUCCESS).edata);
        put_retrying(own->shared, own->to.id, i, own->to.stadd + 8192 + own->number * 8, 0);
    }
    GOOD(utofu_free_vcq(vcq));
    return NULL;
}

static void post_all(int socket, int count)
{
    struct side *side = side_open(socket, UTOFU_VCQ_FLAG_THREAD_SAFE);
    struct hello peer = side_meet(side);
    pthread_t threads[POSTERS];

    for (int p = 0; p < count; p++) {
        posters[p] = (struct poster){.to = peer, .number = p, .shared = side->vcq};
        pthread_create(&threads[p], NULL, post, &posters[p]);
    }
    for (int p = 0; p < count; p++)
        pthread_join(threads[p], NULL);
    side_tell(side);
    side_await(side);
}

static void receive_all(struct side *side, int count)
{
    uint64_t sum = 0;

    for (int i = 0; i < count * EACH; i++)
        sum += expect(side->vcq, UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata;
    EQUAL(sum, count * (255 * 256 / 2 + (EACH - 256) * (EACH - 257) / 2));
}

void posters_active(int socket)
{
    post_all(socket, POSTERS);
}

void posters_passive(int socket)
{
    struct side *side = side_open(socket, 0);

    side_meet(side);
    receive_all(side, POSTERS);
    side_await(side);
    for (int c = 0; c < CELLS; c++)
        EQUAL(((uint64_t *)side->buffer)[c], POSTERS * EACH / CELLS);
    for (int p = 0; p < POSTERS; p++) {
        EQUAL(((uint64_t *)(side->buffer + 4096))[p], EACH - 1);
        EQUAL(((uint64_t *)(side->buffer + 8192))[p], EACH - 1);
    }
    CHECK(quiet(side->vcq));
    side_tell(side);
}

void mapped_posters_passive(int socket)
{
    memory_is_shared = true;
    posters_passive(socket);
}

/* The same within one process, where a thread is the target. For ThreadSanitizer, which sees one process only. */
static void *receive(void *argument)
{
    receive_all(argument, POSTERS);
    return NULL;
}

void threads_active(int socket)
{
    struct side *side = side_open(socket, 0), *shared = side_open(socket, UTOFU_VCQ_FLAG_THREAD_SAFE);
    pthread_t threads[POSTERS], receiver;

    pthread_create(&receiver, NULL, receive, side);
    for (int p = 0; p < POSTERS; p++) {
        posters[p] = (struct poster){.to = {side->id, side->stadd}, .number = p, .shared = shared->vcq};
        pthread_create(&threads[p], NULL, post, &posters[p]);
    }
    for (int p = 0; p < POSTERS; p++)
        pthread_join(threads[p], NULL);
    pthread_join(receiver, NULL);
    for (int c = 0; c < CELLS; c++)
        EQUAL(__atomic_load_n((uint64_t *)side->buffer + c, __ATOMIC_ACQUIRE), POSTERS * EACH / CELLS);
}

/* Posters are killed again and again; those that live, and the target, go on. */
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
        usleep(1000 + i * 100); /* somewhere in the midst of it */
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
    CHECK(quiet(side->vcq));
}
