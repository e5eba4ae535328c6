//! Message rate by threads: all threads of a process on one shared worker, or a worker for each.
//!
//! ucpbench threads tag|am|put shared|own THREADS. Messages of 8 bytes, a window of 64 for each thread. The first half
//! of the processors is the sender's, the second half the receiver's; puts come from threads on all of them.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

enum { MAX_THREADS = 64, WINDOW = 64, SIZE = 8, AM_ID = 1, CONNECT_TAG = 1 << 20, KEY_ROOM = 2048 };

enum operation { TAG, AM, PUT };

static struct {
    struct place place;
    enum operation operation;
    int threads, shared, workers; /* one worker if shared, else as many as threads */
    long messages;        /* of each thread */
    ucp_context_h context;
    ucp_worker_h worker[MAX_THREADS];
    ucp_ep_h ep[MAX_THREADS];
    ucp_mem_h memory;
    ucp_rkey_h rkey[MAX_THREADS];
    uint64_t remote;
    _Atomic long arrived; /* active messages */
    pthread_barrier_t begin;
} team;

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

/* Where threads share a processor, an idle one yields. */
static void progress(ucp_worker_h worker)
{
    if (ucp_worker_progress(worker) == 0 && team.threads > 1) {
        sched_yield();
    }
}

static void complete(ucp_worker_h worker, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "operation");
    }
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress(worker);
        }
        ucp_request_free(request);
    }
}

/* ---- the threads ---- */

static ucs_status_ptr_t send_one(int mine, long thread, int slot)
{
    static const char bytes[SIZE];
    uint64_t address = team.remote + (uint64_t)thread * 4096 + (uint64_t)slot * SIZE;

    switch (team.operation) {
    case TAG:
        return ucp_tag_send_nbx(team.ep[mine], bytes, SIZE, (ucp_tag_t)thread, &plain);
    case AM:
        return ucp_am_send_nbx(team.ep[mine], AM_ID, NULL, 0, bytes, SIZE, &plain);
    default:
        return ucp_put_nbx(team.ep[mine], bytes, SIZE, address, team.rkey[mine], &plain);
    }
}

static void *sender(void *index)
{
    long thread = (long)(intptr_t)index;
    int mine = team.workers == 1 ? 0 : (int)thread;
    ucs_status_ptr_t requests[WINDOW] = {NULL};

    pin_to(team.operation == PUT ? (int)thread : (int)(thread % ((processors() + 1) / 2)));
    pthread_barrier_wait(&team.begin);
    for (long i = 0; i < team.messages; i++) {
        int slot = (int)(i % WINDOW);

        complete(team.worker[mine], requests[slot]);
        requests[slot] = send_one(mine, thread, slot);
        if (team.operation == PUT && slot == WINDOW - 1) {
            complete(team.worker[mine], ucp_ep_flush_nbx(team.ep[mine], &plain));
        }
    }
    for (int slot = 0; slot < WINDOW; slot++) {
        complete(team.worker[mine], requests[slot]);
    }
    complete(team.worker[mine], ucp_ep_flush_nbx(team.ep[mine], &plain));
    return NULL;
}

static void receive_tags(int mine, long thread)
{
    char bytes[WINDOW][SIZE];
    ucs_status_ptr_t requests[WINDOW] = {NULL};

    for (long i = 0; i < team.messages; i++) {
        int slot = (int)(i % WINDOW);

        complete(team.worker[mine], requests[slot]);
        requests[slot] = ucp_tag_recv_nbx(team.worker[mine], bytes[slot], SIZE, (ucp_tag_t)thread, (ucp_tag_t)-1,
                                         &plain);
    }
    for (int slot = 0; slot < WINDOW; slot++) {
        complete(team.worker[mine], requests[slot]);
    }
}

static void *receiver(void *index)
{
    long thread = (long)(intptr_t)index;
    int mine = team.workers == 1 ? 0 : (int)thread, half = (processors() + 1) / 2;

    pin_to(half + (int)(thread % (processors() > 1 ? processors() - half : 1)));
    pthread_barrier_wait(&team.begin);
    if (team.operation == TAG) {
        receive_tags(mine, thread);
    } else {
        while (atomic_load_explicit(&team.arrived, memory_order_relaxed) < team.messages * team.threads) {
            progress(team.worker[mine]);
        }
    }
    return NULL;
}

static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *message)
{
    (void)argument, (void)header, (void)header_length, (void)data, (void)length, (void)message;
    atomic_fetch_add_explicit(&team.arrived, 1, memory_order_relaxed);
    return UCS_OK;
}

/* ---- setting up ---- */

static void open_workers(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AM,
                           .mt_workers_shared = team.threads > 1};
    ucp_worker_params_t worker = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = team.threads > 1 ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE,
    };
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID,
                                      .cb = on_message};

    check(ucp_init(&params, NULL, &team.context), "ucp_init");
    for (int i = 0; i < team.workers; i++) {
        check(ucp_worker_create(team.context, &worker, &team.worker[i]), "ucp_worker_create");
        check(ucp_worker_set_am_recv_handler(team.worker[i], &handler), "ucp_worker_set_am_recv_handler");
    }
}

