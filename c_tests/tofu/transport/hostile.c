/*
 * A program that calls uTofu directly attacks a worker whose address it knows: its listener's memory, a ring granted to
 * the attacker, all other memory. The worker goes on, with connected peers and with new ones; connections whose rings
 * are overwritten fail. Nothing crashes, nothing hangs, and memory does not grow by what the attacker writes.
 */
#define _GNU_SOURCE
#include "check.h"
#include "connect.h"
#include "attacks.h"
#include "wire.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 60, BATCHES = 10, LITTLE = 1 << 20, MUCH = 2 << 20, LAST = -1 };

typedef struct {
    uint64_t   uid;
    size_t     length;
    uint8_t    address[4096];
    atomic_int ordered, done; /* batches */
    atomic_int size;          /* of one */
} shared_t;

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  attacked, companion;
static ucp_ep_h      to_attacked, to_companion;
enum { COMPANIONS, OTHERS, ATTACKEDS }; /* whose endpoint has failed */

static unsigned      failures[3];
static ucs_status_t  failure[3];
static pid_t         attacker;

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* --- the attacker's process --- */

static void attacker_main(attack_t *attack)
{
    uint32_t n = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_node(1);
    while (atomic_load(&shared->ordered) == 0) {
        usleep(100);
    }
    raw_open();
    target_t target = find(shared->address, shared->length, shared->uid);
    for (;;) {
        int ordered;
        while ((ordered = atomic_load(&shared->ordered)) == atomic_load(&shared->done)) {
            usleep(100); /* the attacked process wants the core, too */
        }
        if (ordered == LAST) {
            raw_close();
            exit(0);
        }
        for (int size = atomic_load(&shared->size); size > 0; size--) {
            attack(&target, n++);
        }
        atomic_fetch_add(&shared->done, 1);
    }
}

/* --- the attacked process --- */

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    size_t i = (size_t)arg;

    (void)failed;
    failures[i]++;
    failure[i] = status;
}

static void progress(void)
{
    ucp_worker_progress(attacked);
    ucp_worker_progress(companion);
}

static ucs_status_t finish(ucs_status_ptr_t request, ucp_worker_h other)
{
    time_t       end    = time(NULL) + SECONDS;
    ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_STATUS(request);

    while (status == UCS_INPROGRESS && time(NULL) < end) {
        progress();
        if (other != NULL) {
            ucp_worker_progress(other);
        }
        status = ucp_request_check_status(request);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    return status;
}

/* A message of several frames arrives whole. */
static void message(ucp_ep_h ep, ucp_worker_h to, ucp_worker_h other)
{
    static char      data[20000], came[sizeof(data)];
    static char      mark;
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(to, came, sizeof(came), 1, UINT64_MAX, &plain);

    memset(data, ++mark, sizeof(data));
    WANT(UCS_OK, finish(ucp_tag_send_nbx(ep, data, sizeof(data), 1, &plain), other));
    WANT(UCS_OK, finish(receive, other));
    WANT_TRUE(memcmp(data, came, sizeof(data)) == 0);
}

static ucp_worker_h worker_new(void)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker = NULL;

    WANT(UCS_OK, ucp_worker_create(context, &params, &worker));
    return worker;
}

/* A new worker connects, sends a message, and is destroyed. */
static void new_worker_connects(void)
{
    ucp_worker_h        worker = worker_new();
    ucp_request_param_t force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_h            ep     = connect_workers(worker, attacked, on_failure, (void *)OTHERS);

    message(ep, attacked, worker);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep, &force), worker));
    ucp_worker_destroy(worker);
}

static void still_connected(void)
{
    message(to_attacked, attacked, NULL);
    message(to_companion, companion, NULL);
}

static long resident(void)
{
    long  pages[2] = {0, 0};
    FILE *file     = fopen("/proc/self/statm", "r");

    WANT_TRUE(file != NULL && fscanf(file, "%ld %ld", &pages[0], &pages[1]) == 2);
    fclose(file);
    return pages[1] * sysconf(_SC_PAGESIZE);
}

