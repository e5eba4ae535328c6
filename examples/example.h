/* Shared by the examples: errors end the program, requests are waited for, two processes exchange addresses. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <ucp/api/ucp.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program if a call does not return UCS_OK. */
#define MUST(call) must((call), #call)

static inline void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

/* Ends the program if a system call or a result is not as expected. */
static inline void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "failed: %s\n", what);
        exit(1);
    }
}

/*
 * Progresses the worker until a request is complete, and frees it. `request`: the result of a non-blocking call: NULL
 * for an operation that completed at once, a status, or a request.
 */
static inline void wait_for(ucp_worker_h worker, ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        must(UCS_PTR_STATUS(request), "operation");
        return;
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
    must(status, "request");
}

/* Creates a context with these features, and one worker in it. */
static inline void set_up(uint64_t features, ucp_context_h *context, ucp_worker_h *worker)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t single = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_config_t       *config;

    /* UCX_* variables of the environment. */
    MUST(ucp_config_read(NULL, NULL, &config));
    MUST(ucp_init(&params, config, context));
    ucp_config_release(config);
    MUST(ucp_worker_create(*context, &single, worker));
}

/* Returns 0 in the child, which ends with its parent. Called before any context exists. */
static inline pid_t fork_child(void)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    expect(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

/* One of two processes. */
typedef struct {
    int   rank;   /* 0 or 1 */
    int   socket; /* connected to the other process */
    pid_t child;  /* of rank 0 */
} pair_t;

/* Starts the other process. Programs on several hosts exchange their addresses by other means (PMIx, a socket). */
static inline pair_t pair_start(void)
{
    pair_t pair = {.rank = 0};
    int    ends[2];

    expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    pair.child  = fork_child();
    pair.rank   = pair.child == 0;
    pair.socket = ends[pair.rank];
    close(ends[!pair.rank]);
    return pair;
}

static inline void pair_send(const pair_t *pair, const void *data, size_t length)
{
    expect(send(pair->socket, &length, sizeof(length), MSG_NOSIGNAL) == sizeof(length), "send");
    expect(send(pair->socket, data, length, MSG_NOSIGNAL) == (ssize_t)length, "send");
}

/* Whether the other process has sent data. */
static inline int pair_has_sent(const pair_t *pair)
{
    char    first;
    ssize_t n = recv(pair->socket, &first, 1, MSG_DONTWAIT | MSG_PEEK);

    expect(n != 0, "the other process is there");
    return n == 1;
}

/* Returns memory that the caller frees. */
static inline void *pair_receive(const pair_t *pair)
{
    size_t length;
    void  *data;

    expect(recv(pair->socket, &length, sizeof(length), MSG_WAITALL) == sizeof(length), "the other process is there");
    data = malloc(length);
    expect(data != NULL, "malloc");
    expect(recv(pair->socket, data, length, MSG_WAITALL) == (ssize_t)length, "the other process is there");
    return data;
}

/* Exchanges worker addresses with the other process, and connects to it. */
static inline ucp_ep_h pair_connect(const pair_t *pair, ucp_worker_h worker)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t  *own, *other;
    ucp_ep_h        ep;
    size_t          length;

    MUST(ucp_worker_get_address(worker, &own, &length));
    pair_send(pair, own, length);
    ucp_worker_release_address(worker, own);
    other          = pair_receive(pair);
    params.address = other;
    MUST(ucp_ep_create(worker, &params, &ep));
    free(other);
    return ep;
}

/*
 * Closes the endpoint and destroys worker and context when both processes are done. Rank 0 returns the status of the
 * program.
 */
static inline int pair_finish(const pair_t *pair, ucp_context_h context, ucp_worker_h worker, ucp_ep_h ep)
{
    static const ucp_request_param_t flush = {0};
    int                              status = 0;

    wait_for(worker, ucp_ep_close_nbx(ep, &flush));
    /* The other process may still need this worker's progress for its own close. */
    pair_send(pair, "closed", sizeof("closed"));
    while (!pair_has_sent(pair)) {
        ucp_worker_progress(worker);
    }
    free(pair_receive(pair));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    if (pair->rank == 0) {
        expect(waitpid(pair->child, &status, 0) == pair->child, "waitpid");
    }
    return status != 0;
}

#endif
