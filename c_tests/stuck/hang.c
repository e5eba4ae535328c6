/*
 * Stages one hang, or a job that is busy, and prints the processes: `ready WAITER OTHER`. Then it hangs until it is
 * killed. c_tests/stuck/run checks what `rucp_top --stuck` says of it.
 *
 * usage: hang CASE
 */
#define _GNU_SOURCE
#include "hang.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t RMA = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;

static const case_t cases[] = {
    {"receive", UCP_FEATURE_TAG, receives, progresses, 0, 1, 0},
    {"wrong_tag", UCP_FEATURE_TAG, receives, sends_tag_2, 0, 1, 0},
    {"receive_stopped", UCP_FEATURE_TAG, receives, progresses, 1, 1, 0},
    {"receive_sleeps", UCP_FEATURE_TAG, receives, sleeps, 0, 1, 0},
    {"receive_died", UCP_FEATURE_TAG, receives, dies, 0, 1, 0},
    {"full_stopped", UCP_FEATURE_TAG, fills, progresses, 1, 1, 0},
    {"full_sleeps", UCP_FEATURE_TAG, fills, sleeps, 0, 1, 0},
    {"full_computes", UCP_FEATURE_TAG, fills, computes, 0, 1, 0},
    {"unposted", UCP_FEATURE_TAG, sends_long, progresses, 0, 1, 0},
    {"unposted_sync", UCP_FEATURE_TAG, sends_sync, progresses, 0, 1, 0},
    {"unposted_sleeps", UCP_FEATURE_TAG, sends_long, sleeps, 0, 1, 0},
    {"unfetched", UCP_FEATURE_TAG | UCP_FEATURE_AM, sends_message, keeps_messages, 0, 1, 0},
    {"flush_stopped", RMA, flushes, progresses, 1, 1, 0},
    {"fetch_stopped", RMA, fetches, progresses, 1, 1, 0},
    {"get_stopped", RMA, gets, progresses, 1, 1, 0},
    {"put_stopped", RMA, puts_much, progresses, 1, 1, 0},
    {"connect_stopped", UCP_FEATURE_TAG, sends_short, progresses, 1, 0, 0},
    {"no_answer", UCP_FEATURE_TAG, sends_short, progresses, 0, 0, 1},
    {"no_descriptors", UCP_FEATURE_TAG, sends_short_later, lacks_descriptors, 0, 0, 0},
    {"stream", UCP_FEATURE_TAG | UCP_FEATURE_STREAM, reads_stream, progresses, 0, 1, 0},
    {"not_accepted", UCP_FEATURE_TAG, is_not_accepted, accepts_nobody, 0, 0, 0},
    {"close", UCP_FEATURE_TAG, closes, accepts_and_sleeps, 0, 0, 0},
    {"stopped", UCP_FEATURE_TAG, receives_and_stops, progresses, 0, 1, 0},
    {"blocked", UCP_FEATURE_TAG, receives_and_blocks, progresses, 0, 1, 0},
    {"asleep", UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, receives_asleep, progresses, 0, 1, 0},
    {"busy", UCP_FEATURE_TAG, is_busy, is_busy, 0, 1, 0},
    {"computing", UCP_FEATURE_TAG, receives_and_computes, progresses, 0, 1, 0},
};

static int is_client_server(void)
{
    return this_case->waiter == is_not_accepted || this_case->waiter == closes;
}

static void be_other(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (this_case->apart) {
        network_of_its_own("10.77.0.2");
    }
    open_worker(&shared->other);
    if (this_case->features & UCP_FEATURE_RMA) {
        share_memory();
    }
    if (!is_client_server() && !this_case->apart && (this_case->meet || this_case->other == is_busy)) {
        connect_to(&shared->waiter);
        meet();
        /* What is on its way arrives before it stops or sleeps. */
        for (int i = 0; i < 100; i++) {
            progress();
        }
        __atomic_store_n(&shared->met, 1, __ATOMIC_RELEASE);
    }
    this_case->other();
}

static void be_waiter(void)
{
    int status;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (this_case->apart) {
        network_of_its_own("10.77.0.1");
    }
    big = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    open_worker(&shared->waiter);
    if (!is_client_server()) {
        connect_to(&shared->other);
        if (this_case->meet) {
            meet();
            while (__atomic_load_n(&shared->met, __ATOMIC_ACQUIRE) == 0) {
                progress();
            }
        }
    }
    if (this_case->stop_other) {
        kill(other, SIGSTOP);
        CHECK(waitpid(other, &status, WUNTRACED) == other && WIFSTOPPED(status));
    }
    printf("ready %d %d\n", getpid(), other);
    fflush(stdout);
    this_case->waiter();
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
            this_case = &cases[i];
        }
    }
    CHECK(this_case != NULL);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    other = fork();
    if (other == 0) {
        be_other();
    }
    be_waiter();
    return 0;
}
