/*
 * Ping-pong between threads of two nodes, by the software Tofu directly: a put with a remote notice in each direction,
 * which the other end polls. Compare with ucp_pingpong over rucp. -p: in private memory, which costs a system call.
 *
 *   direct_pingpong [-t threads] [-n iterations] [-s bytes] [-p] [-1] [-r]      default 1, 10000, 8
 */
#include <string.h>

#include "direct.h"

/* First 8 bytes of the message in flight; both ends count them. */
static uint64_t says(const struct lane *lane)
{
    int size = lane->direct->size;
    uint64_t data = 0x0101010101010101 * (uint8_t)(lane->done + 1);

    return size >= 8 ? data : data & ((1ULL << 8 * size) - 1);
}

static void send(struct lane *lane)
{
    uint64_t data = says(lane);
    int size = lane->direct->size, code;

    if (size > 8)
        memcpy(lane->buffer, &data, sizeof(data));
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
    uint64_t came = 0;
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
    memcpy(&came, lane->buffer, lane->direct->size < 8 ? lane->direct->size : 8);
    EQUAL(came, says(lane));
    lane->turn = true;
    return !lane->direct->second && ++lane->done == lane->direct->count;
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 10000, .window = 1, .size = 8};
    double ns = direct_run(argc, argv, &direct, (struct lane_ops){direct_open, direct_connect, NULL, pingpong});

    if (direct.rotation)
        ns /= direct.threads;
    printf("threads %d, %d bytes: latency %.3f us\n", direct.threads, direct.size, ns / direct.count / 2 / 1000);
    return 0;
}
