//! Soak test: processes of several threads send each other tagged and active messages, put, get and add, at random and
//! verified, for any time.
//!
//! usage: soak [-s SECONDS] [-p PROCESSES] [-t THREADS] [-r SEED] [-m LARGEST MESSAGE]
//! Every process has one worker, in UCS_THREAD_MODE_MULTI if it has several threads. The last line of output is the
//! number of operations, or the first error. Only the public API: it runs on any UCX.
#define _GNU_SOURCE
#include "soak.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *kind_names[] = {"tagged", "active", "put", "get", "add"};

static unsigned  seed    = 1;
static double    seconds = 10, stop_at;
static ucp_mem_h memory;

/** Barrier of this thread of all processes. */
static void meet(int where)
{
    atomic_fetch_add(&shared->arrived[where], 1);
    UNTIL(atomic_load(&shared->arrived[where]) >= processes, "waiting for the other processes");
}

static void open_worker(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                  .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                                                UCP_FEATURE_AMO64,
                                  .mt_workers_shared = threads > 1};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = threads > 1 ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID, .cb = on_active};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                              UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
                                .length = window_size()};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_address_t *address;
    void *key;

    check_status(ucp_init(&params, NULL, &context), "ucp_init");
    check_status(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    check_status(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    /* Memory allocated by the library in one process, by the program in the next. */
    if (me % 2 == 0) {
        map.flags = UCP_MEM_MAP_ALLOCATE;
    } else {
        map.address = aligned_alloc(4096, (map.length + 4095) / 4096 * 4096);
    }
    check_status(ucp_mem_map(context, &map, &memory), "ucp_mem_map");
    check_status(ucp_mem_query(memory, &attr), "ucp_mem_query");
    window = attr.address;
    memset(window, 0, map.length);
    shared->process[me].window = (uintptr_t)window;
    check_status(ucp_worker_get_address(worker, &address, &shared->process[me].address_length), "address");
    check_status(ucp_rkey_pack(context, memory, &key, &shared->process[me].key_length), "key");
    CHECK(shared->process[me].address_length <= BLOB && shared->process[me].key_length <= BLOB,
          "a large address or key");
    memcpy(shared->process[me].address, address, shared->process[me].address_length);
    memcpy(shared->process[me].key, key, shared->process[me].key_length);
    ucp_worker_release_address(worker, address);
    ucp_rkey_buffer_release(key);
}

static void connect_all(void)
{
    for (int p = 0; p < processes; p++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (const ucp_address_t *)shared->process[p].address};

        check_status(ucp_ep_create(worker, &params, &endpoints[p]), "ucp_ep_create");
        check_status(ucp_ep_rkey_unpack(endpoints[p], shared->process[p].key, &keys[p]), "ucp_ep_rkey_unpack");
    }
}

static void *run_thread(void *arg)
{
    thread_t *t = arg;

    while (now() < stop_at) {
        int to = (int)(draw(t) % (unsigned)processes);

        switch (draw(t) % 8) {
        case 0:
            put_and_get(t, to);
            break;
        case 1:
            add(t, to);
            break;
        case 2:
        case 3:
            send_active(t, to);
            break;
        default:
            send_tagged(t, to);
        }
        look_at_receives(t);
        progress();
    }
    for (int i = 0; i < IN_FLIGHT; i++, t->sends++) {
        send_buffer(t);
    }
    /* The others may still wait for this thread to receive. */
    atomic_fetch_add(&shared->drained, 1);
    double since = now();
    while (atomic_load(&shared->drained) < processes * threads) {
        look_at_receives(t);
        progress();
        CHECK(now() - since < STUCK_SECONDS, "stuck: waiting for the other threads");
    }
    return NULL;
}

static void start_thread(thread_t *t, int number)
{
    t->number = number;
    t->random = seed * 1000003ull + (unsigned)(me * MAX_THREADS + number);
    t->scratch = malloc(SLOT + 1);
    for (int i = 0; i < RECEIVES; i++) {
        t->receive[i].buffer = malloc(largest);
        post_receive(t, (unsigned)i);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        t->send[i].buffer = malloc(largest);
    }
}

static long sent_to_me(int thread)
{
    long sum = 0;

    for (int p = 0; p < processes; p++) {
        sum += thread < 0 ? atomic_load(&shared->sent_active[p][me]) : atomic_load(&shared->sent[p][me][thread]);
    }
    return sum;
}

