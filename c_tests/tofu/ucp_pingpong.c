/*
 * direct_pingpong by UCP: tagged messages. The same options; at most 16 bytes.
 */
#include "ucp_lane.h"

/* One endpoint in both directions: sends when it has the turn, else polls for a message. */
static bool pingpong(struct lane *lane)
{
    struct ucp_lane *ucp = lane->ucp;
    const struct direct *direct = lane->direct;

    if (lane->turn) {
        if (ucp->request == NULL && lane->waits++ == 0)
            ucp->request = ucp_tag_send_nbx(ucp->ep, &ucp->data[0], direct->size, 1, &ucp_plain);
        if (!ucp_has_ended(ucp->request)) {
            ucp_worker_progress(ucp->worker);
            return false;
        }
        ucp->request = NULL;
        lane->waits = 0;
        lane->turn = false;
        if (direct->second && ++lane->done == direct->count)
            return true;
    }
    if (ucp->request == NULL)
        ucp->request = ucp_tag_recv_nbx(ucp->worker, &ucp->data[1], direct->size, 1, -1, &ucp_plain);
    ucp_worker_progress(ucp->worker);
    if (!ucp_has_ended(ucp->request))
        return false;
    ucp->request = NULL;
    lane->turn = true;
    return !direct->second && ++lane->done == direct->count;
}

int main(int argc, char **argv)
{
    struct direct direct = {.threads = 1, .count = 10000, .window = 1, .size = 8};
    double        ns =
        direct_run(argc, argv, &direct, (struct lane_ops){ucp_lane_open, ucp_lane_connect, ucp_lanes_settle, pingpong});

    if (direct.rotation)
        ns /= direct.threads;
    printf("threads %d, %d bytes: latency %.3f us\n", direct.threads, direct.size, ns / direct.count / 2 / 1000);
    return 0;
}
