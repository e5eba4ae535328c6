/*
 * Memory of devices that is not cuMemAlloc's in a primary context, as source and as target: of a context of
 * cuCtxCreate, of cuMemMap, over the boundary of two allocations of cuMemMap, of a pool, of the device's own pool.
 */
#include "gpu.h"

#include "../../driver.h"
#include "window.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef enum { CREATED, MAPPED, MAPPED_PAIR, POOL, OWN_POOL, ALLOCATIONS } allocation_t;

static const char *const names[] = {"cuCtxCreate", "cuMemMap", "two of cuMemMap", "pool", "own pool"};

/* Memory of one side: of device 0 at A, of the last device at B. */
typedef struct {
    allocation_t allocation;
    area_t       area;
    CUcontext    context;    /* CREATED */
    CUdeviceptr  base;       /* MAPPED and MAPPED_PAIR: the reservation */
    size_t       piece;      /* bytes of an allocation */
    unsigned     pieces;
    CUmemoryPool pool;       /* POOL */
    CUstream     stream;
} memory_t;

static void good(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: error %d of the driver\n", what, result);
        _exit(7);
    }
}
#define GOOD(call) good(call, #call)

static int device_of(place_t place)
{
    int devices;

    GOOD(cuDeviceGetCount(&devices));
    return place == GPU0 ? 0 : devices - 1;
}

/* In the primary context of the device. */
static void enter(int device)
{
    CUcontext primary;

    GOOD(cuDevicePrimaryCtxRetain(&primary, device));
    GOOD(cuCtxPushCurrent_v2(primary));
}

static void leave(int device)
{
    CUcontext primary;

    GOOD(cuCtxPopCurrent_v2(&primary));
    GOOD(cuDevicePrimaryCtxRelease_v2(device));
}

static CUdeviceptr create(memory_t *memory, int device, size_t length)
{
    CUdeviceptr address;
    CUcontext   context;

    GOOD(cuCtxCreate_v2(&memory->context, 0, device));
    GOOD(cuMemAlloc_v2(&address, length));
    GOOD(cuCtxPopCurrent_v2(&context));
    return address;
}

static CUdeviceptr map(memory_t *memory, int device, size_t length)
{
    CUmemAllocationProp prop   = {.type     = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc     access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t              granularity;

    GOOD(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    memory->pieces = memory->allocation == MAPPED ? 1 : 2;
    memory->piece  = (length + granularity - 1) / granularity * granularity;
    GOOD(cuMemAddressReserve(&memory->base, memory->pieces * memory->piece, 0, 0, 0));
    for (unsigned i = 0; i < memory->pieces; i++) {
        CUmemGenericAllocationHandle handle;

        GOOD(cuMemCreate(&handle, memory->piece, &prop, 0));
        GOOD(cuMemMap(memory->base + i * memory->piece, memory->piece, 0, handle, 0));
        GOOD(cuMemRelease(handle)); /* the mapping keeps it */
    }
    GOOD(cuMemSetAccess(memory->base, memory->pieces * memory->piece, &access, 1));
    return memory->pieces == 1 ? memory->base : memory->base + memory->piece - length / 2;
}

static CUdeviceptr take(memory_t *memory, int device, size_t length)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location  = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUdeviceptr    address;

    GOOD(cuStreamCreate(&memory->stream, CU_STREAM_NON_BLOCKING));
    if (memory->allocation == POOL) {
        GOOD(cuMemPoolCreate(&memory->pool, &props));
        GOOD(cuMemAllocFromPoolAsync(&address, length, memory->pool, memory->stream));
    } else {
        GOOD(cuMemAllocAsync(&address, length, memory->stream));
    }
    GOOD(cuStreamSynchronize(memory->stream));
    return address;
}

static void memory_make(const side_t *side, memory_t *memory, allocation_t allocation, place_t place, size_t length)
{
    int device = device_of(place);

    memset(memory, 0, sizeof(*memory));
    memory->allocation = allocation;
    memory->area       = (area_t){.place = place, .length = length};
    if (side == NULL) {
        return;
    }
    enter(device);
    CUdeviceptr address = allocation == CREATED  ? create(memory, device, length) :
                          allocation >= POOL     ? take(memory, device, length) :
                                                   map(memory, device, length);
    leave(device);
    memory->area.memory = (char *)(uintptr_t)address;
}

static void memory_free(memory_t *memory)
{
    int device = device_of(memory->area.place);

    if (memory->area.memory == NULL) {
        return;
    }
    enter(device);
    switch (memory->allocation) {
    case CREATED:
        GOOD(cuCtxDestroy_v2(memory->context)); /* and its memory */
        break;
    case MAPPED:
    case MAPPED_PAIR:
        GOOD(cuMemUnmap(memory->base, memory->pieces * memory->piece));
        GOOD(cuMemAddressFree(memory->base, memory->pieces * memory->piece));
        break;
    default:
        GOOD(cuMemFreeAsync((CUdeviceptr)(uintptr_t)memory->area.memory, memory->stream));
        GOOD(cuStreamSynchronize(memory->stream));
        GOOD(cuStreamDestroy_v2(memory->stream));
        if (memory->pool != NULL) {
            GOOD(cuMemPoolDestroy(memory->pool));
        }
    }
    leave(device);
}

static void message(bed_t *bed, allocation_t from, allocation_t to, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    unsigned            seed  = (unsigned)length + 8 * from + to;
    memory_t            source, target;

    memory_make(bed->a, &source, from, GPU0, length);
    memory_make(bed->b, &target, to, GPU1, length);
    area_fill(&source.area, 0, length, seed);
    area_set(&target.area, 0);
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t sent = ucp_tag_send_nbx(bed->a->ep, source.area.memory, length, 1, &param);
        fact(bed->a, "tag %zu, %s to %s: %s", length, names[from], names[to], status_name(bed_wait(bed, sent)));
    }
    if (bed->b != NULL) {
        ucs_status_t status =
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target.area.memory, length, 1, -1, &param));
        fact(bed->b, "tag %zu, %s to %s: %s, %s", length, names[from], names[to], status_name(status),
             area_check(&target.area, 0, length, 0, seed));
    }
    bed_sync(bed);
    memory_free(&source);
    memory_free(&target);
}