static void open_endpoints(void)
{
    char theirs[MAIL_ROOM];
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)theirs};

    for (int i = 0; i < team.workers; i++) {
        ucp_address_t *address;
        size_t length;

        check(ucp_worker_get_address(team.worker[i], &address, &length), "ucp_worker_get_address");
        exchange(team.place, address, length, theirs, sizeof(theirs));
        ucp_worker_release_address(team.worker[i], address);
        check(ucp_ep_create(team.worker[i], &ep, &team.ep[i]), "ucp_ep_create");
    }
}

static void open_memory(void)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = 1 << 20,
                                   .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    char theirs[KEY_ROOM];
    uint64_t address;
    size_t length;
    void *key;

    check(ucp_mem_map(team.context, &params, &team.memory), "ucp_mem_map");
    check(ucp_mem_query(team.memory, &attr), "ucp_mem_query");
    memset(attr.address, 0, params.length);
    address = (uint64_t)(uintptr_t)attr.address;
    exchange(team.place, &address, sizeof(address), &team.remote, sizeof(team.remote));
    check(ucp_rkey_pack(team.context, team.memory, &key, &length), "ucp_rkey_pack");
    exchange(team.place, key, length, theirs, sizeof(theirs));
    ucp_rkey_buffer_release(key);
    for (int i = 0; i < team.workers; i++) {
        check(ucp_ep_rkey_unpack(team.ep[i], theirs, &team.rkey[i]), "ucp_ep_rkey_unpack");
    }
}

static void progress_all(void *unused)
{
    (void)unused;
    for (int i = 0; i < team.workers; i++) {
        ucp_worker_progress(team.worker[i]);
    }
}

/** A message in each direction on every endpoint, so that connecting is not measured. */
static void connect_all(void)
{
    char out[SIZE] = {0}, in[SIZE];

    for (int i = 0; i < team.workers; i++) {
        ucs_status_ptr_t requests[] = {
            ucp_tag_send_nbx(team.ep[i], out, SIZE, CONNECT_TAG, &plain),
            ucp_tag_recv_nbx(team.worker[i], in, SIZE, CONNECT_TAG, (ucp_tag_t)-1, &plain),
        };

        for (int k = 0; k < 2; k++) {
            while (UCS_PTR_IS_PTR(requests[k]) && ucp_request_check_status(requests[k]) == UCS_INPROGRESS) {
                progress_all(NULL);
            }
            complete(team.worker[i], requests[k]);
        }
    }
    meet(team.place, progress_all, NULL);
}

/** Starts this side's threads and joins them; returns the seconds between. The target of puts has none. */
static double run_threads_of_side(void)
{
    pthread_t threads[MAX_THREADS];
    double begin;

    if (pthread_barrier_init(&team.begin, NULL, (unsigned)team.threads + 1) != 0) {
        die("pthread_barrier_init");
    }
    for (long i = 0; i < team.threads; i++) {
        if (pthread_create(&threads[i], NULL, team.place.index == 0 ? sender : receiver, (void *)(intptr_t)i) != 0) {
            die("pthread_create");
        }
    }
    meet(team.place, NULL, NULL);
    begin = now();
    pthread_barrier_wait(&team.begin);
    for (int i = 0; i < team.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    return now() - begin;
}

static void nap(void *unused)
{
    struct timespec millisecond = {.tv_nsec = 1000000};

    (void)unused;
    nanosleep(&millisecond, NULL);
}

static void play(struct place place, void *unused)
{
    static const char *operations[] = {"tag", "am", "put"};
    int receives = place.index == 1 && team.operation != PUT;
    double seconds = 0;
    char name[64];

    (void)unused;
    team.place = place;
    open_workers();
    open_endpoints();
    open_memory();
    connect_all();
    if (place.index == 0 || receives) {
        seconds = run_threads_of_side();
    } else {
        meet(place, NULL, NULL); /* the target's processor is for the senders */
    }
    /* The last side to finish measures the time: the receiver, or the origin of puts. */
    if (place.index == 1) {
        memcpy(place.stage->mail[1].bytes, &seconds, sizeof(seconds));
    }
    meet(place, place.index == 1 && !receives ? nap : progress_all, NULL);
    if (place.index == 0) {
        if (team.operation != PUT) {
            memcpy(&seconds, place.stage->mail[1].bytes, sizeof(seconds));
        }
        snprintf(name, sizeof(name), "rate_%s_%s", operations[team.operation], team.shared ? "shared" : "own");
        figure(name, team.threads, (double)(team.messages * team.threads) / seconds / 1e6, "M/s");
    }
    meet(place, progress_all, NULL);
}

int run_threads(const struct effort *effort, int argc, char **argv)
{
    if (argc < 4 || (team.threads = atoi(argv[3])) < 1 || team.threads > MAX_THREADS) {
        die("usage: threads tag|am|put shared|own THREADS (at most %d)", MAX_THREADS);
    }
    team.operation = strcmp(argv[1], "tag") == 0 ? TAG : strcmp(argv[1], "am") == 0 ? AM : PUT;
    team.shared = strcmp(argv[2], "shared") == 0;
    team.workers = team.shared ? 1 : team.threads;
    team.messages = (team.operation == PUT ? 4000000 : 1000000) / (effort->quick ? 20 : 1) / team.threads;
    return start_pair(play, NULL);
}
