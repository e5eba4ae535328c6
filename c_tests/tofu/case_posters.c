/* Cases of many initiators and one target, in its process and in another, and of a program that polls on memory. */
#include <pthread.h>
#include <sched.h>

#include "cases.h"

enum { POSTERS = 48, EACH = 400, CELLS = 8 };
static struct poster {
    struct hello to;
    int number;
    utofu_vcq_hdl_t shared; /* THREAD_SAFE */
} posters[POSTERS];

static void put_retrying(utofu_vcq_hdl_t vcq, utofu_vcq_id_t to, uint64_t data, utofu_stadd_t stadd,
                         unsigned long flags)
{
    void *cbdata;
    int code;

    while ((code = utofu_put_piggyback8(vcq, to, data, stadd, 8, data & 0xff, flags, NULL)) == UTOFU_ERR_BUSY)
        utofu_poll_tcq(vcq, 0, &cbdata);
    GOOD(code);
}

/*
 * Puts to the target, by its own VCQ, in order; adds to shared cells, by its own VCQ and by one that all threads share.
 */
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
    side_signal(side);
    side_wait(side);
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
    side_wait(side);
    for (int c = 0; c < CELLS; c++)
        EQUAL(((uint64_t *)side->buffer)[c], POSTERS * EACH / CELLS);
    for (int p = 0; p < POSTERS; p++) {
        EQUAL(((uint64_t *)(side->buffer + 4096))[p], EACH - 1);
        EQUAL(((uint64_t *)(side->buffer + 8192))[p], EACH - 1);
    }
    CHECK(queues_empty(side->vcq));
    side_signal(side);
}

void mapped_posters_passive(int socket)
{
    memory_is_shared = true;
    posters_passive(socket);
}

/*
 * The same traffic within one process, where a thread is the target. For ThreadSanitizer, which sees one process only.
 */
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

enum { ROUNDS = 2000 };

static void *put_rounds(void *argument)
{
    struct side *side = argument;
    uint64_t data[4];
    utofu_vcq_hdl_t vcq;
    void *cbdata;

    GOOD(utofu_create_vcq(1, 0, &vcq));
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        for (int w = 0; w < 4; w++)
            data[w] = i;
        while (__atomic_load_n((uint64_t *)side->buffer + 64, __ATOMIC_ACQUIRE) != i - 1)
            sched_yield();
        while (utofu_put_piggyback(vcq, side->id, data, side->stadd, 32, 0, 0, NULL) == UTOFU_ERR_BUSY)
            utofu_poll_tcq(vcq, 0, &cbdata);
        put_retrying(vcq, side->id, i, side->stadd + 256, STRONG);
    }
    return NULL;
}

/* A put, then a strongly ordered put of a flag: a reader that sees the flag with acquire sees the data. */
void polled_active(int socket)
{
    struct side *side = side_open(socket, 0);
    uint64_t *words = (uint64_t *)side->buffer;
    pthread_t putter;

    pthread_create(&putter, NULL, put_rounds, side);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        while (__atomic_load_n(words + 32, __ATOMIC_ACQUIRE) != i)
            sched_yield();
        for (int w = 0; w < 4; w++)
            EQUAL(words[w], i);
        __atomic_store_n(words + 64, i, __ATOMIC_RELEASE);
    }
    pthread_join(putter, NULL);
}
