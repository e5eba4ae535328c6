/*
 * Live peers without an endpoint any more: a worker holds as many resources as before, and connects to them again
 * as for the first time. And peers that are created and destroyed in a process that lives.
 *
 * DETACHED_PEERS=N: this many are created and destroyed; resources are printed at each power of ten. The bytes include
 * freed memory that the C library keeps for the thread, up to 7 blocks of each size and some 230 KB in all, which fills
 * up over time; with GLIBC_TUNABLES=glibc.malloc.tcache_count=0 none is kept.
 */
#define _GNU_SOURCE
#include "check.h"
#include "workers.h"
#include "process_limits.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 1, ANSWER, BYE, IDS, MANY = 400, PEERS = 1000, ROUNDS = 30, BUFFER = 512, SECONDS = 150, SETTLE = 30 };
/* Overhead of the heap itself, with freed memory it keeps. A peer that is never released takes 700 bytes. */
/* Deaths are detected with a delay: this many peers are created and destroyed between two measurements, or count /
 * LOOKS if that is more. */
enum { AT_ONCE = 100, LOOKS = 1000 };
enum { BYTES_SLACK = 256 << 10, MAPPINGS_SLACK = 8 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Shared by the two processes of a case. */
typedef struct {
    atomic_uint opened; /* workers of the helper that exist, or have existed */
    atomic_uint met;    /* those that main has finished with */
    atomic_int  over;
    address_t   address[MANY];
} page_t;

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      reply; /* sender of the last HELLO */
    unsigned      hellos, answers, byes;
    address_t     from;
} end_t;

static page_t *page;

/* Frees a request; the call that returned it must not have failed. */
static void release_begun(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        release_request(request);
    } else {
        must(UCS_PTR_STATUS(request), "a request");
    }
}

static void finish(end_t *end, ucs_status_ptr_t request)
{
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(end->worker);
        sched_yield();
    }
    release_begun(request);
}

static ucs_status_t on_hello(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param)
{
    end_t *end = arg;

    (void)data, (void)length;
    end->hellos++;
    end->reply       = param->reply_ep;
    end->from.length = header_length;
    memcpy(end->from.bytes, header, header_length);
    if (end->reply != NULL) {
        release_begun(send_header(end->reply, ANSWER, NULL, 0, 0));
    }
    return UCS_OK;
}

static ucs_status_t count_one(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length, (void)param;
    ++*(unsigned *)arg;
    return UCS_OK;
}

static void open_end(end_t *end, ucp_context_h context)
{
    memset(end, 0, sizeof(*end));
    end->context = context;
    end->worker  = new_worker(context, UCS_THREAD_MODE_SINGLE);
    set_handler(end->worker, HELLO, on_hello, end);
    set_handler(end->worker, ANSWER, count_one, &end->answers);
    set_handler(end->worker, BYE, count_one, &end->byes);
}

static pid_t helper(void (*run)(void))
{
    pid_t pid;

    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(page != MAP_FAILED);
    alarm(SECONDS);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(SECONDS);
        run();
        _exit(check_failed());
    }
    WANT_TRUE(pid > 0);
    return pid;
}

static void end_helper(pid_t pid)
{
    int status;

    atomic_store(&page->over, 1);
    WANT_TRUE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* --- many live workers --- */

/* Replies, by an endpoint of its own, to the sender of a HELLO without a reply endpoint that contains an address. */
static void serve(end_t *end)
{
    ucp_worker_progress(end->worker);
    if (end->reply == NULL && end->hellos > 0 && end->from.length > 0) {
        ucp_ep_h ep = connect_to(end->worker, &end->from, NULL, NULL);

        end->hellos = 0;
        finish(end, send_header(ep, ANSWER, NULL, 0, 0));
        finish(end, ucp_ep_close_nbx(ep, &plain));
    }
}

static void living_workers(void)
{
    static end_t  ends[MANY];
    ucp_context_h context = new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM);
    time_t        until   = 0;
    resources_t   most;

    for (int i = 0; i < MANY; i++) {
        open_end(&ends[i], context);
        read_address(ends[i].worker, &page->address[i]);
        atomic_fetch_add(&page->opened, 1);
    }
    most = resources_in_use();
    most.mappings += MAPPINGS_SLACK;
    /* The first message makes what each worker has from then on. */
    most.bytes = SIZE_MAX;
    do {
        for (int i = 0; i < MANY; i++) {
            serve(&ends[i]);
        }
        sched_yield();
        until = atomic_load(&page->over) ? until : time(NULL) + SETTLE;
    } while (!atomic_load(&page->over) || (!resources_at_most(resources_in_use(), most) && time(NULL) < until));
    want_at_most(most, resources_in_use());
    for (int i = 0; i < MANY; i++) {
        ucp_worker_destroy(ends[i].worker);
    }
    ucp_cleanup(context);
}

