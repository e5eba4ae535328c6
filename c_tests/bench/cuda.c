//! Memory of GPUs: tag messages, put and get between two devices, or within one, by size; in one process and between
//! two. And the driver's own copies of the same bytes, which are the limit.
#define _GNU_SOURCE
#include "../cuda/driver.h"
#include "pair.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, LARGE = 256 << 10, LARGE_WINDOW = 16, TAG = 1 };

/** The devices of side 0 and of side 1. */
struct devices {
    const struct effort *effort;
    int numbers[2];
};

#define ENTRIES(entry)                                                                                                \
    entry(cuInit) entry(cuDeviceGetCount) entry(cuDeviceGetName) entry(cuDriverGetVersion)                            \
    entry(cuDeviceCanAccessPeer) entry(cuDevicePrimaryCtxRetain) entry(cuCtxSetCurrent) entry(cuCtxEnablePeerAccess)  \
    entry(cuMemAlloc_v2) entry(cuMemFree_v2) entry(cuMemcpyHtoD_v2) entry(cuMemcpyDtoH_v2)                            \
    entry(cuMemcpyDtoDAsync_v2) entry(cuMemcpyPeerAsync) entry(cuStreamCreate) entry(cuStreamSynchronize)

/** The driver's functions, which are found at run time: the other workloads run without it. */
static struct {
#define FIELD(name) __typeof__(&name) name;
    ENTRIES(FIELD)
} driver;

/** Memory of side 0's device and of side 1's. Of two processes each has its own; the other one is NULL. */
static unsigned char *memory[2];
static CUcontext contexts[2];
static CUstream stream;
static struct region region; /* side 1's memory, as side 0 accesses it */

#define GOOD(call) good(driver.call, #call)

static void good(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        die("%s: error %d of the driver", call, result);
    }
}

static void open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (library == NULL) {
        die("%s", dlerror());
    }
#define FIND(name)                                                                                                    \
    if ((driver.name = (__typeof__(&name))dlsym(library, #name)) == NULL) {                                           \
        die("libcuda.so.1 has no " #name);                                                                            \
    }
    ENTRIES(FIND)
    GOOD(cuInit(0));
}

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

/** Allocates the memory of a side on its device, whose context is then the thread's: UCX needs one. */
static void allocate(const struct devices *devices, int side)
{
    CUdeviceptr address;

    GOOD(cuDevicePrimaryCtxRetain(&contexts[side], devices->numbers[side]));
    GOOD(cuCtxSetCurrent(contexts[side]));
    GOOD(cuMemAlloc_v2(&address, devices->effort->largest));
    memory[side] = (unsigned char *)(uintptr_t)address;
}

/** The memory of all sides that this process plays. */
static void open_memory(const struct devices *devices, struct place place)
{
    open_driver();
    for (int side = 1; side >= 0; side--) {
        if (place.stage->processes == 1 || place.index == side) {
            allocate(devices, side);
        }
    }
}

static void close_memory(void)
{
    for (int side = 0; side < 2; side++) {
        if (memory[side] != NULL) {
            GOOD(cuCtxSetCurrent(contexts[side]));
            GOOD(cuMemFree_v2(address_of(memory[side])));
        }
    }
}

/* ---- tag messages: side 0 sends, side 1 receives; one process plays both ---- */

static int plays_both(void)
{
    return memory[0] != NULL && memory[1] != NULL;
}

static ucs_status_ptr_t send_from(struct side *side, const unsigned char *from, size_t size)
{
    return ucp_tag_send_nbx(side->ep, from, size, TAG, &plain);
}

static ucs_status_ptr_t receive_to(struct side *side, unsigned char *to, size_t size)
{
    return ucp_tag_recv_nbx(side->worker, to, size, TAG, (ucp_tag_t)-1, &plain);
}

/** There and back between two processes, there in one. */
static void tag_one(struct side *side, size_t size, long rounds)
{
    unsigned char *own = memory[side->place.index];

    for (long i = 0; i < rounds; i++) {
        if (plays_both()) {
            ucs_status_ptr_t received = receive_to(side, memory[1], size);

            wait_for(side, send_from(side, memory[0], size), "send");
            wait_for(side, received, "receive");
        } else if (side->place.index == 0) {
            wait_for(side, send_from(side, own, size), "send");
            wait_for(side, receive_to(side, own, size), "receive");
        } else {
            wait_for(side, receive_to(side, own, size), "receive");
            wait_for(side, send_from(side, own, size), "send");
        }
    }
}

static int window_of(size_t size)
{
    return size < LARGE ? WINDOW : LARGE_WINDOW;
}

/** Windows of sends to receives of the same number; between processes one small acknowledgement for each. */
static void tag_window(struct side *side, size_t size, long rounds)
{
    ucs_status_ptr_t sends[WINDOW], receives[WINDOW];
    int window = window_of(size);

    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < window; i++) {
            receives[i] = memory[1] != NULL ? receive_to(side, memory[1], size) : NULL;
            sends[i] = memory[0] != NULL ? send_from(side, memory[0], size) : NULL;
        }
        for (int i = 0; i < window; i++) {
            wait_for(side, sends[i], "send");
            wait_for(side, receives[i], "receive");
        }
        if (plays_both()) {
            continue;
        }
        wait_for(side, memory[1] != NULL ? send_from(side, side->buffer, 1) : receive_to(side, side->buffer, 1),
                 "acknowledgement");
    }
}

