/*
 * One of two processes that exchange messages while a trace file is written. c_tests/trace/run starts both and reads
 * what they have recorded.
 *
 * usage: pair CASE
 */
#define _GNU_SOURCE
#include "../check.h"
#include "../cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { HANDLER = 3, TAG = 0x77, AFTER = 0x78, LONG = 300000, LATE_MS = 40, MESSAGES = 8, THREADS = 4, ROUNDS = 200 };
enum { FAILS_AT = 8, PIECES = 7 };

void check_report(const char *failure)
{
    fprintf(stderr, "pair: %s\n", failure);
    exit(1);
}

#define OK(call) CHECK((call) == UCS_OK)

typedef struct {
    volatile size_t length; /* of the address; 0: not there yet */
    char            address[1024];
    volatile int    met;
    volatile int    last; /* number of the last message, once it is known */
    char            key[512];
    uint64_t        memory; /* that the key is for */
} side_t;

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    int           arrived; /* active messages */
    char         *in;
} peer_t;

static side_t             *sides;
static ucp_request_param_t none;

/* Waits, and takes part in progress. */
static void finish(ucp_worker_h worker, ucs_status_ptr_t request)
{
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        OK(ucp_request_check_status(request));
        ucp_request_free(request);
    }
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    peer_t          *peer = arg;
    ucs_status_ptr_t request;

    (void)header;
    (void)header_length;
    CHECK(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    request = ucp_am_recv_data_nbx(peer->worker, data, peer->in, length, &none);
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request != NULL) {
        ucp_request_free(request);
    }
    peer->arrived++;
    return UCS_OK;
}

static void open_worker(peer_t *peer, side_t *side, ucs_thread_mode_t mode)
{
    ucp_params_t           params  = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                      .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA,
                                      .mt_workers_shared = mode == UCS_THREAD_MODE_MULTI};
    ucp_worker_params_t    wparams = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_NAME,
                                      .thread_mode = mode, .name = "the \"worker\""};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = HANDLER, .cb = on_message, .arg = peer};
    ucp_address_t         *address;
    size_t                 length;

    OK(ucp_init(&params, NULL, &peer->context));
    OK(ucp_worker_create(peer->context, &wparams, &peer->worker));
    OK(ucp_worker_set_am_recv_handler(peer->worker, &handler));
    OK(ucp_worker_get_address(peer->worker, &address, &length));
    CHECK(length <= sizeof(side->address));
    memcpy(side->address, address, length);
    ucp_worker_release_address(peer->worker, address);
    __atomic_store_n(&side->length, length, __ATOMIC_RELEASE);
    peer->in = malloc(LONG);
}

static void connect_to(peer_t *peer, side_t *side, ucp_err_handling_mode_t mode)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = mode};

    while (__atomic_load_n(&side->length, __ATOMIC_ACQUIRE) == 0) {
        usleep(500);
    }
    params.address = (ucp_address_t *)side->address;
    OK(ucp_ep_create(peer->worker, &params, &peer->ep));
}

/* Progresses until the other side is here, too. */
static void meet(peer_t *peer, side_t *mine, side_t *theirs, int times)
{
    __atomic_store_n(&mine->met, times, __ATOMIC_RELEASE);
    while (__atomic_load_n(&theirs->met, __ATOMIC_ACQUIRE) < times) {
        ucp_worker_progress(peer->worker);
    }
}

static void send_tagged(peer_t *peer, size_t length, ucp_tag_t tag)
{
    char *out = calloc(1, length);

    finish(peer->worker, ucp_tag_send_nbx(peer->ep, out, length, tag, &none));
    free(out);
}

static void receive_tagged(peer_t *peer, size_t length, ucp_tag_t tag)
{
    finish(peer->worker, ucp_tag_recv_nbx(peer->worker, peer->in, length, tag, ~0ul, &none));
}

/* Puts into the memory of the other side, whose key is there. */
static void put(peer_t *peer, side_t *theirs, const char *out, size_t length)
{
    ucp_rkey_h rkey;

    OK(ucp_ep_rkey_unpack(peer->ep, theirs->key, &rkey));
    finish(peer->worker, ucp_put_nbx(peer->ep, out, length, theirs->memory, rkey, &none));
    finish(peer->worker, ucp_worker_flush_nbx(peer->worker, &none));
    ucp_rkey_destroy(rkey);
}

