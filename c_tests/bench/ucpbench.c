//! What a libucp costs between two processes of one machine: tag messages, put, get, and the start of a worker.
//!
//! usage: ucpbench [--quick]
//! Two processes on two cores talk over whatever libucp the loader finds. Standard output gets the library's path and
//! version, then one line per figure: NAME VALUE. Every figure is the median of several batches. `handoff_ns` is what
//! the machine itself needs to hand a cache line from one core to the other, before and after: virtual cores move.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { BATCHES = 15, WINDOW = 64, REGION = 1 << 20, DATA_TAG = 1, ACK_TAG = 2, LIMIT_SECONDS = 120 };

/** What both processes share besides the library under test. */
struct stage {
    _Alignas(128) _Atomic unsigned ball;
    _Alignas(128) _Atomic unsigned phase; /* how many one-sided measurements are over */
};

struct side {
    int active; /* the process that measures; the other answers */
    int socket;
    int batch_share; /* a batch does 1/batch_share of its usual iterations */
    struct stage *stage;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_mem_h memory;
    ucp_rkey_h rkey;
    unsigned char *region; /* own memory, mapped with UCP_MEM_MAP_ALLOCATE */
    uint64_t remote_region;
    unsigned char *buffer;
};

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "ucpbench: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    kill(0, SIGTERM);
    exit(1);
}

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int ascending(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;

    return (difference > 0) - (difference < 0);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return values[count / 2];
}

static void pin_to(int index)
{
    cpu_set_t allowed, one;

    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
    die("needs two processors");
}

static long resident_kib(void)
{
    FILE *statm = fopen("/proc/self/statm", "r");
    long total, resident = 0;

    if (statm == NULL || fscanf(statm, "%ld %ld", &total, &resident) != 2) {
        die("cannot read /proc/self/statm");
    }
    fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ---- waiting ---- */

static void wait_for(struct side *side, ucs_status_ptr_t request, const char *call)
{
    ucs_status_t status;

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            ucp_worker_progress(side->worker);
        }
        ucp_request_free(request);
    } else {
        status = UCS_PTR_STATUS(request);
    }
    check(status, call);
}

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static ucs_status_ptr_t send_tag(struct side *side, size_t size, ucp_tag_t tag)
{
    return ucp_tag_send_nbx(side->ep, side->buffer, size, tag, &plain);
}

static ucs_status_ptr_t receive_tag(struct side *side, size_t size, ucp_tag_t tag)
{
    return ucp_tag_recv_nbx(side->worker, side->buffer, size, tag, (ucp_tag_t)-1, &plain);
}