static void publish_address(void)
{
    ucp_address_t            *address;
    ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};

    WANT(UCS_OK, ucp_worker_get_address(attacked, &address, &shared->length));
    WANT(UCS_OK, ucp_worker_address_query(address, &attr));
    memcpy(shared->address, address, shared->length);
    shared->uid = attr.worker_uid;
    ucp_worker_release_address(attacked, address);
}

static void begin(attack_t *attack)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};

    alarm(SECONDS);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    attacker = fork();
    if (attacker == 0) {
        attacker_main(attack);
    }
    be_node(0);
    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    attacked     = worker_new();
    companion    = worker_new();
    to_attacked  = connect_workers(companion, attacked, on_failure, (void *)COMPANIONS);
    to_companion = connect_workers(attacked, companion, on_failure, (void *)ATTACKEDS);
    still_connected();
    publish_address();
}

static void end_attack(void)
{
    int status;

    atomic_store(&shared->ordered, LAST);
    waitpid(attacker, &status, 0);
    WANT_TRUE(status == 0); /* the attacker has found everything it needs */
}

static void end(void)
{
    end_attack();
    ucp_worker_destroy(attacked);
    ucp_worker_destroy(companion);
    ucp_cleanup(context);
}

/* Runs this many steps; meanwhile and afterwards the worker progresses, unless `awake` is 0. */
static void attack_steps(int count, int awake)
{
    time_t end = time(NULL) + SECONDS;

    atomic_store(&shared->size, count);
    int batch = atomic_fetch_add(&shared->ordered, 1) + 1;
    while (atomic_load(&shared->done) != batch && time(NULL) < end && waitpid(attacker, NULL, WNOHANG) == 0) {
        if (awake) {
            progress();
        }
        sched_yield();
    }
    WANT_TRUE(atomic_load(&shared->done) == batch);
    while (awake && ucp_worker_progress(attacked) != 0) {
    }
}

/*
 * No connection is disturbed, and memory grows little. `batch` steps at a time, after each of which all peers send
 * messages.
 */
static void without_effect(attack_t *attack, int batch, int batches, long growth)
{
    long before = 0;

    begin(attack);
    for (int i = 0; i < batches; i++) {
        attack_steps(batch, 1);
        still_connected();
        new_worker_connects();
        before = i == batches / 2 ? resident() : before; /* lazily created state exists now */
    }
    WANT_TRUE(resident() - before < growth);
    WANT_TRUE(failures[COMPANIONS] + failures[OTHERS] + failures[ATTACKEDS] == 0);
    end();
}

static void at_listener(void)
{
    without_effect(garbage_at_listener, BATCH, BATCHES, LITTLE);
}

static void wrong(void)
{
    without_effect(wrong_ring_requests, TICKET_SLOTS / 2, BATCHES, LITTLE);
}

static void replayed(void)
{
    without_effect(replay_ring_requests, BATCH, BATCHES, LITTLE);
}

static void overheard(void)
{
    without_effect(echo_ring_requests, BATCH, BATCHES, LITTLE);
}

static void tickets(void)
{
    without_effect(unclaimed_tickets, 1, 4, MUCH);
}

static void unexpected(void)
{
    without_effect(unexpected_notices, BATCH, BATCHES, LITTLE);
}

static void nonsense(void)
{
    /* Each request was of a new peer, which is released. Rings are cut from slabs of 1 MiB, and their memory is not
     * used again: more of a slab may be in use than before. Peers that stay would take five times as much. */
    without_effect(nonsense_in_a_ring, TICKET_SLOTS / 2, BATCHES, MUCH);
}

/* New peers have rings, and use them, while a failed peer writes to those that it had before. */
static void late(void)
{
    ucp_worker_h new_peers[FORMER_RINGS];
    ucp_ep_h     ep[FORMER_RINGS];
    time_t       until = time(NULL) + SECONDS;
    int          i     = 0;

    begin(late_puts);
    attack_steps(FORMER_RINGS, 1);
    still_connected();
    for (i = 0; i < FORMER_RINGS; i++) {
        new_peers[i] = worker_new();
        ep[i]        = connect_workers(new_peers[i], attacked, on_failure, (void *)OTHERS);
        message(ep[i], attacked, new_peers[i]);
    }
    atomic_store(&shared->size, BATCHES * BATCH);
    atomic_store(&shared->ordered, 2);
    for (i = 0; atomic_load(&shared->done) != 2 && time(NULL) < until && !check_failed(); i++) {
        message(ep[i % FORMER_RINGS], attacked, new_peers[i % FORMER_RINGS]);
    }
    WANT_TRUE(atomic_load(&shared->done) == 2 && i > FORMER_RINGS);
    WANT_TRUE(failures[COMPANIONS] + failures[OTHERS] + failures[ATTACKEDS] == 0);
    for (i = 0; i < FORMER_RINGS; i++) {
        ucp_worker_destroy(new_peers[i]);
    }
    end();
}

