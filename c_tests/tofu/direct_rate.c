/*
 * Rate of puts from the threads of one node to another node, by the software Tofu directly. A window of puts ends when
 * the last one has arrived: they are strongly ordered, and the last one requests a local notice, or (-e) each does. -p:
 * into private memory, which costs a system call. -1: one thread drives all.
 *
 *   direct_rate [-t threads] [-n puts of a thread] [-w window] [-s bytes] [-e] [-p] [-1]      default 1, 100000, 64, 4
 */
#include "direct.h"

static void put(struct lane *lane, bool notice)
{
    unsigned long flags = notice ? STRONG | LOCAL : STRONG;
    int size = lane->direct->size, code;
    void *cbdata;

    do {
        if (size <= 8)
            code = utofu_put_piggyback8(lane->vcq, lane->peer.id, 1, lane->peer.stadd, size, 0, flags, NULL);
        else
            code = utofu_put(lane->vcq, lane->peer.id, lane->own.stadd, lane->peer.stadd, size, 0, flags, NULL);
        if (code == UTOFU_ERR_BUSY)
            utofu_poll_tcq(lane->vcq, 0, &cbdata);
    } while (code == UTOFU_ERR_BUSY);
    GOOD(code);
}

static bool rate(struct lane *lane)
{
    const struct direct *direct = lane->direct;
    int left = direct->count - lane->done, window = left < direct->window ? left : direct->window;
    struct utofu_mrq_notice notice;

    if (direct->second || left == 0)
        return true;
    if (lane->waits == 0)
        for (int i = 0; i < window; i++) {
            bool asks = direct->each || i == window - 1;

            put(lane, asks);
            lane->waits += asks;
        }
    for (int code; (code = utofu_poll_mrq(lane->vcq, 0, &notice)) != UTOFU_ERR_NOT_FOUND;) {
        GOOD(code);
        if (--lane->waits == 0) {
            lane->done += window;
            break;
        }
    }
    return lane->done == direct->count;
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 100000, .window = 64, .size = 4};
    double ns = direct_run(argc, argv, &direct, (struct lane_ops){direct_open, direct_connect, NULL, rate});

    printf("threads %d, %d bytes: %.3f M puts/s\n", direct.threads, direct.size,
           (double)direct.threads * direct.count / ns * 1000);
    return 0;
}
