/*
 * Workers with endpoints that send nothing for a while, to a worker with many senders: they give their rings in its
 * shared memory back, and take them again with the next message. Nothing is lost, and the order is kept.
 */
#define _GNU_SOURCE
#include "check.h"
#include "finish.h"
#include "workers.h"
#include "../../pattern.h"
#include "../../resources.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARRIVAL = 1, MANY = 48, FEW = 8, SECONDS = 100, SETTLE_S = 30, LONG = 100000 };
/* The library's idle timeout, and the longest pause between two messages at random times. */
#define IDLE_TIMEOUT "100ms"
enum { PAUSE_MS = 900, RANDOM_S = 6 };
/* Mappings that may stay: a receiver closes unused rings only while it has more than 16, and a ring has two. */
enum { KEPT = 2 * 16 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Shared by the two processes of a case. */
typedef struct {
    address_t     receiver, senders[MANY], key;
    uint64_t      words;            /* address of the receiver's words */
    atomic_uint   opened, step, done;
    atomic_uint   sent[MANY];       /* messages, by sender */
} page_t;

typedef struct {
    ucp_worker_h worker;
    ucp_ep_h     ep;
    unsigned     failures;
    double       due; /* next message at random times */
} end_t;

static ucp_context_h open_context(void)
{
    setenv("UCX_SHM_IDLE_TIMEOUT", IDLE_TIMEOUT, 1);
    return new_context(UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64);
}

static ucp_worker_h open_worker(ucp_context_h context, address_t *address)
{
    ucp_worker_h worker = new_worker(context, UCS_THREAD_MODE_SINGLE);

    read_address(worker, address);
    return worker;
}

/* The receiver: messages that have begun and that are complete, by sender, and the words that senders change. */
static unsigned arrived[MANY], complete[MANY];
static uint64_t words[MANY * 2];

static page_t *page;

/* A long message that is being received. */
typedef struct {
    unsigned      number, sender;
    unsigned char bytes[LONG];
} long_t;

static void on_received(void *request, ucs_status_t status, size_t length, void *arg)
{
    long_t *message = arg;

    WANT_TRUE(status == UCS_OK && first_wrong(message->bytes, length, message->number) == length);
    complete[message->sender]++;
    free(message);
    ucp_request_free(request);
}

/* The header is the sender and the number of the message, the data are bytes of a pattern. */
static ucs_status_t on_arrival(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    unsigned from[2];

    WANT_TRUE(header_length == sizeof(from));
    memcpy(from, header, sizeof(from));
    WANT_TRUE(from[0] < MANY && from[1] == arrived[from[0]] + 1);
    arrived[from[0]]++;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        long_t             *message = malloc(sizeof(*message));
        ucp_request_param_t then    = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                       .cb.recv_am   = on_received,
                                       .user_data    = message};

        message->number = from[1];
        message->sender = from[0];
        WANT_TRUE(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(arg, data, message->bytes, length, &then)));
        return UCS_INPROGRESS;
    }
    WANT_TRUE(first_wrong(data, length, from[1]) == length);
    complete[from[0]]++;
    return UCS_OK;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    end_t *end = arg;

    (void)ep, (void)status;
    end->failures++;
}

/* --- the senders: one process with a worker each --- */

static end_t senders[MANY];

static void progress_senders(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        ucp_worker_progress(senders[i].worker);
    }
}

static void finish_sender(unsigned count, ucs_status_ptr_t request)
{
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        progress_senders(count);
        sched_yield(); /* the receiver may wait for this core */
    }
    WANT(UCS_OK, UCS_PTR_IS_PTR(request) ? ucp_request_check_status(request) : UCS_PTR_STATUS(request));
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

static void send_one(unsigned count, unsigned i, size_t length)
{
    static unsigned char bytes[LONG];
    unsigned             header[2] = {i, atomic_fetch_add(&page->sent[i], 1) + 1};

    fill(bytes, length, header[1]);
    finish_sender(count, ucp_am_send_nbx(senders[i].ep, ARRIVAL, header, sizeof(header), bytes, length, &plain));
}

/* An 8-byte message, a rendezvous, a put, an atomic operation and a flush by each sender. */
static void use_all(unsigned count)
{
    ucp_request_param_t eight = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    for (unsigned i = 0; i < count; i++) {
        uint64_t   word = atomic_load(&page->sent[i]) + 1000 * i, one = 1;
        ucp_rkey_h key;

        must(ucp_ep_rkey_unpack(senders[i].ep, page->key.bytes, &key), "ucp_ep_rkey_unpack");
        send_one(count, i, 8);
        send_one(count, i, LONG);
        finish_sender(count, ucp_put_nbx(senders[i].ep, &word, 8, page->words + 16 * i, key, &plain));
        finish_sender(count, ucp_atomic_op_nbx(senders[i].ep, UCP_ATOMIC_OP_ADD, &one, 1, page->words + 16 * i + 8, key,
                                               &eight));
        finish_sender(count, ucp_ep_flush_nbx(senders[i].ep, &plain));
        ucp_rkey_destroy(key);
    }
}