static void flush(struct side *side)
{
    wait_for(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
}

/** Both processes are here; the library goes on meanwhile. */
static void meet(struct side *side)
{
    wait_for(side, send_tag(side, 1, ACK_TAG), "send");
    wait_for(side, receive_tag(side, 1, ACK_TAG), "receive");
}

/* ---- what is measured: each returns the figure of one batch ---- */

static double handoff(struct side *side)
{
    enum { ROUNDS = 20000 };
    _Atomic unsigned *ball = &side->stage->ball;
    unsigned first = atomic_load(ball) & ~1u, mine = side->active ? 0 : 1;
    double begin = now();

    for (unsigned turn = first; turn < first + ROUNDS; turn++) {
        if (turn % 2 != mine) {
            while (atomic_load_explicit(ball, memory_order_acquire) == turn) {
            }
        } else {
            atomic_store_explicit(ball, turn + 1, memory_order_release);
        }
    }
    return (now() - begin) / ROUNDS * 1e9;
}

static double tag_latency(struct side *side, size_t size)
{
    int rounds = 20000 / side->batch_share;
    double begin = now();

    for (int i = 0; i < rounds; i++) {
        if (side->active) {
            wait_for(side, send_tag(side, size, DATA_TAG), "send");
        }
        wait_for(side, receive_tag(side, size, DATA_TAG), "receive");
        if (!side->active) {
            wait_for(side, send_tag(side, size, DATA_TAG), "send");
        }
    }
    return (now() - begin) / rounds / 2 * 1e6;
}

/** Messages per second: windows of sends to receives of the same number, one acknowledgement per window. */
static double tag_stream(struct side *side, size_t size)
{
    int windows = (size <= 64 ? 2000 : size <= 65536 ? 60 : 6) / side->batch_share + 1;
    ucs_status_ptr_t requests[WINDOW];
    double begin = now();

    for (int window = 0; window < windows; window++) {
        for (int i = 0; i < WINDOW; i++) {
            requests[i] = side->active ? send_tag(side, size, DATA_TAG) : receive_tag(side, size, DATA_TAG);
        }
        for (int i = 0; i < WINDOW; i++) {
            wait_for(side, requests[i], "window");
        }
        if (side->active) {
            wait_for(side, receive_tag(side, 1, ACK_TAG), "acknowledgement");
        } else {
            wait_for(side, send_tag(side, 1, ACK_TAG), "acknowledgement");
        }
    }
    return windows * (double)WINDOW / (now() - begin);
}

static double tag_rate(struct side *side, size_t size)
{
    return tag_stream(side, size) / 1e6;
}

static double tag_bandwidth(struct side *side, size_t size)
{
    return tag_stream(side, size) * (double)size / 1e6;
}

static int rma_rounds(const struct side *side, size_t size)
{
    return (size <= 64 ? 20000 : size <= 8192 ? 4000 : 100) / side->batch_share;
}

static double put(struct side *side, size_t size)
{
    int rounds = rma_rounds(side, size);
    double begin = now();

    for (int i = 0; i < rounds; i++) {
        wait_for(side, ucp_put_nbx(side->ep, side->buffer, size, side->remote_region, side->rkey, &plain), "put");
        flush(side);
    }
    return (now() - begin) / rounds * 1e6;
}

static double get(struct side *side, size_t size)
{
    int rounds = rma_rounds(side, size);
    double begin = now();

    for (int i = 0; i < rounds; i++) {
        wait_for(side, ucp_get_nbx(side->ep, side->buffer, size, side->remote_region, side->rkey, &plain), "get");
    }
    return (now() - begin) / rounds * 1e6;
}

/* ---- running the measurements ---- */

typedef double (*measurement)(struct side *, size_t);

static void report(struct side *side, const char *name, double value)
{
    if (side->active) {
        printf("%s %.4g\n", name, value);
        fflush(stdout);
    }
}

static void measure_handoff(struct side *side, const char *name)
{
    double values[BATCHES];

    for (int i = 0; i < BATCHES; i++) {
        values[i] = handoff(side);
    }
    report(side, name, median(values, BATCHES));
}

/** A measurement in which both sides take part; the first batch warms up. */
static void measure_both(struct side *side, const char *name, measurement batch, size_t size)
{
    double values[BATCHES];

    batch(side, size);
    for (int i = 0; i < BATCHES; i++) {
        meet(side);
        values[i] = batch(side, size);
    }
    report(side, name, median(values, BATCHES));
}

/** A one-sided measurement: the other process only keeps its library going until it is over. */
static void measure_alone(struct side *side, const char *name, measurement batch, size_t size)
{
    unsigned over = atomic_load(&side->stage->phase) + 1;
    double values[BATCHES];

    meet(side);
    if (!side->active) {
        while (atomic_load_explicit(&side->stage->phase, memory_order_acquire) < over) {
            ucp_worker_progress(side->worker);
        }
        return;
    }
    batch(side, size);
    for (int i = 0; i < BATCHES; i++) {
        values[i] = batch(side, size);
    }
    atomic_store_explicit(&side->stage->phase, over, memory_order_release);
    report(side, name, median(values, BATCHES));
}

/** Figures of an exchange that loses data mean nothing: a message, a put and a get, every byte of them. */
static void verify(struct side *side)
{
    unsigned over = atomic_load(&side->stage->phase) + 1;

    for (size_t i = 0; i < REGION; i++) {
        side->buffer[i] = (unsigned char)(i * 7 + (i >> 8));
    }
    if (side->active) {
        wait_for(side, ucp_put_nbx(side->ep, side->buffer, REGION, side->remote_region, side->rkey, &plain), "put");
        flush(side);
        wait_for(side, send_tag(side, REGION, DATA_TAG), "send");
        memset(side->buffer, 0, REGION);
        wait_for(side, ucp_get_nbx(side->ep, side->buffer, REGION, side->remote_region, side->rkey, &plain), "get");
        atomic_store(&side->stage->phase, over);
    } else {
        memset(side->buffer, 0, REGION);
        wait_for(side, receive_tag(side, REGION, DATA_TAG), "receive");
        while (atomic_load(&side->stage->phase) < over) {
            ucp_worker_progress(side->worker);
        }
    }
    for (size_t i = 0; i < REGION; i++) {
        unsigned char right = (unsigned char)(i * 7 + (i >> 8));

        if (side->buffer[i] != right || (!side->active && side->region[i] != right)) {
            die("wrong data at byte %zu", i);
        }
    }
}

/* ---- setting up ---- */

static void exchange(struct side *side, const void *mine, uint64_t length, void *theirs, size_t room)
{
    uint64_t their_length;

    if (write(side->socket, &length, sizeof(length)) != sizeof(length) || write(side->socket, mine, length) != (ssize_t)length ||
        recv(side->socket, &their_length, sizeof(their_length), MSG_WAITALL) != sizeof(their_length) || their_length > room ||
        recv(side->socket, theirs, their_length, MSG_WAITALL) != (ssize_t)their_length) {
        die("the other process is gone");
    }
}

/** Creates context and worker, and reports what the first worker costs. */
static void start_worker(struct side *side)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    long before;
    double begin;

    check(ucp_init(&params, NULL, &side->context), "ucp_init");
    before = resident_kib();
    begin = now();
    check(ucp_worker_create(side->context, &worker_params, &side->worker), "ucp_worker_create");
    report(side, "worker_create_us", (now() - begin) * 1e6);
    report(side, "worker_touched_kib", (double)(resident_kib() - before));
}

