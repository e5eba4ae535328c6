/*
 * direct_rate by UCP: each window of puts ends with a flush of the endpoint. The same options, and -m: the threads
 * share one worker (UCS_THREAD_MODE_MULTI), with an endpoint each.
 */
#include "ucp_lane.h"

static bool rate(struct lane *lane)
{
    const struct direct *direct = lane->direct;
    struct ucp_lane *ucp = lane->ucp;
    int left = direct->count - lane->done, window = left < direct->window ? left : direct->window;

    if (direct->second || left == 0)
        return true;
    if (lane->waits == 0) {
        for (int i = 0; i < window; i++)
            CHECK(!UCS_PTR_IS_ERR(ucp_put_nbx(ucp->ep, ucp->data, direct->size, ucp->remote, ucp->rkey, &ucp_plain)));
        ucp->request = ucp_ep_flush_nbx(ucp->ep, &ucp_plain);
        lane->waits = window;
    }
    ucp_worker_progress(ucp->worker);
    if (ucp_has_ended(ucp->request)) {
        lane->done += lane->waits;
        lane->waits = 0;
    }
    return lane->done == direct->count;
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 100000, .window = 64, .size = 4};
    struct lane_ops ops = {ucp_lane_open, ucp_lane_connect, ucp_lanes_settle, rate};
    double ns = direct_run(argc, argv, &direct, ops);

    printf("threads %d, %d bytes: %.3f M puts/s\n", direct.threads, direct.size,
           (double)direct.threads * direct.count / ns * 1000);
    return 0;
}
