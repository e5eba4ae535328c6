/*
 * Many peers are killed at once, with as many messages in flight to each as fit: every death is detected, every request
 * completes, and peers that live are still reachable.
 */
#define _GNU_SOURCE
#include "check.h"
#include "finish.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PEERS = 40, SENDS = 500, SECONDS = 20 };

typedef struct {
    size_t  length[PEERS + 1]; /* 0: not there yet */
    uint8_t address[PEERS + 1][1024];
} shared_t;

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep[PEERS];
static unsigned      lost[PEERS];

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT);
    ++*(unsigned *)arg;
}

/* Opens a worker whose address is published in this slot. */
static void worker_open(int place)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_address_t      *address;
    size_t              length;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &length));
    memcpy(shared->address[place], address, length);
    __atomic_store_n(&shared->length[place], length, __ATOMIC_RELEASE);
    ucp_worker_release_address(worker, address);
}

/* Waits for the address of a peer. Forty processes that load libfabric need longer than one step of a case may last. */
static void await_address(int place)
{
    while (__atomic_load_n(&shared->length[place], __ATOMIC_ACQUIRE) == 0) {
        sched_yield();
    }
    check_restart_limit();
}

static void connect_to(int place)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)shared->address[place],
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &lost[place]},
    };

    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep[place]));
}

static pid_t peer_start(int place)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        worker_open(place);
        for (;;) {
            if (ucp_worker_progress(worker) == 0) {
                usleep(1000); /* the other processes want the cores, too */
            }
        }
    }
    return pid;
}

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_on(worker, request, SECONDS);
}

static void end_of(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void kill_all_but_one(void)
{
    static ucs_status_ptr_t sent[PEERS][SENDS];
    static char             data[64];
    ucp_request_param_t     param = {.op_attr_mask = 0};
    pid_t                   pid[PEERS];
    int                     open  = 0;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(shared != MAP_FAILED);
    for (int i = 0; i < PEERS; i++) {
        pid[i] = peer_start(i);
        if (i > 0) {
            await_address(i - 1); /* two of them start at a time */
        }
    }
    await_address(PEERS - 1);
    worker_open(PEERS);
    for (int i = 0; i < PEERS; i++) {
        connect_to(i);
        WANT(UCS_OK, finish(ucp_tag_send_nbx(ep[i], data, 8, 1, &param)));
        WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep[i], &param)));
        check_restart_limit();
    }
    for (int i = 1; i < PEERS; i++) {
        end_of(pid[i]);
    }
    for (int k = 0; k < SENDS; k++) {
        for (int i = 1; i < PEERS; i++) {
            sent[i][k] = ucp_tag_send_nbx(ep[i], data, sizeof(data), 1, &param);
        }
    }
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end;) {
        ucp_worker_progress(worker);
        open = 0;
        for (int i = 1; i < PEERS; i++) {
            open += lost[i] == 0;
        }
        if (open == 0) {
            break;
        }
    }
    WANT_TRUE(open == 0);
    check_restart_limit();
    for (int i = 1; i < PEERS && open == 0; i++) {
        WANT_TRUE(lost[i] == 1);
        for (int k = 0; k < SENDS; k++) {
            WANT_TRUE(finish(sent[i][k]) != UCS_INPROGRESS);
        }
    }
    WANT_TRUE(lost[0] == 0);
    WANT(UCS_OK, finish(ucp_tag_send_nbx(ep[0], data, sizeof(data), 1, &param)));
    WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep[0], &param)));
    end_of(pid[0]);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"dying: all but one", kill_all_but_one},
};

CHECK_MAIN(cases)
