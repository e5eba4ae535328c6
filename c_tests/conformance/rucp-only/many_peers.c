/*
 * A worker with a thousand live peers and error handling: the death of some of them is detected within one
 * second, whatever the number of peers. Each death calls its endpoint's handler once, and no other.
 */
#define _GNU_SOURCE
#include "check.h"
#include "workers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOLDERS = 4, EACH = 250, VICTIMS = 10, PEERS = HOLDERS * EACH + VICTIMS };
/*
 * Limit between a death and its callback. A gap between two calls of progress counts as GAP_SECONDS at most: the
 * observer was not run.
 */
#define LIMIT_SECONDS 1.0
#define GAP_SECONDS 0.02

typedef struct {
    ucp_ep_h ep;
    unsigned failures;
} peer_t;

static peer_t peers[PEERS];

/* Makes workers, writes their addresses to the pipe, and waits to be killed. */
static pid_t start_holder(int count, int pipe_end)
{
    pid_t pid = fork();

    if (pid != 0) {
        return pid;
    }
    alarm(60);
    ucp_context_h context = new_context(UCP_FEATURE_TAG);
    for (int i = 0; i < count; i++) {
        address_t sent;

        read_address(new_worker(context, UCS_THREAD_MODE_SINGLE), &sent);
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
    double spent = 0, last = seconds_now();

    while (failed_peers() < count && spent < limit) {
        ucp_worker_progress(worker);
        double t = seconds_now();
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
    ucp_context_h context = new_context(UCP_FEATURE_TAG);
    ucp_worker_h  worker  = new_worker(context, UCS_THREAD_MODE_SINGLE);
    address_t    *all     = malloc(PEERS * sizeof(*all));
    /* Processes start in any order: a peer's number is that of its endpoint, and handlers report which ones died. */
    for (int i = 0; i < PEERS; i++) {
        read_whole(ends[0], &all[i], sizeof(all[i]));
    }
    for (at = 0; at < PEERS; at++) {
        peers[at].ep = connect_to(worker, &all[at], on_failure, &peers[at]);
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
