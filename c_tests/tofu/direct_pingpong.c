/*
 * Ping-pong between threads of two nodes, by the software Tofu directly: a put with a remote notice each way. Compare with
 * the same over rucp. -p: in private memory, which costs a system call.
 *
 *   direct_pingpong [-t threads] [-n iterations] [-s bytes] [-p]      default 1, 10000, 8
 */
#include <sched.h>
#include <string.h>

#include "direct.h"

static void send(struct lane *lane)
{
    uint64_t data = 0x0807060504030201;
    int size = lane->direct->size, code;

    do {
        void *cbdata;

        if (size <= 8)
            code = utofu_put_piggyback8(lane->vcq, lane->peer.id, data, lane->peer.stadd, size, 1, REMOTE, NULL);
        else
            code = utofu_put(lane->vcq, lane->peer.id, lane->own.stadd, lane->peer.stadd, size, 1, REMOTE, NULL);
        if (code == UTOFU_ERR_BUSY)
            utofu_poll_tcq(lane->vcq, 0, &cbdata);
    } while (code == UTOFU_ERR_BUSY);
    GOOD(code);
}

static void receive(struct lane *lane)
{
    struct utofu_mrq_notice notice;
    int code, polls = 0;

    while ((code = utofu_poll_mrq(lane->vcq, 0, &notice)) == UTOFU_ERR_NOT_FOUND)
        if (++polls % 100 == 0)
            sched_yield(); /* the other may need this processor */
    GOOD(code);
}

static void pingpong(struct lane *lane)
{
    for (int i = 0; i < lane->direct->count; i++) {
        if (lane->direct->second)
            receive(lane);
        send(lane);
        if (!lane->direct->second)
            receive(lane);
    }
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 10000, .window = 1, .size = 8};
    double ns = direct_run(argc, argv, &direct, pingpong);

    printf("threads %d, %d bytes: latency %.3f us\n", direct.threads, direct.size, ns / direct.count / 2 / 1000);
    return 0;
}
