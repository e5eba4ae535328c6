/*
 * A peer that is lost at one end and lives: it is met again by the same name, before the loss is forgotten and after.
 * HCACTL names the program that has sends fail.
 */
#include "churn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Rounds, and how long until a loss is forgotten: some times the interval of looks at the peers. */
enum { RETURNS = 12, FORGOTTEN_MS = 700 };

static void set_faults(const char *settings)
{
    char command[512];

    snprintf(command, sizeof(command), "%s %s > /dev/null", getenv("HCACTL"), settings);
    WANT_TRUE(system(command) == 0);
}

static void send_number(ucp_ep_h ep, uint64_t number)
{
    WANT(UCS_OK, finish(ucp_tag_send_nbx(ep, &number, sizeof(number), TAG, &plain)));
    WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep, &plain)));
}

static void receive_number(uint64_t wanted)
{
    uint64_t number = 0;

    WANT(UCS_OK, finish(ucp_tag_recv_nbx(worker, &number, sizeof(number), TAG, UINT64_MAX, &plain)));
    WANT_TRUE(number == wanted);
}

/* Answers each number by a new endpoint; of what the other end has lost it learns in the next round. */
static void answer_all(void)
{
    ucp_ep_h last = NULL;

    worker_open(1);
    for (unsigned round = 1; round <= RETURNS; round++) {
        receive_number(round);
        if (last != NULL) {
            SURVIVE(close_by_force(last));
        }
        last = connect_to(0);
        send_number(last, round);
        atomic_store(&shared->sent, round);
        /* Without progress: nothing of this end's gets into the other's failure. */
        for (time_t end = time(NULL) + SECONDS; atomic_load(&shared->go) <= round && time(NULL) < end;) {
            sched_yield();
        }
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void progress_for(long ms)
{
    struct timespec from, now;

    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        ucp_worker_progress(worker);
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

/* In each second round the peer is forgotten before it is met again. */
static void meet_again(unsigned round)
{
    unsigned before = lost;
    uint64_t nothing = 0;
    ucp_ep_h ep = connect_to(1);

    send_number(ep, round);
    receive_number(round);
    wait_for(&shared->sent, round);
    set_faults("ud_drop_permille=1000,rc_fail_nth=1,rc_fail_status=12");
    ucs_status_ptr_t sent = ucp_tag_send_nbx(ep, &nothing, sizeof(nothing), UNREAD_TAG, &plain);
    ucs_status_ptr_t flush = ucp_ep_flush_nbx(ep, &plain);

    for (time_t end = time(NULL) + SECONDS; lost == before && time(NULL) < end;) {
        ucp_worker_progress(worker);
        sched_yield();
    }
    WANT_TRUE(lost == before + 1);
    set_faults("ud_drop_permille=0,rc_fail_nth=0");
    SURVIVE(finish(sent));
    SURVIVE(finish(flush));
    SURVIVE(close_by_force(ep));
    progress_for(round % 2 == 0 ? FORGOTTEN_MS : 0);
    atomic_store(&shared->go, round + 1);
}

static void exhaust_and_return(void)
{
    pid_t pid;
    int   status;

    alarm(LONGEST);
    share();
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (__atomic_load_n(&shared->length[0], __ATOMIC_ACQUIRE) == 0) {
            sched_yield();
        }
        answer_all();
        _exit(check_failed());
    }
    worker_open(0);
    while (__atomic_load_n(&shared->length[1], __ATOMIC_ACQUIRE) == 0) {
        sched_yield();
    }
    for (unsigned round = 1; round <= RETURNS && !check_failed(); round++) {
        meet_again(round);
    }
    if (check_failed()) {
        kill(pid, SIGKILL);
    }
    WANT_TRUE(waitpid(pid, &status, 0) == pid && status == 0);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"returned: lost at one end", exhaust_and_return},
};

CHECK_MAIN(cases)
