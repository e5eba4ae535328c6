/*
 * As many threads as a node of Fugaku has cores, each with a worker and a queue of its own, on two nodes: all
 * communicate at once, by tags, active messages, puts, gets and atomics, each with two workers of the other node. The
 * received data is right, there are as many queues as workers, and all of them are freed.
 */
#define _GNU_SOURCE
#include "check.h"
#include "wire.h"

#include "../../pattern.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CORES = 48, WAYS = 2, ROUNDS = 4, SECONDS = 90, SLOT = 40960, AM_ID = 5 };

/* The longest uses another protocol than the shorter ones. */
static const size_t sizes[] = {1, 8, 32, 33, 200, 5000, SLOT};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), EAGER_SIZES = SIZES - 1 };

typedef struct {
    size_t  length;
    uint8_t bytes[4096];
} blob_t;

/* Shared by both processes. */
typedef struct {
    blob_t            address[2][CORES];
    blob_t            key[2];
    uint64_t          memory[2];
    atomic_int        talking; /* threads that still need progress of others */
    pthread_barrier_t all;     /* both processes' first threads */
} shared_t;

/* Memory exposed by a node: a counter of all operations on it, and a slot for each worker that writes there. */
typedef struct {
    uint64_t done;
    uint8_t  slots[CORES][WAYS][ROUNDS][SLOT];
} exposed_t;

typedef struct {
    int          number;
    ucp_worker_h worker;
    ucp_ep_h     ep[WAYS];
    ucp_rkey_h   rkey[WAYS];
    unsigned     messages; /* active messages received */
    const char  *wrong;    /* NULL: nothing */
    pthread_t    thread;
} core_t;

static shared_t     *shared;
static exposed_t    *exposed;
static ucp_context_h context;
static core_t        core[CORES];
static int           here; /* node 0 or 1 */

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Data that worker `from` of node `node` sends by way `way`; the last two bits are the round's. */
static unsigned seed_of(int node, int from, int way, unsigned round)
{
    return (((unsigned)node * CORES + (unsigned)from) * WAYS + (unsigned)way) * ROUNDS + round;
}

static size_t size_of(int from, unsigned round, int count)
{
    return sizes[((unsigned)from + round) % (unsigned)count];
}

/* The worker that `from` sends to by a way, and the one that sends to `to`. */
static int reached(int from, int way)
{
    return (from + way) % CORES;
}

static int reaching(int to, int way)
{
    return (to + CORES - way) % CORES;
}

static void fail_worker(core_t *self, const char *what)
{
    if (self->wrong == NULL) {
        self->wrong = what;
    }
}

static void expect(core_t *self, int fine, const char *what)
{
    if (!fine) {
        fail_worker(self, what);
    }
}

/* More threads than cores: an idle thread yields. */
static void progress(core_t *self)
{
    if (ucp_worker_progress(self->worker) == 0) {
        sched_yield();
    }
}

static void finish(core_t *self, ucs_status_ptr_t request, const char *what)
{
    time_t       end    = time(NULL) + SECONDS;
    ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_STATUS(request);

    while (status == UCS_INPROGRESS && time(NULL) < end && self->wrong == NULL) {
        progress(self);
        status = ucp_request_check_status(request);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    expect(self, status == UCS_OK, what);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    core_t  *self = arg;
    unsigned seed = 0;

    if (header_length != sizeof(seed) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        fail_worker(self, "an active message of another kind");
        return UCS_OK;
    }
    memcpy(&seed, header, sizeof(seed));
    expect(self, first_wrong(data, length, seed) == length, "an active message's bytes");
    expect(self, (int)(seed / (WAYS * ROUNDS) / CORES) == !here, "an active message from an unknown sender");
    self->messages++;
    return UCS_OK;
}

static uint64_t slot_address(int from, int way, unsigned round)
{
    exposed_t *there = (exposed_t *)(uintptr_t)shared->memory[!here];

    return (uintptr_t)there->slots[reached(from, way)][way][round];
}

/* Put, counted, flushed, read back; then the message that announces it. */
static void say(core_t *self, int way, unsigned round, uint8_t *data, uint8_t *again)
{
    unsigned            seed  = seed_of(here, self->number, way, round);
    size_t              size  = size_of(self->number, round, SIZES);
    size_t              eager = size_of(self->number, round, EAGER_SIZES);
    uint64_t            slot  = slot_address(self->number, way, round), one = 1;
    ucp_ep_h            ep    = self->ep[way];
    ucp_rkey_h          rkey  = self->rkey[way];
    ucp_request_param_t word  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    fill(data, SLOT, seed);
    finish(self, ucp_put_nbx(ep, data, size, slot, rkey, &plain), "a put");
    finish(self, ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, shared->memory[!here], rkey, &word), "an atomic");
    finish(self, ucp_ep_flush_nbx(ep, &plain), "a flush");
    memset(again, 0, size);
    finish(self, ucp_get_nbx(ep, again, size, slot, rkey, &plain), "a get");
    expect(self, memcmp(data, again, size) == 0, "what was read back");
    finish(self, ucp_am_send_nbx(ep, AM_ID, &seed, sizeof(seed), data, eager, &plain), "an active message");
    finish(self, ucp_tag_send_nbx(ep, data, size, round * WAYS + (unsigned)way, &plain), "a tag send");
}

