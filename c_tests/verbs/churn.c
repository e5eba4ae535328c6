/*
 * Peers that connect and end, one after the other: killed or in order, with an endpoint to them or none, with messages
 * from them that the worker has not polled. A worker that has seen many of them uses as much as one that has seen a
 * few: memory, descriptors, mappings, and queue pairs, of which there are no more than SOFT_HCA_QP_MOST.
 *
 * CHURN_PEERS=N: this many connect and end, and the resources in use are printed.
 */
#include "churn.h"
#include "process_limits.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEERS = 120, WARM_UP = 40, UNSEEN = 60 };
/* In this time a device finds out that a peer is gone to which something was posted (`retry_cap_us`). */
enum { DETECTION_MS = 450 };
/* What the heap keeps of what was freed. A peer that is never forgotten takes some KB, and its queue pair some more. */
enum { SLACK_BYTES = 64 << 10, SLACK_MAPPINGS = 4, SLACK_DESCRIPTORS = 2 };

/* How a peer is met, and how it goes. */
enum peer_end {
    ENDPOINT_AND_KILLED,    /* both have an endpoint to the other */
    UNREAD_AND_KILLED,      /* and the loss is noticed before its last messages are: those are dropped */
    UNSEEN_AND_KILLED,      /* it has sent, without being asked, and the worker has not polled */
    ENDPOINT_AND_DESTROYED, /* its worker is destroyed before the endpoint to it is closed */
    CLOSED_AND_DESTROYED,   /* the other way round */
    PEER_ENDS
};

static void send_one(ucp_ep_h ep, ucp_tag_t tag)
{
    uint64_t word = 4711;

    WANT(UCS_OK, finish(ucp_tag_send_nbx(ep, &word, sizeof(word), tag, &plain)));
}

/* Sends what is not looked at before this process is gone, and goes. */
static void send_and_die(ucp_ep_h ep, ucp_tag_t tag)
{
    for (int i = 0; i < UNSEEN; i++) {
        send_one(ep, tag);
    }
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(worker);
    }
    raise(SIGKILL);
}

static void receive(unsigned count)
{
    for (uint64_t word = 0; count-- > 0; word = 0) {
        WANT(UCS_OK, finish(ucp_tag_recv_nbx(worker, &word, sizeof(word), TAG, UINT64_MAX, &plain)));
        WANT_TRUE(word == 4711);
    }
}

/* --- a peer --- */

static void run_peer(unsigned number, enum peer_end peer_end)
{
    ucp_ep_h ep;

    worker_open(1);
    ep = connect_to(0);
    if (peer_end == UNSEEN_AND_KILLED) {
        /* The first one makes the connection. */
        send_one(ep, TAG);
        WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep, &plain)));
        atomic_store(&shared->sent, number);
        wait_for(&shared->go, number);
        send_and_die(ep, TAG);
    }
    send_one(ep, TAG);
    receive(1);
    WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep, &plain)));
    atomic_store(&shared->sent, number);
    wait_for(&shared->go, number);
    if (peer_end == ENDPOINT_AND_KILLED) {
        raise(SIGKILL);
    } else if (peer_end == UNREAD_AND_KILLED) {
        send_and_die(ep, UNREAD_TAG);
    }
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &plain)));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

/* A process for each, the child of one that has nothing to do with queues. */
static void run_peers(unsigned count)
{
    for (unsigned number = 1; number <= count; number++) {
        enum peer_end peer_end = number % PEER_ENDS;
        int           killed   = peer_end != ENDPOINT_AND_DESTROYED && peer_end != CLOSED_AND_DESTROYED, status;
        pid_t         pid;

        wait_for(&shared->wanted, number);
        pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_peer(number, peer_end);
            _exit(check_failed());
        }
        WANT_TRUE(waitpid(pid, &status, 0) == pid);
        WANT_TRUE(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
        atomic_store(&shared->gone, number);
    }
}

/* --- the worker that stays --- */

/* Waits without progress until a peer has gone. */
static void wait_without_progress(unsigned number)
{
    for (time_t end = time(NULL) + SECONDS; atomic_load(&shared->gone) < number && time(NULL) < end;) {
        sched_yield();
    }
}