static void get(peer_t *peer, side_t *theirs, char *in, size_t length)
{
    ucp_rkey_h rkey;

    OK(ucp_ep_rkey_unpack(peer->ep, theirs->key, &rkey));
    finish(peer->worker, ucp_get_nbx(peer->ep, in, length, theirs->memory, rkey, &none));
    ucp_rkey_destroy(rkey);
}

/* Puts and gets lists of `pieces` pieces: these many bytes from here, to or from the same places there. */
static void transfer_lists(peer_t *peer, side_t *theirs, char *here, size_t length, int pieces)
{
    void       *buffers[PIECES];
    size_t      lengths[PIECES];
    uint64_t    addrs[PIECES];
    ucp_rkey_h  rkey, rkeys[PIECES];
    ucp_dt_local_sgl_t  local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                  .buffers = buffers, .lengths = lengths};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = addrs, .rkeys = rkeys};
    ucp_request_param_t param  = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &remote, .remote_count = pieces,
    };
    size_t each = length / pieces;
    int    i;

    CHECK(pieces <= PIECES);
    OK(ucp_ep_rkey_unpack(peer->ep, theirs->key, &rkey));
    for (i = 0; i < pieces; i++) {
        buffers[i] = here + i * each;
        lengths[i] = i < pieces - 1 ? each : length - each * (pieces - 1);
        addrs[i]   = theirs->memory + i * each;
        rkeys[i]   = rkey;
    }
    finish(peer->worker, ucp_put_nbx(peer->ep, &local, pieces, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param));
    finish(peer->worker, ucp_worker_flush_nbx(peer->worker, &none));
    finish(peer->worker, ucp_get_nbx(peer->ep, &local, pieces, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param));
    ucp_rkey_destroy(rkey);
}

/* Gives the other side the key of memory. */
static void share(peer_t *peer, side_t *mine, ucp_mem_h memh, void *memory)
{
    void  *key;
    size_t length;

    OK(ucp_rkey_pack(peer->context, memh, &key, &length));
    CHECK(length <= sizeof(mine->key));
    memcpy(mine->key, key, length);
    mine->memory = (uintptr_t)memory;
    ucp_rkey_buffer_release(key);
}

/* Memory of a GPU, by the driver that is loaded already. */
static void *gpu_memory(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUresult (*init)(unsigned)                  = driver ? dlsym(driver, "cuInit") : NULL;
    CUresult (*retain)(CUcontext *, CUdevice)   = driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : NULL;
    CUresult (*enter)(CUcontext)                = driver ? dlsym(driver, "cuCtxSetCurrent") : NULL;
    CUresult (*allocate)(CUdeviceptr *, size_t) = driver ? dlsym(driver, "cuMemAlloc_v2") : NULL;
    CUdeviceptr address;
    CUcontext   context;

    CHECK(init && retain && enter && allocate);
    CHECK(init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS && enter(context) == CUDA_SUCCESS);
    CHECK(allocate(&address, LONG) == CUDA_SUCCESS);
    return (void *)(uintptr_t)address;
}

/* A put and a get of LONG bytes, and short ones, in memory that the other process maps, or in that of a GPU. */
static void access_memory(peer_t *peer, side_t *mine, side_t *theirs, int first, int gpu)
{
    ucp_mem_map_params_t map  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                 .length = LONG, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h            memh;

    if (gpu) {
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address    = gpu_memory();
    }
    OK(ucp_mem_map(peer->context, &map, &memh));
    OK(ucp_mem_query(memh, &attr));
    share(peer, mine, memh, attr.address);
    meet(peer, mine, theirs, 1);
    if (first) {
        put(peer, theirs, attr.address, LONG);
        put(peer, theirs, attr.address, 8);
        get(peer, theirs, attr.address, LONG);
        get(peer, theirs, attr.address, 1000);
    }
    meet(peer, mine, theirs, 2);
    OK(ucp_mem_unmap(peer->context, memh));
}

