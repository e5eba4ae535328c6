/*
 * A worker with a thousand live peers and error handling: the death of some of them is detected within one
 * second, whatever the number of peers. Each death calls its endpoint's handler once, and no other.
 */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOLDERS = 4, EACH = 250, VICTIMS = 10, PEERS = HOLDERS * EACH + VICTIMS, ADDRESS = 1024 };
/*
 * Limit between a death and its callback. A gap between two calls of progress counts as GAP_SECONDS at most: the
 * observer was not run.
 */
#define LIMIT_SECONDS 1.0
#define GAP_SECONDS 0.02

typedef struct {
    size_t length;
    char   bytes[ADDRESS];
} address_t;

typedef struct {
    ucp_ep_h ep;
    unsigned failures;
} peer_t;

static peer_t peers[PEERS];

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static ucp_context_h new_context(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    return context;
}

static ucp_worker_h new_worker(ucp_context_h context)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker;

    must(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

/* Makes workers, writes their addresses to the pipe, and waits to be killed. */
static pid_t start_holder(int count, int pipe_end)
{
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    alarm(60);
    ucp_context_h context = new_context();
    for (int i = 0; i < count; i++) {
        ucp_worker_h   worker = new_worker(context);
        ucp_address_t *address;
        address_t      sent;

        must(ucp_worker_get_address(worker, &address, &sent.length), "ucp_worker_get_address");
        memcpy(sent.bytes, address, sent.length);
        ucp_worker_release_address(worker, address);
        if (write(pipe_end, &sent, sizeof(sent)) != sizeof(sent)) {
            _exit(1);
        }
    }
    for (;;) {
        pause();
    }
}

static void read_whole(int fd, void *buffer, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t n = read(fd, (char *)buffer + done, length - done);

        if (n <= 0) {
            must(UCS_ERR_IO_ERROR, "an address");
        }
        done += (size_t)n;
    }
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    peer_t *peer = arg;

    (void)ep, (void)status;
    peer->failures++;
}

static void connect_to(ucp_worker_h worker, peer_t *peer, const address_t *address)
{
    ucp_ep_params_t params = {
        .field_mask      = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                           UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address         = (const ucp_address_t *)address->bytes,
        .err_mode        = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb  = on_failure,
        .err_handler.arg = peer,
    };

    must(ucp_ep_create(worker, &params, &peer->ep), "ucp_ep_create");
}

static int failed_peers(void)
{
    int failed = 0;

    for (int i = 0; i < PEERS; i++) {
        failed += peers[i].failures != 0;
    }
    return failed;
}

/* Seconds of progress until this many peers have failed, at most `limit`. */
static double until_failed(ucp_worker_h worker, int count, double limit)
{
    double spent = 0, last = now();

    while (failed_peers() < count && spent < limit) {
        ucp_worker_progress(worker);
        double t = now();
        spent += t - last < GAP_SECONDS ? t - last : GAP_SECONDS;
        last   = t;
    }
    return spent;
}

static void kill_and_wait(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static size_t descriptors(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 65536; fd++) {
        count += dup2(fd, fd) == fd;
    }
    return count;
}

/* A few die, and then a process with 250 workers, each of which is a peer. */
static void deaths(rlim_t files)
{
    struct rlimit limit;
    pid_t         pids[HOLDERS + VICTIMS];
    int           ends[2], at, dead = 0;

    WANT_TRUE(pipe(ends) == 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < HOLDERS + VICTIMS; i++) {
        pids[i] = start_holder(i < HOLDERS ? EACH : 1, ends[1]);
    }
    limit.rlim_cur = files;
    WANT_TRUE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    ucp_context_h context = new_context();
    ucp_worker_h  worker  = new_worker(context);
    address_t    *all     = malloc(PEERS * sizeof(*all));
    /* Processes start in any order: a peer's number is that of its endpoint, and handlers report which ones died. */
    for (int i = 0; i < PEERS; i++) {
        read_whole(ends[0], &all[i], sizeof(all[i]));
    }
    for (at = 0; at < PEERS; at++) {
        connect_to(worker, &peers[at], &all[at]);
    }
    /* Some rounds without a death. */
    until_failed(worker, 1, 2 * LIMIT_SECONDS);
    WANT_TRUE(failed_peers() == 0 && descriptors() < files / 2);
    for (int round = 0; round < 2; round++) {
        int first = round == 0 ? HOLDERS : 0, end = round == 0 ? HOLDERS + VICTIMS : 1;

        for (at = first; at < end; at++) {
            kill_and_wait(pids[at]);
        }
        dead += round == 0 ? VICTIMS : EACH;
        double spent = until_failed(worker, dead, 10);
        printf("    %d of %d deaths were noticed after %.2f s\n", failed_peers(), dead, spent);
        WANT_TRUE(failed_peers() == dead && spent < LIMIT_SECONDS);
    }
    until_failed(worker, PEERS, LIMIT_SECONDS);
    for (int i = 0; i < PEERS; i++) {
        WANT_TRUE(peers[i].failures <= 1);
        dead -= (int)peers[i].failures;
    }
    WANT_TRUE(dead == 0);
    for (int i = 1; i < HOLDERS; i++) {
        kill_and_wait(pids[i]);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    free(all);
}

static void many_files(void)
{
    deaths(1024);
}

/* Fewer descriptors than peers: not every peer gets a pidfd. */
static void few_files(void)
{
    deaths(64);
}

static const case_t cases[] = {
    {"many_peers: a thousand peers", many_files},
    {"many_peers: a thousand peers, few descriptors", few_files},
};

CHECK_MAIN(cases)
