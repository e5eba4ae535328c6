//! The fabric: see fabric.h.
#include "fabric.h"
#include "cores.h"
#include "job.h"
#include "options.h"

#include <stdlib.h>
#include <string.h>

/* At least a cache line of any processor that this runs on. */
enum { PAGE = 65536 };

const ucp_request_param_t plain = {.op_attr_mask = 0};

void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (memory == NULL) {
        die("no memory for %zu times %zu bytes", count, size);
    }
    return memory;
}

/* ---- workers and endpoints ---- */

static void open_workers(struct fabric *fabric, uint64_t features)
{
    int shared = fabric->threads > fabric->workers;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features = features,
                           .mt_workers_shared = fabric->threads > 1};
    /* A worker is opened by the main thread and used by another one, but never by two at once. */
    ucp_worker_params_t wanted = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = shared ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SERIALIZED};
    ucp_worker_attr_t granted = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};

    check(ucp_init(&params, NULL, &fabric->context), "ucp_init");
    for (int i = 0; i < fabric->workers; i++) {
        bind_to_core(i); /* its memory shall be near the core of the thread that uses it */
        check(ucp_worker_create(fabric->context, &wanted, &fabric->worker[i]), "ucp_worker_create");
        check(ucp_worker_query(fabric->worker[i], &granted), "ucp_worker_query");
        if (shared && granted.thread_mode != UCS_THREAD_MODE_MULTI) {
            die("this libucp has no workers for several threads");
        }
    }
}

static int reaches(const struct fabric *fabric, enum reach reach, int rank)
{
    return reach == EVERYONE || rank == fabric->partner;
}

static void connect_worker(struct fabric *fabric, int index, enum reach reach)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    struct gathered all;
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(fabric->worker[index], &address, &length), "ucp_worker_get_address");
    all = gather(address, length);
    bind_to_core(index);
    ucp_worker_release_address(fabric->worker[index], address);
    for (int rank = 0; rank < job.size; rank++) {
        if (reaches(fabric, reach, rank)) {
            params.address = (const ucp_address_t *)(const void *)(all.bytes + all.offset[rank]);
            check(ucp_ep_create(fabric->worker[index], &params, &fabric->ep[index * job.size + rank]),
                  "ucp_ep_create");
        }
    }
    free_gathered(&all);
}

/* ---- memory ---- */

static void map_memory(struct fabric *fabric, size_t length)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = length,
                                   .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    if (options.user_memory) {
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        if (posix_memalign(&params.address, PAGE, length) != 0) {
            die("no memory for %zu bytes", length);
        }
    }
    check(ucp_mem_map(fabric->context, &params, &fabric->memory), "ucp_mem_map");
    check(ucp_mem_query(fabric->memory, &attr), "ucp_mem_query");
    fabric->own = attr.address;
}

static void unpack_keys(struct fabric *fabric, enum reach reach)
{
    struct gathered keys, bases;
    uint64_t own = (uint64_t)(uintptr_t)fabric->own;
    size_t length;
    void *key;

    check(ucp_rkey_pack(fabric->context, fabric->memory, &key, &length), "ucp_rkey_pack");
    keys = gather(key, length);
    ucp_rkey_buffer_release(key);
    bases = gather(&own, sizeof(own));
    for (int rank = 0; rank < job.size; rank++) {
        memcpy(&fabric->base[rank], bases.bytes + bases.offset[rank], sizeof(own));
        for (int i = 0; i < fabric->workers && reaches(fabric, reach, rank); i++) {
            check(ucp_ep_rkey_unpack(fabric->ep[i * job.size + rank], keys.bytes + keys.offset[rank],
                                     &fabric->rkey[i * job.size + rank]),
                  "ucp_ep_rkey_unpack");
        }
    }
    free_gathered(&keys);
    free_gathered(&bases);
}

/* ---- opening and closing ---- */

void meet(struct fabric *fabric)
{
    struct meeting meeting;

    begin_meeting(&meeting);
    while (!meeting_is_over(&meeting)) {
        for (int i = 0; i < fabric->workers; i++) {
            progress(fabric, fabric->worker[i]);
        }
    }
}

void open_fabric(struct fabric *fabric, int threads, int workers, enum reach reach, uint64_t features, size_t length)
{
    size_t ends = (size_t)workers * (size_t)job.size;

    *fabric = (struct fabric){.threads = threads,
                              .workers = workers,
                              .partner = (job.rank + job.size / 2) % job.size,
                              .worker = zeroed((size_t)workers, sizeof(ucp_worker_h)),
                              .ep = zeroed(ends, sizeof(ucp_ep_h)),
                              .rkey = zeroed(ends, sizeof(ucp_rkey_h)),
                              .base = zeroed((size_t)job.size, sizeof(uint64_t)),
                              .oversubscribed = threads > core_count() || cores_are_shared()};
    open_workers(fabric, features);
    for (int i = 0; i < workers; i++) {
        connect_worker(fabric, i, reach);
    }
    unpin();
    map_memory(fabric, length);
    unpack_keys(fabric, reach);
    meet(fabric);
}

static int all_complete(ucs_status_ptr_t *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (UCS_PTR_IS_PTR(requests[i]) && ucp_request_check_status(requests[i]) == UCS_INPROGRESS) {
            return 0;
        }
    }
    return 1;
}

/** All at once: each end may need progress of the other one's workers. */
static void close_endpoints(struct fabric *fabric)
{
    size_t count = (size_t)fabric->workers * (size_t)job.size;
    ucs_status_ptr_t *requests = zeroed(count, sizeof(*requests));

    for (size_t i = 0; i < count; i++) {
        requests[i] = fabric->ep[i] == NULL ? NULL : ucp_ep_close_nbx(fabric->ep[i], &plain);
    }
    while (!all_complete(requests, count)) {
        for (int i = 0; i < fabric->workers; i++) {
            progress(fabric, fabric->worker[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (UCS_PTR_IS_ERR(requests[i])) {
            check(UCS_PTR_STATUS(requests[i]), "ucp_ep_close_nbx");
        } else if (requests[i] != NULL) {
            ucp_request_free(requests[i]);
        }
    }
    free(requests);
}

void close_fabric(struct fabric *fabric)
{
    void *user_memory = options.user_memory ? fabric->own : NULL;

    meet(fabric);
    for (int i = 0; i < fabric->workers * job.size; i++) {
        if (fabric->rkey[i] != NULL) {
            ucp_rkey_destroy(fabric->rkey[i]);
        }
    }
    close_endpoints(fabric);
    meet(fabric);
    check(ucp_mem_unmap(fabric->context, fabric->memory), "ucp_mem_unmap");
    free(user_memory);
    for (int i = 0; i < fabric->workers; i++) {
        ucp_worker_destroy(fabric->worker[i]);
    }
    ucp_cleanup(fabric->context);
    free(fabric->worker);
    free(fabric->ep);
    free(fabric->rkey);
    free(fabric->base);
}