/* Connects to each of many workers in turn: `flags` of the message, which contains this worker's address if `both`. */
static void meet(end_t *end, unsigned flags, int both)
{
    address_t own;

    read_address(end->worker, &own);
    for (int i = 0; i < MANY; i++) {
        ucp_ep_h ep      = connect_to(end->worker, &page->address[i], NULL, NULL);
        unsigned answers = end->answers;

        finish(end, send_header(ep, HELLO, own.bytes, both ? own.length : 0, flags));
        while ((flags != 0 || both) && end->answers == answers) {
            ucp_worker_progress(end->worker);
            sched_yield();
        }
        finish(end, ucp_ep_close_nbx(ep, &plain));
    }
}

/* `kept`: bytes of state that may be kept for a peer. */
static void detach(unsigned flags, int both, size_t kept)
{
    pid_t       pid = helper(living_workers);
    end_t       end;
    resources_t most;

    open_end(&end, new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM));
    while (atomic_load(&page->opened) < MANY) {
        ucp_worker_progress(end.worker);
        sched_yield();
    }
    most = resources_in_use();
    most.mappings += MAPPINGS_SLACK;
    most.bytes += BYTES_SLACK + kept * MANY;
    for (int round = 0; round < 2; round++) {
        meet(&end, flags, both);
        want_at_most(most, progress_until_at_most(end.worker, most, SETTLE));
    }
    WANT_TRUE(end.answers == (flags != 0 || both ? 2 * MANY : 0));
    end_helper(pid);
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

static void one_way_workers(void)
{
    detach(0, 0, 0);
}

static void answering_workers(void)
{
    /* They could still reply by the reply endpoint: its numbers are kept. */
    detach(UCP_AM_SEND_FLAG_REPLY, 0, 700);
}

static void connected_workers(void)
{
    detach(0, 1, 0);
}

/* --- two workers that connect repeatedly --- */

/* Bytes of a stream that identify the round and the sender. */
static void swap(end_t *end, ucp_ep_h ep, unsigned round, unsigned side)
{
    enum { WORDS = 512 };
    unsigned            out[WORDS], in[WORDS] = {0};
    size_t              length;
    ucp_request_param_t whole = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    ucs_status_ptr_t    sent, got;

    for (unsigned i = 0; i < WORDS; i++) {
        out[i] = round << 16 | side << 15 | i;
    }
    got  = ucp_stream_recv_nbx(ep, in, sizeof(in), &length, &whole);
    sent = ucp_stream_send_nbx(ep, out, sizeof(out), &plain);
    finish(end, sent);
    finish(end, got);
    for (unsigned i = 0; i < WORDS; i++) {
        WANT_TRUE(in[i] == (round << 16 | !side << 15 | i));
    }
}