/* ---- put and get: side 0 accesses the memory of side 1, which waits at the barrier, where it progresses ---- */

static ucs_status_ptr_t put(struct side *side, size_t size)
{
    return ucp_put_nbx(side->ep, memory[0], size, region.remote, region.rkey, &plain);
}

static ucs_status_ptr_t get(struct side *side, size_t size)
{
    return ucp_get_nbx(side->ep, memory[0], size, region.remote, region.rkey, &plain);
}

static void flush(struct side *side)
{
    wait_for(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
}

static void accesses(struct side *side, ucs_status_ptr_t (*access)(struct side *, size_t), size_t size, long rounds,
                     int window)
{
    ucs_status_ptr_t requests[WINDOW];

    for (long round = 0; round < rounds && side->place.index == 0; round++) {
        for (int i = 0; i < window; i++) {
            requests[i] = access(side, size);
        }
        if (access == put) {
            flush(side);
        }
        for (int i = 0; i < window; i++) {
            wait_for(side, requests[i], "access");
        }
    }
}

static void put_one(struct side *side, size_t size, long rounds)
{
    accesses(side, put, size, rounds, 1);
}

static void put_window(struct side *side, size_t size, long rounds)
{
    accesses(side, put, size, rounds, window_of(size));
}

static void get_one(struct side *side, size_t size, long rounds)
{
    accesses(side, get, size, rounds, 1);
}

static void get_window(struct side *side, size_t size, long rounds)
{
    accesses(side, get, size, rounds, window_of(size));
}

/* ---- the driver's own copies ---- */

static void copies(size_t size, long rounds, int window)
{
    int within_one = contexts[0] == contexts[1];

    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < window; i++) {
            CUdeviceptr to = address_of(memory[1]), from = address_of(memory[0]);

            if (within_one) {
                GOOD(cuMemcpyDtoDAsync_v2(to, from, size, stream));
            } else {
                GOOD(cuMemcpyPeerAsync(to, contexts[1], from, contexts[0], size, stream));
            }
        }
        GOOD(cuStreamSynchronize(stream));
    }
}

static void copy_one(struct side *side, size_t size, long rounds)
{
    (void)side;
    copies(size, rounds, 1);
}

static void copy_window(struct side *side, size_t size, long rounds)
{
    (void)side;
    copies(size, rounds, window_of(size));
}

/* ---- the workload ---- */

struct operation {
    const char *name;
    batch one, window;
    int target; /* the side whose memory the operation writes */
};

static const struct operation operations[] = {
    {"tag", tag_one, tag_window, 1},
    {"put", put_one, put_window, 1},
    {"get", get_one, get_window, 0},
};

static const struct operation copy = {"copy", copy_one, copy_window, 1};