/** All messages have arrived, no more, and all sums are right. */
static void settle(thread_t *all)
{
    for (int i = 0; i < threads; i++) {
        double since = now();

        while (all[i].received < sent_to_me(i)) {
            look_at_receives(&all[i]);
            progress();
            CHECK(now() - since < STUCK_SECONDS, "%ld of %ld tagged messages arrived", all[i].received, sent_to_me(i));
        }
    }
    UNTIL(atomic_load(&active_received) >= sent_to_me(-1) && atomic_load(&active_open) == 0,
          "active messages do not come");
    meet(2);
    for (int i = 0; i < threads; i++) {
        look_at_receives(&all[i]);
        CHECK(all[i].received == sent_to_me(i), "%ld tagged messages arrived, %ld were sent", all[i].received,
              sent_to_me(i));
    }
    CHECK(atomic_load(&active_received) == sent_to_me(-1), "too many active messages arrived");
    check_counters();
}

static void close_all(thread_t *all)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (int i = 0; i < threads; i++) {
        for (int r = 0; r < RECEIVES; r++) {
            ucp_request_cancel(worker, all[i].receive[r].request);
            CHECK(wait_for(all[i].receive[r].request, "cancelled receive") == UCS_ERR_CANCELED,
                  "a receive was not cancelled");
            free(all[i].receive[r].buffer);
        }
        for (int s = 0; s < IN_FLIGHT; s++) {
            free(all[i].send[s].buffer);
        }
        free(all[i].scratch);
    }
    for (int p = 0; p < processes; p++) {
        ucp_rkey_destroy(keys[p]);
        check_status(wait_for(ucp_ep_close_nbx(endpoints[p], &param), "close"), "close");
    }
    meet(3);
    check_status(ucp_mem_unmap(context, memory), "ucp_mem_unmap");
    if (me % 2 == 1) {
        free(window);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void run_process(void)
{
    static thread_t all[MAX_THREADS];
    pthread_t ids[MAX_THREADS];

    open_worker();
    meet(0);
    connect_all();
    for (int i = 0; i < threads; i++) {
        start_thread(&all[i], i);
    }
    meet(4);
    stop_at = now() + seconds;
    for (int i = 1; i < threads; i++) {
        CHECK(pthread_create(&ids[i], NULL, run_thread, &all[i]) == 0, "no thread");
    }
    run_thread(&all[0]);
    for (int i = 1; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    settle(all);
    close_all(all);
    exit(0);
}

static void report(double after)
{
    printf("[%4.0f s]", after);
    for (int k = 0; k < KINDS; k++) {
        printf(" %s %ld", kind_names[k], atomic_load(&shared->done[k]));
    }
    printf(", %ld MB\n", atomic_load(&shared->bytes) / 1000000);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pid_t children[MAX_PROCESSES];
    int option, left, bad = 0;
    double began = now(), reported = began;

    while ((option = getopt(argc, argv, "s:p:t:r:m:")) != -1) {
        switch (option) {
        case 's': seconds = atof(optarg); break;
        case 'p': processes = atoi(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'r': seed = (unsigned)atoi(optarg); break;
        case 'm': largest = (size_t)atol(optarg); break;
        default:
            fprintf(stderr, "usage: soak [-s seconds] [-p processes] [-t threads] [-r seed] [-m largest]\n");
            return 2;
        }
    }
    if (processes < 1 || processes > MAX_PROCESSES || threads < 1 || threads > MAX_THREADS ||
        largest < 2 * sizeof(message_t)) {
        fprintf(stderr, "soak: at most %d processes of %d threads, messages of %zu bytes and more\n", MAX_PROCESSES,
                MAX_THREADS, 2 * sizeof(message_t));
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    for (me = 0; me < processes; me++) {
        children[me] = fork();
        if (children[me] == 0) {
            run_process();
        }
    }
    for (left = processes; left > 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);

        if (ended <= 0) {
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            if (now() - reported >= 10) {
                reported = now();
                report(reported - began);
            }
            continue;
        }
        left--;
        if (status != 0) {
            bad = 1;
            atomic_store(&shared->failed, 1);
            if (WIFSIGNALED(status)) {
                fprintf(stderr, "FAILED: process %d was ended by signal %d\n", (int)ended, WTERMSIG(status));
            }
        }
    }
    report(now() - began);
    printf("%s: %d processes of %d threads, seed %u\n", bad ? "FAILED" : "fine", processes, threads, seed);
    (void)children;
    return bad;
}