/* A writes B's memory, and reads it back. */
static void access_to(bed_t *bed, allocation_t to, size_t length)
{
    ucp_request_param_t  param    = {.op_attr_mask = 0};
    ucp_mem_map_params_t params   = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                     .length     = length};
    ucp_mem_attr_t       attr     = {.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE};
    ucp_mem_h            memh     = NULL;
    ucp_rkey_h           rkey     = NULL;
    uint64_t             remote   = 0;
    area_t               source   = area_make(bed->a, GPU0, length), again = area_make(bed->a, GPU0, length);
    char                 key[PACKED_KEY_MAX];
    memory_t             target;

    memory_make(bed->b, &target, to, GPU1, length);
    area_fill(&source, 0, length, 3);
    area_set(&target.area, 0);
    if (bed->b != NULL) {
        params.address = target.area.memory;
        remote         = (uint64_t)(uintptr_t)target.area.memory;
        must(bed->b, ucp_mem_map(bed->b->context, &params, &memh), "ucp_mem_map");
        must(bed->b, ucp_mem_query(memh, &attr), "ucp_mem_query");
    }
    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        ucs_status_t put = bed_wait(bed, ucp_put_nbx(bed->a->ep, source.memory, length, remote, rkey, &param));
        ucs_status_t flush = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
        ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, again.memory, length, remote, rkey, &param));
        fact(bed->a, "put %zu to %s: %s, flush %s, get %s, %s", length, names[to], status_name(put),
             status_name(flush), status_name(get), area_check(&again, 0, length, 0, 3));
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        fact(bed->b, "put %zu to %s: %s", length, names[to], area_check(&target.area, 0, length, 0, 3));
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
    }
    area_free(&source);
    area_free(&again);
    memory_free(&target);
}

static void script(bed_t *bed)
{
    static const size_t lengths[] = {8, 100000, 3 << 20};
    bed_params_t        params    = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};

    gpu_open();
    bed_open(bed, &params);
    for (int from = 0; from < ALLOCATIONS; from++) {
        for (int to = 0; to < ALLOCATIONS; to++) {
            for (int i = 0; i < 3; i++) {
                message(bed, (allocation_t)from, (allocation_t)to, lengths[i]);
            }
        }
    }
    for (int to = 0; to < ALLOCATIONS; to++) {
        for (int i = 0; i < 3; i++) {
            access_to(bed, (allocation_t)to, lengths[i]);
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
