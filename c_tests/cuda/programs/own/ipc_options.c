/*
 * UCX_CUDA_IPC_CACHE, _CACHE_MAX_REGIONS and _CACHE_MAX_SIZE: which allocations of a peer stay open after their use;
 * UCX_CUDA_IPC_ENABLE_GET_ZCOPY: without it nothing is read from them.
 */
#include "gpu.h"

#include "window.h"

#include <stdlib.h>

#define LENGTH (1 << 20)
#define ROUNDS 3

static unsigned long long opened(void)
{
    return gpu_calls("cuIpcOpenMemHandle_v2");
}

static unsigned long long closed(void)
{
    return gpu_calls("cuIpcCloseMemHandle");
}

static void message(bed_t *bed, const area_t *source, const area_t *target, unsigned seed, const char *what)
{
    ucp_request_param_t param    = {.op_attr_mask = 0};
    ucs_status_ptr_t    received = NULL;

    area_fill(source, 0, LENGTH, seed);
    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, target->memory, LENGTH, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source->memory, LENGTH, 1, &param));
        want(bed->a, status == UCS_OK, "%s: sent, %s", what, status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        want(bed->b, status == UCS_OK && area_check(target, 0, LENGTH, 0, seed)[0] == 'g', "%s: received, %s", what,
             status_name(status));
    }
    bed_sync(bed);
}

/* B's memory is written and read back by A. */
static void accesses(bed_t *bed, const char *what)
{
    char                 key[PACKED_KEY_MAX];
    ucp_request_param_t  none   = {.op_attr_mask = 0};
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .length     = LENGTH};
    area_t               theirs = area_make(bed->b, GPU0, LENGTH);
    area_t               mine = area_make(bed->a, GPU1, LENGTH), again = area_make(bed->a, GPU1, LENGTH);
    ucp_mem_h            memh   = NULL;
    ucp_rkey_h           rkey   = NULL;
    uint64_t             remote = (uint64_t)(uintptr_t)theirs.memory;

    if (bed->b != NULL) {
        params.address = theirs.memory;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &memh), "ucp_mem_map");
    }
    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    area_fill(&mine, 0, LENGTH, 5);
    area_set(&again, 0);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        ucs_status_t put   = bed_wait(bed, ucp_put_nbx(bed->a->ep, mine.memory, LENGTH, remote, rkey, &none));
        ucs_status_t flush = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
        want(bed->a, opened() == 1, "%s, put: opened %llu", what, opened());
        unsigned long long copied = gpu_calls("cuMemcpyAsync");
        ucs_status_t       get    = bed_wait(bed, ucp_get_nbx(bed->a->ep, again.memory, LENGTH, remote, rkey, &none));
        copied                    = gpu_calls("cuMemcpyAsync") - copied;
        want(bed->a, put == UCS_OK && flush == UCS_OK && get == UCS_OK && area_check(&again, 0, LENGTH, 0, 5)[0] == 'g',
             "%s: put %s, flush %s, get %s", what, status_name(put), status_name(flush), status_name(get));
        want(bed->a, copied > 1, "%s, get: by messages, copies %llu", what, copied);
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
    }
    area_free(&theirs);
    area_free(&mine);
    area_free(&again);
}

/* `each`: how often the sources of two messages are opened in a round after the first; `reads`: at all. */
static void with(bed_t *bed, const char *name, const char *value, unsigned each, int reads)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};

    setenv(name, value, 1);
    bed_open(bed, &params);
    unsetenv(name);
    area_t             one = area_make(bed->a, GPU0, LENGTH), other = area_make(bed->a, GPU1, LENGTH);
    area_t             target = area_make(bed->b, GPU1, LENGTH);
    unsigned long long open = opened(), close = closed();
    for (unsigned i = 0; i < ROUNDS; i++) {
        message(bed, &one, &target, i, name);
        message(bed, &other, &target, i, name);
    }
    open  = opened() - open;
    close = closed() - close;
    unsigned long long wanted = reads ? 2 + (ROUNDS - 1) * each : 0;
    want(bed->b, open == wanted, "%s=%s: opened %llu", name, value, open);
    /* One stays open at most where not all do. */
    want(bed->b, each == 2 ? close + 1 >= open : close == 0, "%s=%s: closed %llu", name, value, close);
    if (!reads) {
        accesses(bed, name);
    }
    bed_close(bed);
    area_free(&one);
    area_free(&other);
    area_free(&target);
}

static void script(bed_t *bed)
{
    gpu_open();
    with(bed, "UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "off", 0, 0);
    with(bed, "UCX_CUDA_IPC_ENABLE_GET_ZCOPY", "on", 0, 1);
    with(bed, "UCX_CUDA_IPC_CACHE", "y", 0, 1);
    with(bed, "UCX_CUDA_IPC_CACHE", "n", 2, 1);
    with(bed, "UCX_CUDA_IPC_CACHE_MAX_REGIONS", "2", 0, 1);
    with(bed, "UCX_CUDA_IPC_CACHE_MAX_REGIONS", "1", 2, 1);
    with(bed, "UCX_CUDA_IPC_CACHE_MAX_SIZE", "3m", 0, 1);
    with(bed, "UCX_CUDA_IPC_CACHE_MAX_SIZE", "1500k", 2, 1);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