/** Figures of an operation that loses data mean nothing: checks each byte of one of this size. */
static void verify(struct side *side, const struct operation *operation, size_t size)
{
    unsigned char *bytes = malloc(size), *expected = malloc(size);

    if (bytes == NULL || expected == NULL) {
        die("no memory");
    }
    for (size_t i = 0; i < size; i++) {
        expected[i] = (unsigned char)(i * 7 + (i >> 8) + size);
    }
    for (int i = 0; i < 2; i++) {
        if (memory[i] != NULL) {
            memset(bytes, 0, size);
            GOOD(cuMemcpyHtoD_v2(address_of(memory[i]), i == operation->target ? bytes : expected, size));
        }
    }
    meet_other(side);
    operation->one(side, size, 1);
    meet_other(side);
    if (memory[operation->target] != NULL) {
        GOOD(cuMemcpyDtoH_v2(bytes, address_of(memory[operation->target]), size));
        if (memcmp(bytes, expected, size) != 0) {
            die("%s: wrong data, %zu bytes", operation->name, size);
        }
    }
    free(bytes);
    free(expected);
}

static void report(const struct operation *operation, const char *what, size_t size, double value, const char *unit)
{
    char name[64];

    snprintf(name, sizeof(name), "%s_%s", operation->name, what);
    figure(name, (long)size, value, unit);
}

static void measure(struct side *side, const struct operation *operation)
{
    const struct effort *effort = side->effort;
    int ways = operation->one == tag_one && !plays_both() ? 2 : 1; /* in a round */

    verify(side, operation, 300);
    verify(side, operation, effort->largest);
    for (size_t size = effort->smallest != 0 ? effort->smallest : 8; size <= effort->largest;
         size *= effort->quick ? 512 : 8) {
        double one = seconds_per_round(side, operation->one, size) / ways;
        double each = seconds_per_round(side, operation->window, size) / window_of(size);

        if (side->place.index == 0) {
            report(operation, "latency", size, one * 1e6, "us");
            report(operation, "bandwidth", size, (double)size / each / 1e6, "MB/s");
        }
    }
}

static void map_memory(struct side *side, size_t length)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .length = length,
    };

    region.own = plays_both() || side->place.index == 1 ? memory[1] : memory[0];
    params.address = region.own;
    check(ucp_mem_map(side->context, &params, &region.memory), "ucp_mem_map");
    exchange_region(side, &region);
}

static void play(struct place place, void *argument)
{
    const struct devices *devices = argument;
    struct side side;

    open_memory(devices, place);
    open_side(&side, place, devices->effort, UCP_FEATURE_TAG | UCP_FEATURE_RMA);
    map_memory(&side, devices->effort->largest);
    meet_other(&side);
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
        measure(&side, &operations[i]);
    }
    ucp_rkey_destroy(region.rkey);
    meet_other(&side);
    check(ucp_mem_unmap(side.context, region.memory), "ucp_mem_unmap");
    close_side(&side);
    close_memory();
}

/** Where a device reaches the other one's memory the driver copies without the host. */
static void enable_peer_access(const struct devices *devices)
{
    int can = 0;

    if (contexts[0] != contexts[1]) {
        GOOD(cuDeviceCanAccessPeer(&can, devices->numbers[0], devices->numbers[1]));
    }
    if (can) {
        GOOD(cuCtxEnablePeerAccess(contexts[1], 0));
    }
}

static void play_copies(struct place place, void *argument)
{
    const struct devices *devices = argument;
    struct side side = {.place = place, .effort = devices->effort};

    open_memory(devices, place);
    enable_peer_access(devices);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    measure(&side, &copy);
    close_memory();
}

static int list_devices(void)
{
    char name[256] = "";
    int count, version;

    open_driver();
    GOOD(cuDeviceGetCount(&count));
    GOOD(cuDriverGetVersion(&version));
    printf("# driver: CUDA %d.%d\n", version / 1000, version % 1000 / 10);
    for (int i = 0; i < count; i++) {
        GOOD(cuDeviceGetName(name, sizeof(name), i));
        printf("# gpu %d: %s\n", i, name);
    }
    return 0;
}

int run_cuda(const struct effort *effort, int argc, char **argv)
{
    struct devices devices = {.effort = effort};

    if (argc == 2 && strcmp(argv[1], "devices") == 0) {
        return list_devices();
    }
    if (argc != 4) {
        return 2;
    }
    devices.numbers[0] = atoi(argv[2]);
    devices.numbers[1] = atoi(argv[3]);
    if (strcmp(argv[1], "copies") == 0) {
        return start_processes(1, play_copies, &devices);
    }
    return start_processes(strcmp(argv[1], "one") == 0 ? 1 : 2, play, &devices);
}
