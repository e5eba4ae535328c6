/*
 * A job of processes that send to their neighbours, or that fail in one way.
 *
 * usage: job PROCESSES CASE
 *
 * healthy      messages of all kinds and sizes to 8 neighbours, flush and close: nothing is wrong
 * killed       the last process is killed; the others have sent to it and go on sending
 * stalled      the last process is killed when it has not progressed for so long that sends to it wait for room
 * refused      the last process ends before another process connects to it
 * descriptors  each process has few descriptors left when it connects
 * registered   messages, puts and gets of so many bytes that adapters need their memory registered, by two contexts in
 *              turn
 * puts         the others put 1,000 times into memory that the last process has unmapped: it refuses each
 * signals      the same with puts that signal
 * unreadable   the last process puts data of which a part cannot be read
 * unhandled    each sends 1,000 active messages to its neighbour, which has no handler for them
 *
 * Exit status 0, unless a process fails to set itself up: then 1.
 */
#define _GNU_SOURCE
#include "../check.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <ucp/api/ucpx.h>
#include <unistd.h>

enum { MAX_PROCESSES = 1024, NEIGHBOURS = 8, HANDLER = 5, LONG = 300000, SECONDS = 20, FREE_DESCRIPTORS = 3 };
enum { LONGEST = 3000000, CONTEXTS = 2, POINTS = 5 };
enum { REPEATS = 1000, UNHANDLED = 6, SHORT = 64, READABLE = 1 << 20, FILLING = 3000, FILLER = 4000 };

static void report_failure(void);

void check_report(const char *failure)
{
    /* By the exit status alone: the output is the library's. The others do not wait for this process. */
    (void)failure;
    report_failure();
    _exit(1);
}

#define OK(call) CHECK((call) == UCS_OK)

typedef struct {
    volatile size_t length;
    char            address[512], key[512];
    uint64_t        memory; /* that the key is for */
} side_t;

typedef struct {
    volatile int arrived[CONTEXTS * POINTS], failed;
    side_t       sides[MAX_PROCESSES];
} shared_t;

static shared_t           *shared;
static int                 processes, me;
static ucp_context_h       context;
static ucp_worker_h        worker;
static ucp_ep_h            eps[NEIGHBOURS];
static int                 neighbours;
static int                 round_of; /* of the contexts, one after the other */
static size_t              longest = LONG;
static char                out[LONGEST], in[NEIGHBOURS][LONGEST];
static ucp_request_param_t none;

static void report_failure(void)
{
    if (shared != NULL) {
        __atomic_store_n(&shared->failed, 1, __ATOMIC_RELEASE);
    }
}

/* Waits until `count` processes have come to this point, unless one has failed; progresses meanwhile. */
static void meet(int point, int count)
{
    point += round_of * POINTS;
    __atomic_add_fetch(&shared->arrived[point], 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&shared->arrived[point], __ATOMIC_ACQUIRE) < count) {
        if (__atomic_load_n(&shared->failed, __ATOMIC_ACQUIRE)) {
            _exit(1);
        }
        if (ucp_worker_progress(worker) == 0) {
            usleep(1000);
        }
    }
}

/* Progresses until it ends, for some seconds at most: a job that has failed need not end. */
static void finish(ucs_status_ptr_t request)
{
    time_t until = time(NULL) + SECONDS;

    if (UCS_PTR_IS_PTR(request)) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS && time(NULL) < until) {
            if (ucp_worker_progress(worker) == 0) {
                sched_yield();
            }
        }
        if (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_request_cancel(worker, request);
        }
        ucp_request_free(request);
    }
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length, (void)param;
    return UCS_OK;
}

static void open_worker(void)
{
    ucp_params_t           params  = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                      .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_worker_params_t    wparams = {.field_mask = 0};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = HANDLER, .cb = on_message};
    ucp_address_t         *address;
    size_t                 length;

    OK(ucp_init(&params, NULL, &context));
    OK(ucp_worker_create(context, &wparams, &worker));
    OK(ucp_worker_set_am_recv_handler(worker, &handler));
    OK(ucp_worker_get_address(worker, &address, &length));
    CHECK(length <= sizeof(shared->sides[me].address));
    memcpy(shared->sides[me].address, address, length);
    shared->sides[me].length = length;
    ucp_worker_release_address(worker, address);
}

static void connect_to_neighbours(void)
{
    for (int i = 1; i <= NEIGHBOURS && i < processes; i++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (ucp_address_t *)shared->sides[(me + i) % processes].address};
        /* An endpoint to a process that has ended may be refused. */
        if (ucp_ep_create(worker, &params, &eps[neighbours]) == UCS_OK) {
            neighbours++;
        }
    }
}

static char byte_at(size_t i, size_t length)
{
    return (char)(i * 31 + (i >> 12) + length);
}

static void fill(char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(i, length);
    }
}

static void check_bytes(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        CHECK(bytes[i] == byte_at(i, length));
    }
}