/* Checks the data that the two peers have sent and written to this worker. */
static void check_received(core_t *self, int way, unsigned round, const uint8_t *data)
{
    int            from = reaching(self->number, way);
    unsigned       seed = seed_of(!here, from, way, round);
    size_t         size = size_of(from, round, SIZES);
    const uint8_t *slot = exposed->slots[self->number][way][round];

    expect(self, first_wrong(data, size, seed) == size, "a tag message's bytes");
    expect(self, first_wrong(slot, size, seed) == size, "a put's bytes");
}

static void round_of(core_t *self, unsigned round, uint8_t *buffers)
{
    uint8_t         *came[WAYS] = {buffers, buffers + SLOT}, *data = buffers + 2 * SLOT, *again = buffers + 3 * SLOT;
    ucs_status_ptr_t receives[WAYS];

    for (int way = 0; way < WAYS; way++) {
        receives[way] =
            ucp_tag_recv_nbx(self->worker, came[way], SLOT, round * WAYS + (unsigned)way, UINT64_MAX, &plain);
    }
    for (int way = 0; way < WAYS; way++) {
        say(self, way, round, data, again);
    }
    for (int way = 0; way < WAYS; way++) {
        finish(self, receives[way], "a tag receive");
        check_received(self, way, round, came[way]);
    }
}

static void *talk(void *arg)
{
    core_t  *self    = arg;
    uint8_t *buffers = malloc(4 * SLOT);
    time_t   end     = time(NULL) + SECONDS;

    for (unsigned round = 0; round < ROUNDS && self->wrong == NULL; round++) {
        round_of(self, round, buffers);
    }
    while (self->messages < WAYS * ROUNDS && time(NULL) < end && self->wrong == NULL) {
        progress(self);
    }
    expect(self, self->messages == WAYS * ROUNDS, "an active message that did not come");
    for (int way = 0; way < WAYS; way++) {
        finish(self, ucp_ep_flush_nbx(self->ep[way], &plain), "the last flush");
    }
    atomic_fetch_sub(&shared->talking, 1);
    while (atomic_load(&shared->talking) > 0 && time(NULL) < end) {
        progress(self);
    }
    free(buffers);
    return NULL;
}

static void worker_open(core_t *self, int number)
{
    ucp_worker_params_t params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM_ID,
        .cb         = on_message,
        .arg        = self,
    };
    ucp_address_t *address;
    blob_t        *out = &shared->address[here][number];

    memset(self, 0, sizeof(*self));
    self->number = number;
    WANT(UCS_OK, ucp_worker_create(context, &params, &self->worker));
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(self->worker, &handler));
    WANT(UCS_OK, ucp_worker_get_address(self->worker, &address, &out->length));
    memcpy(out->bytes, address, out->length);
    ucp_worker_release_address(self->worker, address);
}

static ucp_mem_h expose(void)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .length     = sizeof(*exposed)};
    ucp_mem_h            memh   = NULL;
    blob_t              *out    = &shared->key[here];
    void                *key;

    exposed        = mmap(NULL, sizeof(*exposed), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    params.address = exposed;
    WANT(UCS_OK, ucp_mem_map(context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &key, &out->length));
    memcpy(out->bytes, key, out->length);
    ucp_rkey_buffer_release(key);
    shared->memory[here] = (uintptr_t)exposed;
    return memh;
}

static void connect_all(core_t *self)
{
    for (int way = 0; way < WAYS; way++) {
        const blob_t   *to     = &shared->address[!here][reached(self->number, way)];
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address    = (const ucp_address_t *)to->bytes};
        WANT(UCS_OK, ucp_ep_create(self->worker, &params, &self->ep[way]));
        WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep[way], shared->key[!here].bytes, &self->rkey[way]));
    }
}

static void context_open(void)
{
    ucp_params_t params = {.field_mask        = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features          = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64,
                           .mt_workers_shared = 1};

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
}