/* Lists of LONG bytes and short ones, to and from memory of the other process. */
static void access_lists(peer_t *peer, side_t *mine, side_t *theirs, int first, int allocate)
{
    ucp_mem_map_params_t map  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH, .length = LONG};
    ucp_mem_attr_t       attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h            memh;

    if (allocate) {
        map.field_mask |= UCP_MEM_MAP_PARAM_FIELD_FLAGS;
        map.flags = UCP_MEM_MAP_ALLOCATE;
    } else {
        map.field_mask |= UCP_MEM_MAP_PARAM_FIELD_ADDRESS;
        map.address = peer->in;
    }
    OK(ucp_mem_map(peer->context, &map, &memh));
    OK(ucp_mem_query(memh, &attr));
    share(peer, mine, memh, attr.address);
    meet(peer, mine, theirs, 1);
    if (first) {
        transfer_lists(peer, theirs, attr.address, LONG, PIECES);
        transfer_lists(peer, theirs, attr.address, 1000, PIECES);
    }
    meet(peer, mine, theirs, 2);
    OK(ucp_mem_unmap(peer->context, memh));
}

/* Messages, between which the port of the first adapter goes down, until the file UNTIL exists; prints how many. They
 * are so long that each goes by several rails. */
static void fail_port(peer_t *peer, side_t *mine, side_t *theirs, int first)
{
    const char *until = getenv("UNTIL"), *control = getenv("HCACTL");
    char        command[512];
    int         i, last;

    CHECK(until != NULL && control != NULL);
    for (i = 1, last = 0; !last; i++) {
        if (i == FAILS_AT) {
            meet(peer, mine, theirs, 1);
            if (first) {
                snprintf(command, sizeof(command), "%s port_down=1", control);
                CHECK(system(command) == 0);
            }
            meet(peer, mine, theirs, 2);
        }
        if (first) {
            last       = i > FAILS_AT && access(until, F_OK) == 0;
            mine->last = last ? i : 0;
            send_tagged(peer, LONG, TAG + i);
        } else {
            receive_tagged(peer, LONG, TAG + i);
            last = theirs->last == i;
        }
    }
    if (first) {
        printf("%d\n", i - 1);
    }
}

/* Rendezvous of MESSAGES sizes by tag, one by active message, and what else is recorded. */
static void exchange(peer_t *peer, side_t *mine, side_t *theirs, int first)
{
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .address = peer->in, .length = LONG};
    char                *out = calloc(1, LONG);
    ucp_mem_h            memh;
    int                  i;

    OK(ucp_mem_map(peer->context, &map, &memh));
    share(peer, mine, memh, peer->in);
    for (i = 0; i < MESSAGES; i++) {
        first ? send_tagged(peer, 100000 + i, TAG + i) : receive_tagged(peer, LONG, TAG + i);
    }
    if (first) {
        finish(peer->worker, ucp_am_send_nbx(peer->ep, HANDLER, NULL, 0, out, LONG, &none));
    } else {
        while (!peer->arrived) {
            ucp_worker_progress(peer->worker);
        }
    }
    meet(peer, mine, theirs, 1);
    if (first) {
        put(peer, theirs, out, LONG);
    }
    meet(peer, mine, theirs, 2);
    if (!first) {
        /* The receive waits in the matcher while this process makes no progress, from the call that posts it on. */
        ucs_status_ptr_t late = ucp_tag_recv_nbx(peer->worker, peer->in, 8, AFTER, ~0ul, &none);

        usleep(LATE_MS * 1000);
        meet(peer, mine, theirs, 3);
        finish(peer->worker, late);
    } else {
        meet(peer, mine, theirs, 3);
        send_tagged(peer, 8, AFTER);
    }
    finish(peer->worker, ucp_worker_flush_nbx(peer->worker, &none));
    meet(peer, mine, theirs, 4);
    OK(ucp_mem_unmap(peer->context, memh));
    free(out);
}

static void close_worker(peer_t *peer, side_t *mine, side_t *theirs)
{
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &none);

    finish(peer->worker, request);
    meet(peer, mine, theirs, 10);
    ucp_worker_destroy(peer->worker);
    ucp_cleanup(peer->context);
    free(peer->in);
}