static void send_to_neighbours(void)
{
    ucs_status_ptr_t receives[NEIGHBOURS], sends[NEIGHBOURS];

    for (size_t length = 1; length <= longest; length *= 31) {
        for (int i = 0; i < neighbours; i++) {
            receives[i] = ucp_tag_recv_nbx(worker, in[i], length, length, ~0ul, &none);
        }
        fill(out, length);
        for (int i = 0; i < neighbours; i++) {
            sends[i] = ucp_tag_send_nbx(eps[i], out, length, length, &none);
            finish(ucp_am_send_nbx(eps[i], HANDLER, NULL, 0, out, length, &none));
        }
        for (int i = 0; i < neighbours; i++) {
            finish(sends[i]);
            finish(receives[i]);
            check_bytes(in[i], length);
        }
    }
    finish(ucp_worker_flush_nbx(worker, &none));
}

static void end(void)
{
    for (int i = 0; i < neighbours; i++) {
        finish(ucp_ep_close_nbx(eps[i], &none));
    }
}

static void close_worker(void)
{
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void healthy(void)
{
    open_worker();
    meet(0, processes);
    connect_to_neighbours();
    send_to_neighbours();
    meet(1, processes);
    end();
    meet(2, processes);
    close_worker();
}

/* Maps memory and publishes its key. */
static ucp_mem_h expose(void)
{
    side_t              *side = &shared->sides[me];
    ucp_mem_map_params_t map  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                 .address = in[1], .length = LONGEST};
    ucp_mem_h            memh;
    void                *key;
    size_t               length;

    OK(ucp_mem_map(context, &map, &memh));
    OK(ucp_rkey_pack(context, memh, &key, &length));
    CHECK(length <= sizeof(side->key));
    memcpy(side->key, key, length);
    side->memory = (uintptr_t)in[1];
    ucp_rkey_buffer_release(key);
    return memh;
}

/* Puts into the memory of the first neighbour, and gets what is there. */
static void access_neighbour(void)
{
    side_t    *next = &shared->sides[(me + 1) % processes];
    ucp_mem_h  memh;
    ucp_rkey_h rkey;

    memset(in, 0, sizeof(in));
    memh = expose();
    meet(3, processes);
    fill(out, LONGEST);
    OK(ucp_ep_rkey_unpack(eps[0], next->key, &rkey));
    finish(ucp_put_nbx(eps[0], out, LONGEST, next->memory, rkey, &none));
    finish(ucp_worker_flush_nbx(worker, &none));
    finish(ucp_get_nbx(eps[0], in[0], LONGEST, next->memory, rkey, &none));
    check_bytes(in[0], LONGEST);
    ucp_rkey_destroy(rkey);
    meet(4, processes);
    check_bytes(in[1], LONGEST);
    OK(ucp_mem_unmap(context, memh));
}

static void registered(void)
{
    longest = LONGEST;
    for (round_of = 0; round_of < CONTEXTS; round_of++) {
        neighbours = 0;
        open_worker();
        meet(0, processes);
        connect_to_neighbours();
        send_to_neighbours();
        access_neighbour();
        meet(1, processes);
        end();
        meet(2, processes);
        close_worker();
    }
}

/* Accesses of the others to memory that the last process has unmapped. */
static void access_unmapped(void (*access)(ucp_ep_h ep, uint64_t to, ucp_rkey_h rkey))
{
    side_t         *last   = &shared->sides[processes - 1];
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_ep_h        ep;
    ucp_rkey_h      rkey;

    open_worker();
    if (me == processes - 1) {
        OK(ucp_mem_unmap(context, expose()));
    }
    meet(0, processes);
    if (me != processes - 1) {
        params.address = (ucp_address_t *)last->address;
        OK(ucp_ep_create(worker, &params, &ep));
        OK(ucp_ep_rkey_unpack(ep, last->key, &rkey));
        for (int i = 0; i < REPEATS; i++) {
            access(ep, last->memory, rkey);
        }
        ucp_rkey_destroy(rkey);
    }
    meet(1, processes);
    _exit(0);
}

static void put(ucp_ep_h ep, uint64_t to, ucp_rkey_h rkey)
{
    finish(ucp_put_nbx(ep, out, SHORT, to, rkey, &none));
    finish(ucp_ep_flush_nbx(ep, &none));
}

static void put_with_signal(ucp_ep_h ep, uint64_t to, ucp_rkey_h rkey)
{
    ucpx_signal_t signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE, .value = 1};
    static int    sent;

    finish(ucpx_put_signal_nbx(ep, out, SHORT, to, rkey, &signal, &none));
    if (++sent % 10 == 0) {
        finish(ucp_ep_flush_nbx(ep, &none));
    }
}

static void puts_refused(void)
{
    access_unmapped(put);
}

static void signals_refused(void)
{
    access_unmapped(put_with_signal);
}

