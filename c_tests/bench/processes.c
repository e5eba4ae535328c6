//! Many processes of one host: the time to start, to connect all with all, of the first all-to-all and of
//! later ones, and the memory of each then.
//!
//! ucpbench processes [--loaded] [--usage] NUMBER. Each phase lasts until the last process has finished it. In an
//! all-to-all each process sends 8 bytes to each other one, and compares what it receives. --loaded: two processes for
//! each core compute all the while. Start is the context and the worker; memory is the proportional share (PSS) of what
//! is resident, its mean. --usage: also what the phases took of each process, its mean: time in user and kernel mode
//! (with that of waiting for the last process), page faults, context switches.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

enum { ROUNDS = 5, MAX_LOAD = 64 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/** One process of them. */
static struct {
    struct place place;
    int number;
    bool usage;
    struct rusage before; /* at the end of the previous phase */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep[MAX_PROCESSES];
    ucs_status_ptr_t requests[2 * MAX_PROCESSES];
    uint64_t sent[MAX_PROCESSES], received[MAX_PROCESSES];
} here;

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("process %d: %s: status %d", here.place.index, call, status);
    }
}

/** There are more processes than cores: an idle process yields. */
static void progress(void *unused)
{
    (void)unused;
    if (here.worker == NULL || ucp_worker_progress(here.worker) == 0) {
        sched_yield();
    }
}

/** The sum over all processes; each writes its own value where its address was, or will be. */
static double sum_of(double value)
{
    double sum = 0;

    memcpy(here.place.stage->mail[here.place.index].bytes + MAIL_ROOM - sizeof(value), &value, sizeof(value));
    meet(here.place, progress, NULL);
    for (int i = 0; i < here.number; i++) {
        memcpy(&value, here.place.stage->mail[i].bytes + MAIL_ROOM - sizeof(value), sizeof(value));
        sum += value;
    }
    meet(here.place, progress, NULL);
    return sum;
}

static double ms_between(struct timeval from, struct timeval to)
{
    return (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_usec - from.tv_usec) / 1e3;
}

static void report_mean(const char *phase, const char *what, double value, int times, const char *unit)
{
    double sum = sum_of(value);
    char name[64];

    if (here.place.index == 0) {
        snprintf(name, sizeof(name), "%s_%s", phase, what);
        figure(name, here.number, sum / here.number / times, unit);
    }
}

/** Context switches: a process that yields its core causes one if another process waits for the core. */
static long switches_of(const struct rusage *usage)
{
    return usage->ru_nvcsw + usage->ru_nivcsw;
}

/** What this phase took of each process. */
static void report_usage(const char *phase, int times)
{
    struct rusage now;

    getrusage(RUSAGE_SELF, &now);
    report_mean(phase, "user", ms_between(here.before.ru_utime, now.ru_utime), times, "ms");
    report_mean(phase, "system", ms_between(here.before.ru_stime, now.ru_stime), times, "ms");
    report_mean(phase, "faults", (double)(now.ru_minflt - here.before.ru_minflt), times, "");
    report_mean(phase, "switches", (double)(switches_of(&now) - switches_of(&here.before)), times, "");
    getrusage(RUSAGE_SELF, &here.before);
}

/** The end of a phase that began at `since`, for all; returns the beginning of the next one. */
static double end_phase(const char *name, double since, int times)
{
    double end;

    meet(here.place, progress, NULL);
    end = now();
    if (here.place.index == 0) {
        figure(name, here.number, (end - since) * 1e3 / times, "ms");
    }
    if (!here.usage) {
        return end;
    }
    report_usage(name, times);
    return now();
}

static void start(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_address_t *address;
    size_t length;

    check(ucp_init(&params, NULL, &here.context), "ucp_init");
    check(ucp_worker_create(here.context, &worker_params, &here.worker), "ucp_worker_create");
    check(ucp_worker_get_address(here.worker, &address, &length), "ucp_worker_get_address");
    if (length > MAIL_ROOM) {
        die("an address of %zu bytes", length);
    }
    memcpy(here.place.stage->mail[here.place.index].bytes, address, length);
    here.place.stage->mail[here.place.index].length = length;
    ucp_worker_release_address(here.worker, address);
}

static void connect_all(void)
{
    for (int i = 0; i < here.number; i++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (const ucp_address_t *)here.place.stage->mail[i].bytes};

        if (i != here.place.index) {
            check(ucp_ep_create(here.worker, &params, &here.ep[i]), "ucp_ep_create");
        }
    }
}

