/* Two processes of threads for direct_pingpong and direct_rate. */
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "direct.h"

static struct lane lanes[DIRECT_THREADS];
static void (*lane_work)(struct lane *lane);
static pthread_barrier_t begin;

static void *lane_run(void *lane)
{
    pthread_barrier_wait(&begin);
    lane_work(lane);
    return NULL;
}

static void lane_open(struct lane *lane, const struct direct *direct, int number)
{
    lane->direct = direct;
    GOOD(utofu_create_vcq(number % 6, UTOFU_VCQ_FLAG_EXCLUSIVE, &lane->vcq));
    GOOD(utofu_query_vcq_id(lane->vcq, &lane->own.id));
    lane->buffer = memory(DIRECT_SLOT);
    GOOD(utofu_reg_mem(lane->vcq, lane->buffer, DIRECT_SLOT, 0, &lane->own.stadd));
    EQUAL(write(direct->socket, &lane->own, sizeof(lane->own)), sizeof(lane->own));
}

static void options(int argc, char **argv, struct direct *direct)
{
    int option;

    while ((option = getopt(argc, argv, "t:n:w:s:ep")) != -1) {
        switch (option) {
        case 't': direct->threads = atoi(optarg); break;
        case 'n': direct->count = atoi(optarg); break;
        case 'w': direct->window = atoi(optarg); break;
        case 's': direct->size = atoi(optarg); break;
        case 'e': direct->each = true; break;
        case 'p': direct->private = true; break;
        default: fprintf(stderr, "usage: %s [-t threads] [-n count] [-w window] [-s bytes] [-e] [-p]\n", argv[0]), exit(2);
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

double direct_run(int argc, char **argv, struct direct *direct, void (*work)(struct lane *lane))
{
    pthread_t threads[DIRECT_THREADS];
    int ends[2], status = 0;
    uint64_t from, ns;
    pid_t child;

    options(argc, argv, direct);
    memory_is_shared = !direct->private;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    child = fork();
    direct->second = child == 0;
    direct->socket = ends[direct->second];
    close(ends[!direct->second]);
    set_node(direct->second);
    lane_work = work;
    pthread_barrier_init(&begin, NULL, direct->threads + 1);
    for (int t = 0; t < direct->threads; t++)
        lane_open(&lanes[t], direct, t);
    for (int t = 0; t < direct->threads; t++)
        EQUAL(read(direct->socket, &lanes[t].peer, sizeof(lanes[t].peer)), sizeof(lanes[t].peer));
    for (int t = 0; t < direct->threads; t++)
        pthread_create(&threads[t], NULL, lane_run, &lanes[t]);
    meet(direct);
    from = clock_ns();
    pthread_barrier_wait(&begin);
    for (int t = 0; t < direct->threads; t++)
        pthread_join(threads[t], NULL);
    ns = clock_ns() - from;
    meet(direct); /* its memory stays until the other is done */
    if (direct->second)
        exit(0);
    waitpid(child, &status, 0);
    EQUAL(status, 0);
    return ns;
}