static void unhandled(void)
{
    open_worker();
    meet(0, processes);
    connect_to_neighbours();
    for (int i = 0; i < REPEATS; i++) {
        /* Some by rendezvous. */
        size_t length = i % 100 == 0 ? LONG : SHORT;
        finish(ucp_am_send_nbx(eps[0], UNHANDLED, NULL, 0, out, length, &none));
    }
    finish(ucp_worker_flush_nbx(worker, &none));
    meet(1, processes);
    end();
    meet(2, processes);
    _exit(0);
}

/* Sends for a second, whatever the statuses are. */
/* Sends that returned an error. */
static long refused_sends;

static void go_on_sending(void)
{
    time_t until = time(NULL) + 2;

    while (time(NULL) < until) {
        for (int i = 0; i < neighbours; i++) {
            ucs_status_ptr_t request = ucp_am_send_nbx(eps[i], HANDLER, NULL, 0, out, 10000, &none);
            refused_sends += UCS_PTR_IS_ERR(request);
            if (UCS_PTR_IS_PTR(request)) {
                ucp_request_free(request);
            }
        }
        for (int i = 0; i < 100; i++) {
            ucp_worker_progress(worker);
        }
        usleep(1000);
    }
}

static void killed(void)
{
    open_worker();
    meet(0, processes);
    connect_to_neighbours();
    send_to_neighbours();
    meet(1, processes);
    if (me == processes - 1) {
        raise(SIGKILL);
    }
    go_on_sending();
    meet(2, processes - 1);
    _exit(0);
}

static void stalled(void)
{
    ucs_status_ptr_t last;

    open_worker();
    meet(0, processes);
    connect_to_neighbours();
    send_to_neighbours();
    meet(1, processes);
    for (; me == processes - 1; usleep(1000)) {
        if (__atomic_load_n(&shared->arrived[2], __ATOMIC_ACQUIRE) == processes - 1) {
            raise(SIGKILL);
        }
    }
    for (int i = 0; i < FILLING; i++) {
        last = ucp_tag_send_nbx(eps[processes - 2 - me], out, FILLER, 1, &none);
    }
    CHECK(UCS_PTR_IS_PTR(last));
    meet(2, processes - 1);
    finish(last);
    _exit(0);
}

static void refused(void)
{
    open_worker();
    meet(0, processes);
    if (me == processes - 1) {
        close_worker();
        __atomic_add_fetch(&shared->arrived[1], 1, __ATOMIC_ACQ_REL);
        _exit(0);
    }
    meet(1, processes);
    connect_to_neighbours();
    /* Until the process that has ended is found to have: the creation of an endpoint fails, or a send. */
    int asked = processes - 1 < NEIGHBOURS ? processes - 1 : NEIGHBOURS;
    for (int i = 0; i < 15 && neighbours == asked && refused_sends == 0; i++) {
        go_on_sending();
    }
    go_on_sending();
    meet(2, processes - 1);
    _exit(0);
}

static void descriptors(void)
{
    struct rlimit limit;
    int           fd = 0, last = 0;

    open_worker();
    meet(0, processes);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd < 100) {
        last = fd;
    }
    limit.rlim_cur = last + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < FREE_DESCRIPTORS; i++) {
        close(last - i);
    }
    connect_to_neighbours();
    go_on_sending();
    meet(2, processes);
    _exit(0);
}

/* The last process puts data of which only the first bytes can be read. */
static void unreadable(void)
{
    side_t    *first = &shared->sides[0];
    char      *data  = mmap(NULL, LONGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ucp_rkey_h rkey;

    CHECK(data != MAP_FAILED && mprotect(data + READABLE, LONGEST - READABLE, PROT_NONE) == 0);
    open_worker();
    if (me == 0) {
        expose();
    }
    meet(0, processes);
    if (me == processes - 1) {
        connect_to_neighbours();
        OK(ucp_ep_rkey_unpack(eps[0], first->key, &rkey));
        finish(ucp_put_nbx(eps[0], data, LONGEST, first->memory, rkey, &none));
        finish(ucp_ep_flush_nbx(eps[0], &none));
    }
    meet(1, processes);
    _exit(0);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"healthy", healthy}, {"killed", killed}, {"stalled", stalled}, {"refused", refused},
             {"descriptors", descriptors}, {"registered", registered}, {"puts", puts_refused},
             {"signals", signals_refused}, {"unhandled", unhandled}, {"unreadable", unreadable}};

int main(int argc, char **argv)
{
    void (*run)(void) = NULL;
    int status, failed = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (argc == 3 && strcmp(argv[2], cases[i].name) == 0) {
            run = cases[i].run;
        }
    }
    processes = argc == 3 ? atoi(argv[1]) : 0;
    CHECK(run != NULL && processes > 1 && processes <= MAX_PROCESSES);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (me = 0; me < processes; me++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run();
            _exit(0);
        }
    }
    for (int left = processes; left > 0; left--) {
        CHECK(wait(&status) > 0);
        failed |= WIFEXITED(status) && WEXITSTATUS(status) != 0;
    }
    return failed;
}
