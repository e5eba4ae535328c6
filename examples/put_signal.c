/*
 * Put with signal (docs/UCPX.md): rank 0 writes blocks into the memory of rank 1, each followed by a signal; rank 1
 * polls a completion queue, and finds a block complete when its signal has arrived. No message is matched, and no flag
 * is polled.
 */
#include "example.h"

#include <ucp/api/ucpx.h>

#include <string.h>

enum { BLOCKS = 8, BLOCK = 4096 };

static char                      window[BLOCKS][BLOCK];
static const ucp_request_param_t plain;

static void produce(const pair_t *pair, ucp_worker_h worker, ucp_ep_h ep)
{
    uint64_t  *address = pair_receive(pair);
    void      *key     = pair_receive(pair);
    ucp_rkey_h rkey;

    MUST(ucp_ep_rkey_unpack(ep, key, &rkey));
    for (int i = 0; i < BLOCKS; i++) {
        ucpx_signal_t signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE, .value = i};

        memset(window[i], 'a' + i, BLOCK);
        wait_for(worker, ucpx_put_signal_nbx(ep, window[i], BLOCK, *address + i * BLOCK, rkey, &signal, &plain));
    }
    wait_for(worker, ucp_ep_flush_nbx(ep, &plain));
    ucp_rkey_destroy(rkey);
    free(address);
    free(key);
}

static void consume(const pair_t *pair, ucp_context_h context, ucp_worker_h worker)
{
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .address    = window,
                                .length     = sizeof(window)};
    ucpx_cq_h            cq;
    ucp_mem_h            memh;
    void                *key;
    size_t               length;

    MUST(ucpx_cq_create(worker, NULL, &cq));
    MUST(ucp_mem_map(context, &map, &memh));
    MUST(ucp_rkey_pack(context, memh, &key, &length));
    pair_send(pair, &(uint64_t){(uintptr_t)window}, sizeof(uint64_t));
    pair_send(pair, key, length);
    ucp_rkey_buffer_release(key);

    for (int seen = 0; seen < BLOCKS;) {
        ucpx_cq_entry_t entries[BLOCKS];
        int             count = ucpx_cq_poll(cq, entries, BLOCKS);

        expect(count >= 0, "ucpx_cq_poll");
        for (int i = 0; i < count; i++, seen++) {
            const char *block = window[entries[i].value];

            expect(block[0] == 'a' + (int)entries[i].value && block[BLOCK - 1] == block[0],
                   "the data before the signal");
            printf("block %d is complete\n", (int)entries[i].value);
        }
    }
    ucpx_cq_destroy(cq);
    MUST(ucp_mem_unmap(context, memh));
}

int main(void)
{
    pair_t        pair = pair_start();
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;

    set_up(UCP_FEATURE_RMA, &context, &worker);
    ep = pair_connect(&pair, worker);
    if (pair.rank == 0) {
        produce(&pair, worker, ep);
    } else {
        consume(&pair, context, worker);
    }
    return pair_finish(&pair, context, worker, ep);
}