static uint64_t value_of(int from, int to, int round)
{
    return (uint64_t)from << 40 | (uint64_t)to << 20 | (uint64_t)round;
}

static void all_to_all(int round)
{
    int me = here.place.index, count = 0;

    for (int i = 1; i < here.number; i++) {
        int from = (me + here.number - i) % here.number;

        here.requests[count++] = ucp_tag_recv_nbx(here.worker, &here.received[from], sizeof(uint64_t),
                                                  (ucp_tag_t)round << 20 | (ucp_tag_t)from, (ucp_tag_t)-1, &plain);
    }
    for (int i = 1; i < here.number; i++) {
        int to = (me + i) % here.number;

        here.sent[to] = value_of(me, to, round);
        here.requests[count++] = ucp_tag_send_nbx(here.ep[to], &here.sent[to], sizeof(uint64_t),
                                                  (ucp_tag_t)round << 20 | (ucp_tag_t)me, &plain);
    }
    for (int i = 0; i < count; i++) {
        ucs_status_t status = UCS_PTR_STATUS(here.requests[i]);

        if (UCS_PTR_IS_PTR(here.requests[i])) {
            while ((status = ucp_request_check_status(here.requests[i])) == UCS_INPROGRESS) {
                progress(NULL);
            }
            ucp_request_free(here.requests[i]);
        }
        check(status, "message");
    }
    for (int i = 0; i < here.number; i++) {
        if (i != me && here.received[i] != value_of(i, me, round)) {
            die("process %d got %#lx from %d in round %d", me, (unsigned long)here.received[i], i, round);
        }
    }
}

static long share_kib(void)
{
    FILE *rollup = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long share = -1;

    while (rollup != NULL && share < 0 && fgets(line, sizeof(line), rollup) != NULL) {
        sscanf(line, "Pss: %ld kB", &share);
    }
    if (share < 0) {
        die("cannot read /proc/self/smaps_rollup");
    }
    fclose(rollup);
    return share;
}

/** What the program was called with. */
struct call {
    int number;
    bool usage;
};

static void play(struct place place, void *argument)
{
    const struct call *call = argument;
    double since;

    here.place = place;
    here.number = call->number;
    here.usage = call->usage;
    meet(place, progress, NULL);
    if (here.usage) {
        sum_of(0); /* touches the pages */
        getrusage(RUSAGE_SELF, &here.before);
    }
    since = now();
    start();
    since = end_phase("processes_start", since, 1);
    connect_all();
    since = end_phase("processes_connect", since, 1);
    all_to_all(0);
    since = end_phase("processes_first", since, 1);
    for (int round = 1; round <= ROUNDS; round++) {
        all_to_all(round);
    }
    end_phase("processes_steady", since, ROUNDS);
    report_mean("processes", "memory", (double)share_kib(), 1, "KiB");
    meet(place, progress, NULL);
    /* Every process has received everything; the workers end with their processes' endpoints. */
    ucp_worker_destroy(here.worker);
    ucp_cleanup(here.context);
}

/** Processes that compute until they are killed, or this one ends. */
static int start_load(pid_t *load)
{
    int count = 2 * processors() < MAX_LOAD ? 2 * processors() : MAX_LOAD;

    for (int i = 0; i < count; i++) {
        load[i] = fork();
        if (load[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pin_to(i);
            for (volatile unsigned turns = 0;; turns++) {
            }
        }
    }
    return count;
}

int run_processes(const struct effort *effort, int argc, char **argv)
{
    struct call call = {.usage = false};
    bool loaded = false;
    int count = 0, failed, next = 1;
    pid_t load[MAX_LOAD];

    (void)effort;
    for (; next + 1 < argc; next++) {
        bool *option = strcmp(argv[next], "--loaded") == 0  ? &loaded
                       : strcmp(argv[next], "--usage") == 0 ? &call.usage
                                                            : NULL;
        if (option == NULL) {
            break;
        }
        *option = true;
    }
    call.number = argc == next + 1 ? atoi(argv[next]) : 0;
    if (call.number < 2 || call.number > MAX_PROCESSES) {
        die("processes [--loaded] [--usage] NUMBER, of at most %d", MAX_PROCESSES);
    }
    if (loaded) {
        count = start_load(load);
    }
    failed = start_processes(call.number, play, &call);
    for (int i = 0; i < count; i++) {
        kill(load[i], SIGKILL);
    }
    return failed;
}
