/* Tag matching: two processes send a message back and forth, and print half of a round trip for several sizes. */
#include "example.h"

#include <string.h>
#include <time.h>

enum { TAG = 7, WARM_UP = 100, ROUNDS = 1000 };

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(void)
{
    static const size_t       sizes[] = {8, 1024, 65536, 1 << 20};
    const ucp_request_param_t plain   = {0};
    pair_t                    pair    = pair_start();
    ucp_context_h             context;
    ucp_worker_h              worker;
    ucp_ep_h                  ep;

    set_up(UCP_FEATURE_TAG, &context, &worker);
    ep = pair_connect(&pair, worker);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t size   = sizes[i];
        char  *buffer = malloc(size);
        double begin  = 0;

        expect(buffer != NULL, "malloc");
        memset(buffer, pair.rank == 0 ? 'p' : 0, size);
        for (int round = -WARM_UP; round < ROUNDS; round++) {
            if (round == 0) {
                begin = seconds();
            }
            if (pair.rank == 0) {
                wait_for(worker, ucp_tag_send_nbx(ep, buffer, size, TAG, &plain));
            }
            /* All bits of the tag count. The result of the match is available in the callback or in recv_info. */
            wait_for(worker, ucp_tag_recv_nbx(worker, buffer, size, TAG, UINT64_MAX, &plain));
            if (pair.rank == 1) {
                wait_for(worker, ucp_tag_send_nbx(ep, buffer, size, TAG, &plain));
            }
        }
        expect(buffer[0] == 'p' && buffer[size - 1] == 'p', "the message that was sent");
        if (pair.rank == 0) {
            printf("%8zu bytes: %8.2f us\n", size, (seconds() - begin) / ROUNDS / 2 * 1e6);
        }
        free(buffer);
    }
    return pair_finish(&pair, context, worker, ep);
}