static void open_senders(unsigned count, ucp_context_h context)
{
    for (unsigned i = 0; i < count; i++) {
        senders[i].worker = open_worker(context, &page->senders[i]);
    }
}

static void connect_senders(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        senders[i].ep = connect_to(senders[i].worker, &page->receiver, on_failure, &senders[i]);
    }
}

/* Progresses until this process has at most so many mappings. */
static void until_unmapped(unsigned count, size_t mappings)
{
    double until = seconds_now() + SETTLE_S;

    while (resources_in_use().mappings > mappings && seconds_now() < until) {
        for (int i = 0; i < 100; i++) {
            progress_senders(count);
        }
    }
    WANT_TRUE(resources_in_use().mappings <= mappings);
}

static void step(unsigned number, unsigned count)
{
    atomic_store(&page->done, number);
    while (atomic_load(&page->step) < number) {
        progress_senders(count);
    }
}

static void close_senders(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        finish_sender(count, ucp_ep_close_nbx(senders[i].ep, &plain));
        WANT_TRUE(senders[i].failures == 0);
    }
    for (unsigned i = 0; i < count; i++) {
        ucp_worker_destroy(senders[i].worker);
    }
}

/* Twice: uses the endpoints, and gives all rings back. */
static void give_back(void)
{
    ucp_context_h context = open_context();
    size_t        few;

    open_senders(MANY, context);
    step(1, MANY);
    few = resources_in_use().mappings + KEPT;
    connect_senders(MANY);
    for (unsigned round = 2; round < 4; round++) {
        use_all(MANY);
        until_unmapped(MANY, few);
        step(round, MANY);
    }
    close_senders(MANY);
    ucp_cleanup(context);
}

/* Sends while the receiver answers the offer, or just before, or long after. */
static void send_at_random(void)
{
    ucp_context_h context = open_context();
    unsigned      seed    = 4711;
    double        until   = seconds_now() + RANDOM_S;

    open_senders(MANY, context);
    step(1, MANY);
    connect_senders(MANY);
    while (seconds_now() < until && !check_failed()) {
        for (unsigned i = 0; i < MANY; i++) {
            if (seconds_now() < senders[i].due) {
                continue;
            }
            for (unsigned messages = 1 + rand_r(&seed) % 3; messages > 0; messages--) {
                send_one(MANY, i, rand_r(&seed) % 8 == 0 ? LONG : rand_r(&seed) % 300);
            }
            senders[i].due = seconds_now() + rand_r(&seed) % PAUSE_MS * 1e-3;
        }
        progress_senders(MANY);
    }
    step(2, MANY);
    close_senders(MANY);
    ucp_cleanup(context);
}

/* Few senders keep their rings. */
static void keep(void)
{
    ucp_context_h context = open_context();
    size_t        used;

    open_senders(FEW, context);
    step(1, FEW);
    connect_senders(FEW);
    use_all(FEW);
    used = resources_in_use().mappings;
    for (double until = seconds_now() + 2; seconds_now() < until;) {
        progress_senders(FEW);
    }
    WANT_TRUE(resources_in_use().mappings >= used);
    use_all(FEW);
    step(2, FEW);
    close_senders(FEW);
    ucp_cleanup(context);
}

/* Gives the rings back, and is killed. */
static void be_killed(void)
{
    ucp_context_h context = open_context();
    size_t        few;

    open_senders(MANY, context);
    step(1, MANY);
    few = resources_in_use().mappings + KEPT;
    connect_senders(MANY);
    use_all(MANY);
    until_unmapped(MANY, few);
    step(2, MANY);
    for (;;) {
        progress_senders(MANY);
    }
}

/* --- the receiver --- */

static pid_t start(void (*run)(void))
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

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_mem_h     memory;
} receiver_t;