static void connect_sides(struct side *side)
{
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS, .length = REGION, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    char theirs[4096];
    ucp_address_t *address;
    uint64_t region;
    size_t length;
    void *key;

    check(ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    exchange(side, address, length, theirs, sizeof(theirs));
    ucp_worker_release_address(side->worker, address);
    ep.address = (ucp_address_t *)theirs;
    check(ucp_ep_create(side->worker, &ep, &side->ep), "ucp_ep_create");

    check(ucp_mem_map(side->context, &map, &side->memory), "ucp_mem_map");
    check(ucp_mem_query(side->memory, &attr), "ucp_mem_query");
    side->region = attr.address;
    memset(side->region, 0, REGION);
    region = (uint64_t)(uintptr_t)attr.address;
    exchange(side, &region, sizeof(region), &side->remote_region, sizeof(side->remote_region));
    check(ucp_rkey_pack(side->context, side->memory, &key, &length), "ucp_rkey_pack");
    exchange(side, key, length, theirs, sizeof(theirs));
    ucp_rkey_buffer_release(key);
    check(ucp_ep_rkey_unpack(side->ep, theirs, &side->rkey), "ucp_ep_rkey_unpack");
    side->buffer = malloc(REGION);
    memset(side->buffer, 1, REGION);
}

static void stop(struct side *side)
{
    meet(side);
    flush(side);
    ucp_rkey_destroy(side->rkey);
    wait_for(side, ucp_ep_close_nbx(side->ep, &plain), "ucp_ep_close_nbx");
    /* The other side's close may still need an answer from here. */
    atomic_fetch_add(&side->stage->phase, 1u << 16);
    while (atomic_load(&side->stage->phase) >> 16 < 2) {
        ucp_worker_progress(side->worker);
    }
    ucp_mem_unmap(side->context, side->memory);
    ucp_worker_destroy(side->worker);
    ucp_cleanup(side->context);
}

static void run(struct side *side)
{
    Dl_info library;

    pin_to(!side->active);
    if (side->active && dladdr((void *)ucp_worker_progress, &library)) {
        printf("library %s\nversion %s\n", realpath(library.dli_fname, NULL), ucp_get_version_string());
    }
    start_worker(side);
    measure_handoff(side, "handoff_ns");
    connect_sides(side);
    verify(side);
    measure_both(side, "tag_latency_8_us", tag_latency, 8);
    measure_both(side, "tag_rate_8_Mmsg/s", tag_rate, 8);
    measure_both(side, "tag_bandwidth_64K_MB/s", tag_bandwidth, 65536);
    measure_both(side, "tag_bandwidth_1M_MB/s", tag_bandwidth, 1 << 20);
    measure_alone(side, "put_8_us", put, 8);
    measure_alone(side, "put_8K_us", put, 8192);
    measure_alone(side, "put_1M_us", put, 1 << 20);
    measure_alone(side, "get_8_us", get, 8);
    measure_alone(side, "get_8K_us", get, 8192);
    measure_alone(side, "get_1M_us", get, 1 << 20);
    meet(side);
    measure_handoff(side, "handoff_after_ns");
    stop(side);
}

int main(int argc, char **argv)
{
    struct side side = {.batch_share = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 10 : 1};
    int sockets[2], status = 0;
    pid_t child;

    setpgid(0, 0);
    side.stage = mmap(NULL, sizeof(*side.stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (side.stage == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0 || (child = fork()) < 0) {
        die("cannot set up two processes");
    }
    alarm(LIMIT_SECONDS);
    side.active = child != 0;
    side.socket = sockets[side.active];
    close(sockets[!side.active]);
    run(&side);
    if (side.active && (waitpid(child, &status, 0) != child || status != 0)) {
        die("the other process failed");
    }
    return 0;
}
