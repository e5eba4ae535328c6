/*
 * Rate of puts from the threads of one node to another node, by the software Tofu directly. A window of puts ends when the
 * last one has arrived: they are strongly ordered, and the last one asks for a local notice, or (-e) each does. -p: into
 * private memory, which costs a system call.
 *
 *   direct_rate [-t threads] [-n puts of a thread] [-w window] [-s bytes] [-e] [-p]      default 1, 100000, 64, 4
 */
#include <sched.h>

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

static void rate(struct lane *lane)
{
    int left = lane->direct->count;

    while (left > 0 && !lane->direct->second) {
        int window = left < lane->direct->window ? left : lane->direct->window, notices = 0;
        struct utofu_mrq_notice notice;

        for (int i = 0; i < window; i++) {
            bool asks = lane->direct->each || i == window - 1;

            put(lane, asks);
            notices += asks;
        }
        while (notices > 0) {
            int code = utofu_poll_mrq(lane->vcq, 0, &notice);

            CHECK(code == UTOFU_SUCCESS || code == UTOFU_ERR_NOT_FOUND);
            notices -= code == UTOFU_SUCCESS;
        }
        left -= window;
    }
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 100000, .window = 64, .size = 4};
    double ns = direct_run(argc, argv, &direct, rate);

    printf("threads %d, %d bytes: %.3f M puts/s\n", direct.threads, direct.size,
           (double)direct.threads * direct.count / ns * 1000);
    return 0;
}
