//! Initial costs: time, memory and address of context and worker, and of 1 to thousands of endpoints.
//!
//! ucpbench startup; ucpbench endpoints NUMBER PEERS: endpoints of one worker to PEERS workers of another process.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { MAX_PEERS = 1000, ADDRESS_ROOM = 4096, MILLION = 1000000 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

static ucp_context_h open_context(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM};
    ucp_context_h context;

    check(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static ucp_worker_h open_worker(ucp_context_h context)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_worker_h worker;

    check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

static long descriptors(void)
{
    long count = 0;
    char path[64];

    for (int i = 0; i < 4096; i++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
        count += access(path, F_OK) == 0;
    }
    return count;
}

/* ---- context and worker ---- */

static void startup(void)
{
    long before = resident_kib(), open_before = descriptors(), between;
    double begin = now(), ready, second;
    ucp_context_h context = open_context();
    ucp_worker_h worker, other;
    ucp_address_t *address;
    size_t length;

    ready = now();
    figure("context_create", -1, (ready - begin) * MILLION, "us");
    between = resident_kib();
    ready = now();
    worker = open_worker(context);
    figure("worker_create", -1, (now() - ready) * MILLION, "us");
    figure("worker_memory", -1, (double)(resident_kib() - between), "KiB");
    figure("process_memory", -1, (double)(resident_kib() - before), "KiB");
    figure("address_space", -1, (double)peak_address_space_kib() / 1024, "MiB");
    figure("descriptors", -1, (double)(descriptors() - open_before), "");
    check(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    figure("address_size", -1, (double)length, "B");
    ucp_worker_release_address(worker, address);
    between = resident_kib();
    second = now();
    other = open_worker(context);
    figure("second_worker_create", -1, (now() - second) * MILLION, "us");
    figure("second_worker_memory", -1, (double)(resident_kib() - between), "KiB");
    ucp_worker_destroy(other);
    second = now();
    ucp_worker_destroy(worker);
    figure("worker_destroy", -1, (now() - second) * MILLION, "us");
    ucp_cleanup(context);
}

/* ---- endpoints ---- */

struct request {
    int number, peers;
};

/** Bytes allocated by malloc in this process. */
static double allocated(void)
{
    struct mallinfo2 info = mallinfo2();

    return (double)(info.uordblks + info.hblkhd);
}

struct workers {
    int peers;
    ucp_worker_h worker[MAX_PEERS];
};

static void progress_workers(void *argument)
{
    struct workers *workers = argument;

    for (int i = 0; i < workers->peers; i++) {
        ucp_worker_progress(workers->worker[i]);
    }
}

/** The other process: many workers, which progress until the barrier. */
static void be_peers(struct place place, int peers)
{
    static struct workers workers;
    ucp_context_h context = open_context();

    workers.peers = peers;
    for (int i = 0; i < peers; i++) {
        ucp_address_t *address;
        size_t length;
        char nothing;

        workers.worker[i] = open_worker(context);
        check(ucp_worker_get_address(workers.worker[i], &address, &length), "ucp_worker_get_address");
        exchange(place, address, length, &nothing, sizeof(nothing));
        ucp_worker_release_address(workers.worker[i], address);
    }
    meet(place, progress_workers, &workers);
    /* Unexpected messages are left: the process ends here. */
    meet(place, NULL, NULL);
}

static void send_one_each(ucp_worker_h worker, ucp_ep_h *ep, int number)
{
    static const char bytes[8];
    ucs_status_ptr_t request;

    for (int i = 0; i <= number; i++) {
        request = i < number ? ucp_tag_send_nbx(ep[i], bytes, sizeof(bytes), 1, &plain)
                             : ucp_worker_flush_nbx(worker, &plain);
        if (UCS_PTR_IS_ERR(request)) {
            check(UCS_PTR_STATUS(request), "send or flush");
        }
        while (request != NULL && ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        if (request != NULL) {
            ucp_request_free(request);
        }
    }
}

static void report_memory(const char *when, int number, long resident, double heap)
{
    char name[64];

    snprintf(name, sizeof(name), "endpoint_%s_resident", when);
    figure(name, number, (double)(resident_kib() - resident) * 1024 / number, "B");
    snprintf(name, sizeof(name), "endpoint_%s_heap", when);
    figure(name, number, (allocated() - heap) / number, "B");
}

static void create_endpoints(struct place place, int number, int peers)
{
    static unsigned char addresses[MAX_PEERS][ADDRESS_ROOM];
    ucp_ep_h *ep = calloc((size_t)number, sizeof(*ep));
    ucp_worker_h worker = open_worker(open_context());
    long resident;
    double heap, begin;

    memset(ep, 0xff, (size_t)number * sizeof(*ep)); /* its pages are not the endpoints' */
    for (int i = 0; i < peers; i++) {
        exchange(place, "", 1, addresses[i], ADDRESS_ROOM);
    }
    resident = resident_kib();
    heap = allocated();
    begin = now();
    for (int i = 0; i < number; i++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (ucp_address_t *)addresses[i % peers]};

        check(ucp_ep_create(worker, &params, &ep[i]), "ucp_ep_create");
    }
    figure("endpoints_create", number, (now() - begin) * 1e3, "ms");
    report_memory("idle", number, resident, heap);
    begin = now();
    send_one_each(worker, ep, number);
    figure("endpoints_first_send", number, (now() - begin) * 1e3, "ms");
    report_memory("used", number, resident, heap);
    meet(place, NULL, NULL);
    meet(place, NULL, NULL);
}

static void play(struct place place, void *argument)
{
    struct request *request = argument;

    if (place.index == 0) {
        create_endpoints(place, request->number, request->peers);
    } else {
        be_peers(place, request->peers);
    }
}

int run_startup(const struct effort *effort, int argc, char **argv)
{
    struct rlimit descriptors = {65536, 65536};
    struct request request;

    (void)effort;
    if (strcmp(argv[0], "startup") == 0) {
        startup();
        return 0;
    }
    if (argc < 3 || (request.number = atoi(argv[1])) < 1 || (request.peers = atoi(argv[2])) < 1 ||
        request.peers > MAX_PEERS) {
        die("usage: endpoints NUMBER PEERS (at most %d)", MAX_PEERS);
    }
    setrlimit(RLIMIT_NOFILE, &descriptors); /* some libraries need one for each peer; a failure is ignored */
    return start_pair(play, &request);
}
