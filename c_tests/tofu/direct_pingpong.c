/*
 * Ping-pong between threads of two nodes, by the software Tofu directly: a put with a remote notice each way. Compare with
 * the same over rucp. -p: in private memory, which costs a system call.
 *
 *   direct_pingpong [-t threads] [-n iterations] [-s bytes] [-p] [-1]      default 1, 10000, 8
 */
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

static bool pingpong(struct lane *lane)
{
    struct utofu_mrq_notice notice;
    int code;

    if (lane->turn) {
        send(lane);
        lane->turn = false;
        return lane->direct->second && ++lane->done == lane->direct->count;
    }
    code = utofu_poll_mrq(lane->vcq, 0, &notice);
    if (code == UTOFU_ERR_NOT_FOUND)
        return false;
    GOOD(code);
    lane->turn = true;
    return !lane->direct->second && ++lane->done == lane->direct->count;
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 10000, .window = 1, .size = 8};
    double ns = direct_run(argc, argv, &direct, (struct way){direct_open, direct_connect, NULL, pingpong});

    printf("threads %d, %d bytes: latency %.3f us\n", direct.threads, direct.size, ns / direct.count / 2 / 1000);
    return 0;
}