static void talk_all(void)
{
    for (int i = 0; i < CORES; i++) {
        connect_all(&core[i]);
    }
    for (int i = 0; i < CORES; i++) {
        pthread_create(&core[i].thread, NULL, talk, &core[i]);
    }
    for (int i = 0; i < CORES; i++) {
        pthread_join(core[i].thread, NULL);
        check(__FILE__, __LINE__, "a worker", core[i].wrong == NULL, core[i].wrong);
    }
    pthread_barrier_wait(&shared->all); /* nothing is in flight any more */
    WANT_TRUE(exposed->done == CORES * WAYS * ROUNDS);
}

static void worker_close(core_t *self)
{
    for (int way = 0; way < WAYS; way++) {
        ucp_rkey_destroy(self->rkey[way]);
    }
    ucp_worker_destroy(self->worker);
}

static void node(int number)
{
    here = number;
    be_node(number);
    context_open();
    for (int i = 0; i < CORES; i++) {
        worker_open(&core[i], i);
    }
    ucp_mem_h memh = expose();
    pthread_barrier_wait(&shared->all);
    if (here == 0) {
        WANT_TRUE(counter("vcqs") == 2 * CORES);
        WANT_TRUE(counter("cqs") == 2 * CORES); /* no queue is shared */
    }
    talk_all();
    if (here == 0) {
        WANT_TRUE(counter("errors") == 0);
        WANT_TRUE(counter("overflows") == 0);
    }
    pthread_barrier_wait(&shared->all); /* from now on workers are destroyed */
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    for (int i = 0; i < CORES; i++) {
        worker_close(&core[i]);
    }
    ucp_cleanup(context);
}

/* `with_queues`: registrations that were released with their queues, because those were freed first. */
static void nothing_is_left(unsigned long with_queues)
{
    WANT_TRUE(counter("vcqs") == 0);
    WANT_TRUE(counter("cqs") == 0);
    WANT_TRUE(counter("registrations") == counter("deregistrations") + with_queues);
}

static void all_at_once(void)
{
    pthread_barrierattr_t both;
    int                   status;

    alarm(SECONDS);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_init(&both);
    pthread_barrierattr_setpshared(&both, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->all, &both, 2);
    atomic_store(&shared->talking, 2 * CORES);
    pid_t other = fork();
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        node(1);
        _exit(check_failed());
    }
    node(0);
    waitpid(other, &status, 0);
    WANT_TRUE(status == 0);
    nothing_is_left(0);
}

/* --- created and destroyed --- */

enum { PAIRS = 3, TIMES = 30 };

static void one_message(core_t *from, core_t *to)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address    = (const ucp_address_t *)shared->address[here][to->number].bytes};
    char            data[200], came[200];

    WANT(UCS_OK, ucp_ep_create(from->worker, &params, &from->ep[0]));
    fill(data, sizeof(data), (unsigned)from->number);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(to->worker, came, sizeof(came), 0, 0, &plain);
    ucs_status_ptr_t send    = ucp_tag_send_nbx(from->ep[0], data, sizeof(data), 0, &plain);
    for (time_t end = time(NULL) + 10; ucp_request_check_status(receive) == UCS_INPROGRESS && time(NULL) < end;) {
        ucp_worker_progress(from->worker);
        ucp_worker_progress(to->worker);
    }
    finish(from, send, "a send");
    finish(to, receive, "a receive");
    WANT_TRUE(from->wrong == NULL && to->wrong == NULL);
    WANT_TRUE(memcmp(data, came, sizeof(data)) == 0);
}

static void made_once(unsigned time)
{
    context_open();
    for (int i = 0; i < 2 * PAIRS; i++) {
        worker_open(&core[i], i);
    }
    ucp_mem_h memh = expose();
    for (int i = 0; i < PAIRS; i++) {
        one_message(&core[i], &core[PAIRS + i]);
    }
    WANT_TRUE(counter("vcqs") == 2 * PAIRS);
    /* Memory is released before the workers, or after them. */
    if (time % 2 == 0) {
        WANT(UCS_OK, ucp_mem_unmap(context, memh));
    }
    for (unsigned i = 0; i < 2 * PAIRS; i++) {
        ucp_worker_destroy(core[(i + time) % (2 * PAIRS)].worker);
    }
    if (time % 2 == 1) {
        WANT(UCS_OK, ucp_mem_unmap(context, memh));
    }
    munmap(exposed, sizeof(*exposed));
    ucp_cleanup(context);
    WANT_TRUE(counter("vcqs") == 0);
}

static void created_and_destroyed(void)
{
    be_node(0);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned time = 0; time < TIMES; time++) {
        made_once(time);
    }
    nothing_is_left(TIMES / 2 * 2 * PAIRS);
}

static const case_t cases[] = {
    {"cores: all communicate at once", all_at_once},
    {"cores: created and destroyed", created_and_destroyed},
};

CHECK_MAIN(cases)
