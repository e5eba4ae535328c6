/* Cases of the queues: full ones, descriptors, many posters. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { TOQ_DEPTH = 8, TCQ_DEPTH = 4, MRQ_DEPTH = 16 }; /* the settings of the case `full` */

void full_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    struct utofu_mrq_notice notice;
    size_t count;
    void *cbdata;

    /* The TOQ: only polling the TCQ makes room, and there is nothing to find. */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TOQ_DEPTH; i++)
            GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, 0, 0, NULL));
        EQUAL(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, 0, 0, NULL), UTOFU_ERR_BUSY);
        EQUAL(utofu_nop(side->vcq, 0, NULL), UTOFU_ERR_BUSY);
        EQUAL(utofu_poll_tcq(side->vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    }
    EQUAL(counter("busy"), 6);
    /* The TCQ, whose entries come in order; what has none does not fill it. */
    for (long i = 0; i < TCQ_DEPTH; i++)
        GOOD(utofu_nop(side->vcq, TCQ, (void *)i));
    EQUAL(utofu_nop(side->vcq, TCQ, NULL), UTOFU_ERR_BUSY);
    GOOD(utofu_nop(side->vcq, 0, NULL));
    GOOD(utofu_query_num_unread_tcq(side->vcq, &count));
    EQUAL(count, TCQ_DEPTH);
    for (long i = 0; i < TCQ_DEPTH; i++) {
        GOOD(utofu_poll_tcq(side->vcq, 0, &cbdata));
        EQUAL((long)cbdata, i);
        GOOD(utofu_nop(side->vcq, TCQ, (void *)(i + TCQ_DEPTH)));
    }
    for (long i = 0; i < TCQ_DEPTH; i++)
        GOOD(utofu_poll_tcq(side->vcq, 0, &cbdata));
    EQUAL(utofu_poll_tcq(side->vcq, 0, &cbdata), UTOFU_ERR_NOT_FOUND);
    /* The MRQ of the other side, which nobody polls: up to its end all is well. */
    for (int i = 0; i <= MRQ_DEPTH; i++) {
        if (i == MRQ_DEPTH) {
            side_tell(side);
            side_await(side);
        }
        GOOD(utofu_put_piggyback8(side->vcq, peer.id, 1, peer.stadd, 8, i, REMOTE | LOCAL, NULL));
        GOOD(mrq_next(side->vcq, &notice));
        utofu_poll_tcq(side->vcq, 0, &cbdata);
    }
    EQUAL(counter("overflows"), 1);
    side_tell(side);
    side_await(side);
}

void full_passive(int socket)
{
    struct side *side = side_open(socket, 0);
    struct utofu_mrq_notice notice;
    size_t count;

    side_meet(side);
    side_await(side);
    GOOD(utofu_query_num_unread_mrq(side->vcq, &count));
    EQUAL(count, MRQ_DEPTH);
    side_tell(side);
    side_await(side);
    for (int i = 0; i < 2 * MRQ_DEPTH; i++)
        EQUAL(utofu_poll_mrq(side->vcq, 0, &notice), UTOFU_ERR_MRQ_OTHER);
    GOOD(utofu_free_vcq(side->vcq)); /* its successor is well */
    GOOD(utofu_create_vcq(0, 0, &side->vcq));
    EQUAL(utofu_poll_mrq(side->vcq, 0, &notice), UTOFU_ERR_NOT_FOUND);
    side_tell(side);
}

/* Descriptors behind each other, one post; strides. */
void descriptors_active(int socket)
{
    struct side *side = side_open(socket, 0);
    struct hello peer = side_meet(side);
    char desc[4 * 512];
    size_t size, end = 0;
    void *cbdata;

    for (int i = 0; i < 256; i++)
        side->buffer[i] = i;
    GOOD(utofu_prepare_put(side->vcq, peer.id, side->stadd, peer.stadd, 10, 1, REMOTE, desc + end, &size));
    end += size;
    GOOD(utofu_prepare_put_piggyback8(side->vcq, peer.id, 0x4241, peer.stadd + 10, 2, 2, REMOTE, desc + end, &size));
    end += size;
    GOOD(utofu_prepare_armw8(side->vcq, peer.id, UTOFU_ARMW_OP_ADD, 7, peer.stadd + 16, 3, REMOTE | STRONG, desc + end, &size));
    end += size;
    GOOD(utofu_prepare_nop(side->vcq, TCQ, desc + end, &size));
    end += size;
    EQUAL(counter("posts"), 0);
    GOOD(utofu_post_toq(side->vcq, desc, end, &end));
    EQUAL(counter("posts"), 1);
    EQUAL(counter("nops"), 1);
    GOOD(tcq_next(side->vcq, &cbdata));
    CHECK(cbdata == &end && quiet(side->vcq));
    desc[0] ^= 1;
    EQUAL(utofu_post_toq(side->vcq, desc, end, NULL), UTOFU_ERR_INVALID_DESC);
    GOOD(utofu_put_stride(side->vcq, peer.id, side->stadd, peer.stadd + 256, 3, 8, 4, 4, REMOTE, NULL));
    GOOD(utofu_put_gap(side->vcq, peer.id, side->stadd, peer.stadd + 512, 8, 5, REMOTE, 1024, 1, NULL));
    side_await(side);
    GOOD(utofu_get_stride_gap(side->vcq, peer.id, side->stadd + 4096, peer.stadd, 1, 2, 5, 6, LOCAL, 0, 0, NULL));
    expect(side->vcq, UTOFU_MRQ_TYPE_LCL_GET, UTOFU_SUCCESS);
    CHECK(memcmp(side->buffer + 4096, "\0\0\2\0\4\0\6\0\10", 10) == 0);
    side_tell(side);
}

void descriptors_passive(int socket)
{
    static const char strided[32] = {0, 1, 2, [8] = 8, 9, 10, [16] = 16, 17, 18, [24] = 24, 25, 26};
    struct side *side = side_open(socket, 0);

    side_meet(side);
    for (int i = 1; i <= 5; i++)
        EQUAL(expect(side->vcq, i == 3 ? UTOFU_MRQ_TYPE_RMT_ARMW : UTOFU_MRQ_TYPE_RMT_PUT, UTOFU_SUCCESS).edata, i);
    CHECK(memcmp(side->buffer, "\0\1\2\3\4\5\6\7\10\11AB\0", 13) == 0);
    EQUAL(side->buffer[16], 7);
    CHECK(memcmp(side->buffer + 256, strided, sizeof(strided)) == 0);
    EQUAL(side->buffer[519], 7);
    side_tell(side);
    side_await(side);
}

/* ---- many posters ---- */

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
