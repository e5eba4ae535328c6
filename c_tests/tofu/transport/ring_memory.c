/*
 * A worker with many senders of short messages and of messages longer than their rings: all of them arrive, and their
 * rings together take the memory of the rule (UCX_TOFU_RING_MEMORY=16M: 4 of 64 KiB, 109 of 16, the others of 4), and
 * not 64 KiB each, which would be 38 MB.
 */
#include "check.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 3, WORKERS = 200, ALL = NODES * WORKERS, LONG = 20000, SECONDS = 100, MAX_KB = 10 << 10 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static ucp_context_h start(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    return context;
}

/* Memory that is shared with the interconnect, KiB. */
static long shared_kb(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char  line[256];
    long  kb = -1;

    while (fgets(line, sizeof(line), status) != NULL) {
        sscanf(line, "RssShmem: %ld", &kb);
    }
    fclose(status);
    return kb;
}

static int is_done(ucs_status_ptr_t request)
{
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
}

static void end(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        WANT(UCS_OK, ucp_request_check_status(request));
        ucp_request_free(request);
    } else {
        WANT(UCS_OK, UCS_PTR_STATUS(request));
    }
}

/* A node: each of its workers sends two messages. */
static void send_messages(int node, const void *address)
{
    static char           data[LONG];
    static ucp_worker_h   workers[WORKERS];
    static ucs_status_ptr_t requests[WORKERS][3];
    ucp_worker_params_t   worker_params = {.field_mask = 0};
    ucp_ep_params_t       params        = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_context_h         context;
    time_t                until = time(NULL) + SECONDS;
    int                   left  = WORKERS;

    be_node(node);
    context = start();
    for (int i = 0; i < LONG; i++) {
        data[i] = i % 127;
    }
    for (int i = 0; i < WORKERS; i++) {
        uint64_t number = (node - 1) * WORKERS + i;
        ucp_ep_h ep;

        WANT(UCS_OK, ucp_worker_create(context, &worker_params, &workers[i]));
        WANT(UCS_OK, ucp_ep_create(workers[i], &params, &ep));
        requests[i][0] = ucp_tag_send_nbx(ep, data, 8, number, &none);
        requests[i][1] = ucp_tag_send_nbx(ep, data, LONG, ALL + number, &none);
        requests[i][2] = ucp_ep_flush_nbx(ep, &none);
    }
    while (left > 0 && time(NULL) < until) {
        left = 0;
        for (int i = 0; i < WORKERS; i++) {
            ucp_worker_progress(workers[i]);
            left += !is_done(requests[i][0]) || !is_done(requests[i][1]) || !is_done(requests[i][2]);
        }
    }
    WANT_TRUE(left == 0);
    for (int i = 0; i < WORKERS; i++) {
        for (int j = 0; j < 3; j++) {
            end(requests[i][j]);
        }
        ucp_worker_destroy(workers[i]);
    }
    ucp_cleanup(context);
}

static void receive_all(ucp_worker_h worker)
{
    static char data[LONG];
    time_t      until = time(NULL) + SECONDS;

    for (uint64_t tag = 0; tag < 2 * ALL && time(NULL) < until; tag++) {
        size_t           length  = tag < ALL ? 8 : LONG;
        ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, data, LONG, tag, ~0ull, &none);

        while (!is_done(request) && time(NULL) < until) {
            ucp_worker_progress(worker);
        }
        end(request);
        WANT_TRUE(data[length - 1] == (char)((length - 1) % 127));
        memset(data, 0xff, LONG);
    }
}

static void many(void)
{
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h       context;
    ucp_worker_h        worker;
    ucp_address_t      *address;
    size_t              length;
    int                 pipes[NODES][2], status;
    long                before;
    struct rlimit       files;

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < NODES; i++) {
        WANT_TRUE(pipe(pipes[i]) == 0);
        if (fork() == 0) {
            static char there[4096];

            close(pipes[i][1]);
            if (read(pipes[i][0], there, sizeof(there)) > 0) {
                send_messages(i + 1, there);
            }
            _exit(check_failed());
        }
        close(pipes[i][0]);
    }
    be_node(0);
    context = start();
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &length));
    before = shared_kb();
    for (int i = 0; i < NODES; i++) {
        WANT_TRUE(write(pipes[i][1], address, length) == (ssize_t)length);
        close(pipes[i][1]);
    }
    receive_all(worker);
    printf("%d senders: %ld KiB\n", ALL, shared_kb() - before);
    WANT_TRUE(before > 0 && shared_kb() - before < MAX_KB);
    /* A sender closes only when its messages were read. */
    for (int left = NODES; left > 0;) {
        ucp_worker_progress(worker);
        if (waitpid(-1, &status, WNOHANG) > 0) {
            WANT_TRUE(status == 0);
            left--;
        }
    }
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {{"ring_memory", many}};

CHECK_MAIN(cases)