/* Overwritten connections fail: each request ends all the same, and a new peer can connect. */
static void everywhere(void)
{
    begin(garbage_everywhere);
    for (int i = 0; i < BATCHES; i++) {
        static char      data[5000];
        ucs_status_ptr_t sent[2];
        attack_steps(BATCH, 1);
        sent[0] = ucp_tag_send_nbx(to_attacked, data, sizeof(data), 2, &plain);
        sent[1] = ucp_tag_send_nbx(to_companion, data, sizeof(data), 2, &plain);
        for (int k = 0; k < 2; k++) {
            WANT_TRUE(finish(sent[k], NULL) != UCS_INPROGRESS);
        }
    }
    WANT_TRUE(failures[COMPANIONS] <= 1 && failures[ATTACKEDS] <= 1);
    end_attack();
    ucp_worker_destroy(attacked);
    attacked    = worker_new();
    to_attacked = connect_workers(companion, attacked, on_failure, (void *)OTHERS);
    message(to_attacked, attacked, NULL);
    new_worker_connects();
    WANT_TRUE(failures[OTHERS] == 0);
    ucp_worker_destroy(attacked);
    ucp_worker_destroy(companion);
    ucp_cleanup(context);
}

/*
 * More notices than the queue has room for, while the worker does not poll: the lost ones are unknown, and all
 * connections fail.
 */
static void flood(void)
{
    ucp_ep_h     late;
    ucs_status_t status;

    begin(unexpected_notices);
    attack_steps(10000, 0);
    status = finish(ucp_tag_send_nbx(to_companion, "late", 4, 2, &plain), NULL);
    WANT_TRUE(status == UCS_OK || status == UCS_ERR_IO_ERROR);
    for (time_t end = time(NULL) + SECONDS; failures[COMPANIONS] == 0 && time(NULL) < end;) {
        progress();
    }
    WANT_TRUE(failures[ATTACKEDS] == 1 && failures[COMPANIONS] == 1);
    WANT(UCS_ERR_IO_ERROR, failure[ATTACKEDS]);
    /* It reads the disconnect message, or writes first to a ring that is freed. */
    WANT_TRUE(failure[COMPANIONS] == UCS_ERR_CONNECTION_RESET || failure[COMPANIONS] == UCS_ERR_IO_ERROR);
    /* An endpoint of the attacked worker reports the failure. */
    late = connect_workers(attacked, companion, on_failure, (void *)OTHERS);
    finish(ucp_tag_send_nbx(late, "later", 5, 2, &plain), NULL);
    WANT(UCS_ERR_IO_ERROR, finish(ucp_ep_flush_nbx(late, &plain), NULL));
    ucp_worker_destroy(attacked);
    attacked    = worker_new();
    failures[OTHERS] = 0;
    to_attacked = connect_workers(companion, attacked, on_failure, (void *)OTHERS);
    message(to_attacked, attacked, NULL);
    new_worker_connects();
    WANT_TRUE(failures[OTHERS] == 0);
    end();
}

static const case_t cases[] = {
    {"hostile: garbage in the listener", at_listener},
    {"hostile: requests with a wrong field", wrong},
    {"hostile: replayed requests", replayed},
    {"hostile: requests read from the listener", overheard},
    {"hostile: unclaimed tickets", tickets},
    {"hostile: unexpected notices", unexpected},
    {"hostile: invalid frames in a ring", nonsense},
    {"hostile: late puts", late},
    {"hostile: garbage everywhere", everywhere},
    {"hostile: a flood of notices", flood},
};

CHECK_MAIN(cases)