typedef struct {
    peer_t *peer;
    int     number, first;
} thread_t;

static void *run_thread(void *arg)
{
    thread_t *thread = arg;
    peer_t   *peer   = thread->peer;
    char     *bytes  = calloc(1, LONG);
    int       i;

    for (i = 0; i < ROUNDS; i++) {
        ucp_tag_t tag = 1000 * (thread->number + 1) + i;

        finish(peer->worker, thread->first ? ucp_tag_send_nbx(peer->ep, bytes, 50000, tag, &none)
                                           : ucp_tag_recv_nbx(peer->worker, bytes, LONG, tag, ~0ul, &none));
    }
    free(bytes);
    return NULL;
}

static void run_threads(peer_t *peer, int first)
{
    pthread_t threads[THREADS];
    thread_t  args[THREADS];
    int       i;

    for (i = 0; i < THREADS; i++) {
        args[i] = (thread_t){peer, i, first};
        CHECK(pthread_create(&threads[i], NULL, run_thread, &args[i]) == 0);
    }
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* A child that makes a worker of its own, and one that makes nothing. */
static void run_children(void)
{
    int i;

    for (i = 0; i < 2; i++) {
        pid_t child = fork();
        int   status;

        if (child == 0) {
            side_t own = {.length = 0};
            peer_t peer = {.arrived = 0};

            if (i == 0) {
                open_worker(&peer, &own, UCS_THREAD_MODE_SINGLE);
                connect_to(&peer, &own, UCP_ERR_HANDLING_MODE_NONE);
                finish(peer.worker, ucp_ep_close_nbx(peer.ep, &none));
                ucp_worker_destroy(peer.worker);
                ucp_cleanup(peer.context);
            }
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

/* Messages while files, of which the library has made all that it needs, may not grow. */
static void limit_files(peer_t *peer, int first)
{
    struct rlimit limit = {6000, 6000};
    int           i;

    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    for (i = 0; i < MESSAGES; i++) {
        first ? send_tagged(peer, 100000, TAG) : receive_tagged(peer, LONG, TAG);
    }
}

/* Messages until this process is killed. */
static void go_on(peer_t *peer, int first)
{
    for (;;) {
        first ? send_tagged(peer, 100000, TAG) : receive_tagged(peer, LONG, TAG);
    }
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int         mt   = strcmp(name, "threads") == 0, fails = strcmp(name, "failover") == 0;
    peer_t      peer = {.arrived = 0};
    side_t     *mine, *theirs;
    pid_t       child;
    int         status;

    sides = mmap(NULL, sizeof(side_t) * 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(sides != MAP_FAILED);
    child = fork();
    CHECK(child >= 0);
    mine   = &sides[child == 0];
    theirs = &sides[child != 0];
    open_worker(&peer, mine, mt ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE);
    connect_to(&peer, theirs, fails ? UCP_ERR_HANDLING_MODE_FAILOVER : UCP_ERR_HANDLING_MODE_NONE);
    if (mt) {
        run_threads(&peer, child != 0);
    } else if (fails) {
        fail_port(&peer, mine, theirs, child != 0);
    } else if (strcmp(name, "mapped") == 0 || strcmp(name, "cuda") == 0) {
        access_memory(&peer, mine, theirs, child != 0, strcmp(name, "cuda") == 0);
    } else if (strcmp(name, "lists") == 0 || strcmp(name, "mapped_lists") == 0) {
        access_lists(&peer, mine, theirs, child != 0, strcmp(name, "mapped_lists") == 0);
    } else if (strcmp(name, "killed") == 0) {
        go_on(&peer, child != 0);
    } else {
        exchange(&peer, mine, theirs, child != 0);
        if (strcmp(name, "fork") == 0 && child != 0) {
            run_children();
        } else if (strcmp(name, "limited") == 0) {
            limit_files(&peer, child != 0);
        }
    }
    close_worker(&peer, mine, theirs);
    if (child != 0) {
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        printf("done %d %d\n", getpid(), child);
    }
    return 0;
}
