/* Two processes of threads for direct_pingpong and direct_rate. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "direct.h"

static struct lane lanes[DIRECT_THREADS];
static struct lane_ops lane_ops;
static pthread_barrier_t begin;

/* After this many polls without result yield: the other process may need this core. */
enum { PATIENCE = 100 };

/* A step, or in rotation as many as it takes until one more is done. */
static bool step(struct lane *lane)
{
    int before = lane->done, idle = 0;

    while (!lane_ops.step(lane)) {
        if (!lane->direct->rotation || lane->done != before)
            return false;
        if (++idle % PATIENCE == 0)
            sched_yield();
    }
    return true;
}

static void drive(struct lane *first, int count)
{
    int left = count, before = 0, idle = 0;
    bool over[DIRECT_THREADS] = {false};

    while (left > 0) {
        int sum = 0;

        for (int i = 0; i < count; i++) {
            if (over[i])
                continue;
            over[i] = step(&first[i]);
            left -= over[i];
            sum += first[i].done;
        }
        idle = sum == before ? idle + 1 : 0;
        before = sum;
        if (idle >= PATIENCE && idle % PATIENCE == 0)
            sched_yield();
    }
}

static void *run_one(void *lane)
{
    pthread_barrier_wait(&begin);
    drive(lane, 1);
    return NULL;
}

void direct_open(struct lane *lane, int number)
{
    struct hello own;

    GOOD(utofu_create_vcq(number % 6, UTOFU_VCQ_FLAG_EXCLUSIVE, &lane->vcq));
    GOOD(utofu_query_vcq_id(lane->vcq, &own.id));
    lane->buffer = memory(DIRECT_SLOT);
    GOOD(utofu_reg_mem(lane->vcq, lane->buffer, DIRECT_SLOT, 0, &own.stadd));
    lane->own = own;
    EQUAL(write(lane->direct->socket, &own, sizeof(own)), sizeof(own));
}

void direct_connect(struct lane *lane)
{
    EQUAL(read(lane->direct->socket, &lane->peer, sizeof(lane->peer)), sizeof(lane->peer));
}

static void options(int argc, char **argv, struct direct *direct)
{
    int option;

    while ((option = getopt(argc, argv, "t:n:w:s:ep1rm")) != -1) {
        switch (option) {
        case 't': direct->threads = atoi(optarg); break;
        case 'n': direct->count = atoi(optarg); break;
        case 'w': direct->window = atoi(optarg); break;
        case 's': direct->size = atoi(optarg); break;
        case 'e': direct->each = true; break;
        case 'p': direct->private = true; break;
        case '1': direct->alone = true; break;
        case 'r': direct->alone = direct->rotation = true; break;
        case 'm': direct->shared = true; break;
        default:
            fprintf(stderr, "usage: %s [-t threads] [-n count] [-w window] [-s bytes] [-e] [-p] [-1] [-r] [-m]\n",
                    argv[0]),
                exit(2);
        }
    }
    CHECK(direct->threads >= 1 && direct->threads <= DIRECT_THREADS && direct->count >= 1 && direct->window >= 1);
    CHECK(direct->size >= 0 && direct->size <= DIRECT_SLOT);
}

static void meet(struct direct *direct)
{
    char byte = 0;

    EQUAL(write(direct->socket, &byte, 1), 1);
    EQUAL(read(direct->socket, &byte, 1), 1);
}

/* All lanes at once: ns from the first step to the last. */
static uint64_t run(const struct direct *direct)
{
    pthread_t threads[DIRECT_THREADS];
    uint64_t from = clock_ns();

    if (direct->alone) {
        drive(lanes, direct->threads);
        return clock_ns() - from;
    }
    pthread_barrier_init(&begin, NULL, direct->threads + 1);
    for (int t = 0; t < direct->threads; t++)
        pthread_create(&threads[t], NULL, run_one, &lanes[t]);
    from = clock_ns();
    pthread_barrier_wait(&begin);
    for (int t = 0; t < direct->threads; t++)
        pthread_join(threads[t], NULL);
    return clock_ns() - from;
}

double direct_run(int argc, char **argv, struct direct *direct, struct lane_ops ops)
{
    int ends[2], status = 0;
    uint64_t ns;
    pid_t child;

    options(argc, argv, direct);
    memory_is_shared = !direct->private;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    child = fork();
    direct->second = child == 0;
    direct->socket = ends[direct->second];
    close(ends[!direct->second]);
    set_node(direct->second);
    lane_ops = ops;
    for (int t = 0; t < direct->threads; t++) {
        lanes[t] = (struct lane){.direct = direct, .turn = !direct->second};
        ops.open(&lanes[t], t);
    }
    for (int t = 0; t < direct->threads; t++)
        ops.connect(&lanes[t]);
    if (ops.settle != NULL)
        ops.settle(lanes, direct->threads);
    meet(direct);
    ns = run(direct);
    meet(direct); /* its memory stays until the other is done */
    if (direct->second)
        exit(0);
    waitpid(child, &status, 0);
    EQUAL(status, 0);
    return ns;
}