/* Progresses for a while, or, in each third round, until the other worker's memory is not mapped any more. */
static int rest(end_t *end, unsigned round, unsigned *seed, size_t mappings)
{
    enum { LONGEST_MS = 500 };
    struct timespec from, now;
    long            ms = (long)(rand_r(seed) % LONGEST_MS);

    if (round % 3 == 0) {
        resources_t most = {.descriptors = SIZE_MAX, .mappings = mappings, .bytes = SIZE_MAX};

        return progress_until_at_most(end->worker, most, SETTLE).mappings <= mappings;
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        ucp_worker_progress(end->worker);
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
    return 0;
}

static void meet_again(unsigned side)
{
    unsigned seed = 4711 + side, detached = 0;
    end_t    end;
    size_t   mappings;

    open_end(&end, new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM));
    read_address(end.worker, &page->address[side]);
    atomic_fetch_add(&page->opened, 1);
    while (atomic_load(&page->opened) < 2) {
        sched_yield();
    }
    /* The first ones allocate permanent memory: the stack of a thread, arenas. */
    for (unsigned round = 1; round <= ROUNDS && !check_failed(); round++) {
        ucp_ep_h ep = connect_to(end.worker, &page->address[!side], NULL, NULL);

        swap(&end, ep, round, side);
        mappings = resources_in_use().mappings;
        finish(&end, ucp_ep_close_nbx(ep, &plain));
        detached += (unsigned)rest(&end, round, &seed, mappings - 1);
    }
    WANT_TRUE(detached == ROUNDS / 3);
    /* Pending requests of the other worker need this one's progress. */
    atomic_fetch_add(&page->met, 1);
    while (atomic_load(&page->met) < 2) {
        ucp_worker_progress(end.worker);
        sched_yield();
    }
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

static void other_side(void)
{
    meet_again(1);
}

static void streams_between_two(void)
{
    pid_t pid = helper(other_side);

    meet_again(0);
    end_helper(pid);
}

/* --- workers that are created and destroyed --- */

static unsigned peers(void)
{
    const char *number = getenv("DETACHED_PEERS");

    return number != NULL ? (unsigned)atol(number) : PEERS;
}

/* One after the other; every second one is destroyed before the endpoint to it is closed. */
static void short_lived_workers(void)
{
    ucp_context_h context = new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM);
    end_t         end;

    alarm(0);
    for (unsigned i = 0; i < peers() && !atomic_load(&page->over); i++) {
        open_end(&end, context);
        read_address(end.worker, &page->address[0]);
        atomic_store(&page->opened, i + 1);
        while ((end.hellos == 0 || (i % 2 == 0 && atomic_load(&page->met) <= i)) && !atomic_load(&page->over)) {
            ucp_worker_progress(end.worker);
            sched_yield();
        }
        ucp_worker_destroy(end.worker);
    }
    ucp_cleanup(context);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void destroyed_workers(void)
{
    unsigned    count = peers(), next = 10, at_once = count / LOOKS > AT_ONCE ? count / LOOKS : AT_ONCE;
    pid_t       pid   = helper(short_lived_workers);
    double      spent = 0;
    resources_t most, many;
    end_t       end;

    alarm(getenv("DETACHED_PEERS") != NULL ? 0 : SECONDS);
    open_end(&end, new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM));
    most = resources_in_use();
    most.mappings += MAPPINGS_SLACK;
    most.bytes += BYTES_SLACK;
    for (unsigned i = 0; i < count && !check_failed(); i++) {
        unsigned answers = end.answers;
        double   begin;
        ucp_ep_h ep;

        while (atomic_load(&page->opened) <= i) {
            ucp_worker_progress(end.worker);
            sched_yield();
        }
        begin = seconds();
        ep    = connect_to(end.worker, &page->address[0], NULL, NULL);
        finish(&end, send_header(ep, HELLO, NULL, 0, UCP_AM_SEND_FLAG_REPLY));
        while (i % 2 == 0 && end.answers == answers) {
            ucp_worker_progress(end.worker);
            sched_yield();
        }
        release_begun(ucp_ep_close_nbx(ep, &plain));
        spent += seconds() - begin;
        atomic_store(&page->met, i + 1);
        if (i % at_once == at_once - 1) {
            want_at_most(most, progress_until_at_most(end.worker, most, SETTLE));
        }
        if (getenv("DETACHED_PEERS") != NULL && i + 1 == next) {
            many = progress_until_at_most(end.worker, most, SETTLE);
            printf("    %8u peers: %zu descriptors, %zu mappings, %zu bytes, %.1f us each\n", next, many.descriptors,
                   many.mappings, many.bytes, spent * 1e6 / (next - next / 10));
            fflush(stdout);
            next *= 10;
            spent = 0;
        }
    }
    many = progress_until_at_most(end.worker, most, SETTLE);
    want_at_most(most, many);
    end_helper(pid);
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
}

/* Endpoints by which nothing was ever sent, to workers that go after them: neither knows of the other. */
static void unused_endpoints(void)
{
    ucp_context_h context = new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM);
    end_t         end, other;
    resources_t   most;

    alarm(SECONDS);
    open_end(&end, new_context(UCP_FEATURE_AM | UCP_FEATURE_STREAM));
    most = resources_in_use();
    most.mappings += MAPPINGS_SLACK;
    most.bytes += BYTES_SLACK;
    for (unsigned i = 0; i < PEERS && !check_failed(); i++) {
        address_t address;

        open_end(&other, context);
        read_address(other.worker, &address);
        finish(&end, ucp_ep_close_nbx(connect_to(end.worker, &address, NULL, NULL), &plain));
        ucp_worker_destroy(other.worker);
    }
    want_at_most(most, progress_until_at_most(end.worker, most, SETTLE));
    ucp_worker_destroy(end.worker);
    ucp_cleanup(end.context);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"one_way_workers", one_way_workers},
    {"answering_workers", answering_workers},
    {"connected_workers", connected_workers},
    {"streams_between_two", streams_between_two},
    {"destroyed_workers", destroyed_workers},
    {"unused_endpoints", unused_endpoints},
};

CHECK_MAIN(cases)