static receiver_t open_receiver(void)
{
    ucp_mem_map_params_t   params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                     .address    = words,
                                     .length     = sizeof(words)};
    receiver_t             own    = {.context = open_context()};
    void                  *key;
    size_t                 length;

    own.worker = open_worker(own.context, &page->receiver);
    set_handler(own.worker, ARRIVAL, on_arrival, own.worker);
    must(ucp_mem_map(own.context, &params, &own.memory), "ucp_mem_map");
    must(ucp_rkey_pack(own.context, own.memory, &key, &length), "ucp_rkey_pack");
    memcpy(page->key.bytes, key, length);
    ucp_rkey_buffer_release(key);
    page->words = (uint64_t)words;
    return own;
}

static void close_receiver(receiver_t own)
{
    must(ucp_mem_unmap(own.context, own.memory), "ucp_mem_unmap");
    ucp_worker_destroy(own.worker);
    ucp_cleanup(own.context);
}

/* Progresses until the senders have come to a step, and all that they have sent has arrived; then lets them go on. */
static void receive_until(ucp_worker_h worker, unsigned number)
{
    unsigned missing = 1;

    while (atomic_load(&page->done) < number || missing > 0) {
        ucp_worker_progress(worker);
        missing = 0;
        for (unsigned i = 0; i < MANY; i++) {
            missing += atomic_load(&page->sent[i]) - complete[i];
        }
    }
    atomic_store(&page->step, number);
}

static void want_words(unsigned count, unsigned rounds)
{
    for (unsigned i = 0; i < count; i++) {
        WANT_TRUE(words[2 * i] == 2 * (rounds - 1) + 1000 * i && words[2 * i + 1] == rounds);
    }
}

/* Runs senders to their end, which comes after this many steps. */
static void serve(void (*run)(void), unsigned steps, unsigned count, unsigned rounds)
{
    pid_t      pid = start(run);
    receiver_t own = open_receiver();
    int        status;

    for (unsigned number = 1; number <= steps; number++) {
        receive_until(own.worker, number);
    }
    while (waitpid(pid, &status, WNOHANG) == 0) {
        ucp_worker_progress(own.worker);
    }
    WANT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    want_words(count, rounds);
    close_receiver(own);
}

static void given_back(void)
{
    serve(give_back, 3, MANY, 2);
}

static void at_random(void)
{
    serve(send_at_random, 2, 0, 0);
}

static void few_stay(void)
{
    serve(keep, 2, FEW, 2);
}

/* Waits until each endpoint has failed, once, and closes it. */
static void close_failed(end_t *ends)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    double              until = seconds_now() + SETTLE_S;
    unsigned            failed;

    do {
        failed = 0;
        for (unsigned i = 0; i < MANY; i++) {
            ucp_worker_progress(ends[i].worker);
            failed += ends[i].failures;
        }
    } while (failed < MANY && seconds_now() < until);
    for (unsigned i = 0; i < MANY; i++) {
        WANT_TRUE(ends[i].failures == 1);
        finish_on(ends[i].worker, ucp_ep_close_nbx(ends[i].ep, &force), SETTLE_S);
    }
}

/* Senders that are killed after they have given their rings back: each endpoint to them fails once. */
static void killed_senders(void)
{
    static end_t ends[MANY];
    pid_t        pid = start(be_killed);
    receiver_t   own = open_receiver();

    receive_until(own.worker, 1);
    for (unsigned i = 0; i < MANY; i++) {
        ends[i].worker = own.worker;
        ends[i].ep     = connect_to(ends[i].worker, &page->senders[i], on_failure, &ends[i]);
    }
    receive_until(own.worker, 2);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close_failed(ends);
    close_receiver(own);
}

/* The senders are the parent: the receiver is killed when their rings are given back, or while they are. */
static void be_a_killed_receiver(void)
{
    receiver_t own = open_receiver();

    atomic_store(&page->opened, 1);
    receive_until(own.worker, 1);
    receive_until(own.worker, 2);
    for (;;) {
        ucp_worker_progress(own.worker);
    }
}

static void killed_receiver(void)
{
    pid_t         pid = start(be_a_killed_receiver);
    ucp_context_h context;

    while (atomic_load(&page->opened) == 0) {
        sched_yield();
    }
    context = open_context();
    open_senders(MANY, context);
    step(1, MANY);
    connect_senders(MANY);
    use_all(MANY);
    step(2, MANY);
    /* Offers are made after some tenths of a second; some are answered. */
    for (double until = seconds_now() + 0.4; seconds_now() < until;) {
        progress_senders(MANY);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close_failed(senders);
    for (unsigned i = 0; i < MANY; i++) {
        ucp_worker_destroy(senders[i].worker);
    }
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"given_back", given_back},         {"at_random", at_random},
    {"few_stay", few_stay},             {"killed_senders", killed_senders},
    {"killed_receiver", killed_receiver},
};

CHECK_MAIN(cases)