/* Has the device find out that a peer is gone, without progress: the flush that waits for it. */
static ucs_status_ptr_t flush_failed_peer(ucp_ep_h ep)
{
    struct timespec  now, end;
    uint64_t         word = 0;
    ucs_status_ptr_t sent = ucp_tag_send_nbx(ep, &word, sizeof(word), TAG, &plain), flush;

    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
    flush = ucp_ep_flush_nbx(ep, &plain);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += DETECTION_MS * 1000000l;
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((end.tv_sec - now.tv_sec) * 1000000000l + end.tv_nsec - now.tv_nsec > 0);
    return flush;
}

/* Takes what has come of the messages that need not come. */
static void drop_unread(void)
{
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message;
    uint64_t            word;

    while ((message = ucp_tag_probe_nb(worker, UNREAD_TAG, UINT64_MAX, 1, &info)) != NULL) {
        WANT(UCS_OK, finish(ucp_tag_msg_recv_nbx(worker, &word, sizeof(word), message, &plain)));
    }
}

static void meet_peer(unsigned number, enum peer_end peer_end)
{
    unsigned         before = lost;
    ucs_status_ptr_t flush  = NULL;
    ucp_ep_h         ep     = NULL;

    __atomic_store_n(&shared->length[1], 0, __ATOMIC_RELEASE);
    atomic_store(&shared->wanted, number);
    if (peer_end == UNSEEN_AND_KILLED) {
        wait_for(&shared->sent, number);
        receive(1);
        atomic_store(&shared->go, number);
        wait_without_progress(number);
        receive(UNSEEN);
        return;
    }
    while (__atomic_load_n(&shared->length[1], __ATOMIC_ACQUIRE) == 0) {
        ucp_worker_progress(worker);
        sched_yield();
    }
    ep = connect_to(1);
    send_one(ep, TAG);
    receive(1);
    wait_for(&shared->sent, number);
    if (peer_end == CLOSED_AND_DESTROYED) {
        WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &plain)));
        atomic_store(&shared->go, number);
        wait_for(&shared->gone, number);
        return;
    }
    atomic_store(&shared->go, number);
    if (peer_end == UNREAD_AND_KILLED) {
        wait_without_progress(number);
        flush = flush_failed_peer(ep);
    }
    for (time_t end = time(NULL) + SECONDS; lost == before && time(NULL) < end;) {
        ucp_worker_progress(worker);
        sched_yield();
    }
    WANT_TRUE(lost == before + 1);
    WANT_TRUE(finish(flush) != UCS_INPROGRESS);
    WANT(UCS_OK, close_by_force(ep));
    wait_for(&shared->gone, number);
    drop_unread();
}

static void churn(void)
{
    const char *number = getenv("CHURN_PEERS");
    unsigned    count  = number != NULL ? (unsigned)atol(number) : PEERS;
    resources_t most   = {.bytes = SIZE_MAX, .mappings = SIZE_MAX, .descriptors = SIZE_MAX}, held;
    pid_t       pid;
    int         status;

    alarm(number != NULL ? 0 : LONGEST);
    share();
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_peers(count);
        _exit(check_failed());
    }
    worker_open(0);
    for (unsigned i = 1; i <= count && !check_failed(); i++) {
        meet_peer(i, i % PEER_ENDS);
        if (i == WARM_UP) {
            /* The loss of those without an endpoint is noticed later. */
            for (time_t end = time(NULL) + 3; time(NULL) < end;) {
                ucp_worker_progress(worker);
                sched_yield();
            }
            most = resources_in_use();
            most.descriptors += SLACK_DESCRIPTORS;
            most.mappings += SLACK_MAPPINGS;
            most.bytes += SLACK_BYTES;
        }
        if (number != NULL && i % WARM_UP == 0) {
            held = resources_in_use();
            printf("    %8u peers: %zu descriptors, %zu mappings, %zu bytes\n", i, held.descriptors, held.mappings,
                   held.bytes);
            fflush(stdout);
        }
    }
    held = progress_until_at_most(worker, most, SECONDS);
    want_at_most(most, held);
    WANT_TRUE(waitpid(pid, &status, 0) == pid && status == 0);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"churn: peers that connect and end", churn},
};

CHECK_MAIN(cases)
