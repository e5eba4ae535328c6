/* Calls into uTofu: the posts of each operation. Exact numbers, of the software Tofu's own counters. */
#define _GNU_SOURCE
#include "check.h"
#include "wire.h"

#include <ucp/api/ucpx.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY = 65536, TIMES = 5, MANY = 1000, SECONDS = 20, AM_ID = 3 };

typedef struct {
    size_t     address_length, key_length;
    uint8_t    address[4096], key[4096];
    uint64_t   memory;
    atomic_int ready;
} shared_t;

/* Counters of the wire. */
typedef struct {
    unsigned long posts, puts, piggybacks, gets, atomics, registrations, tcq_notices, local_notices, remote_notices;
} counts_t;

typedef ucs_status_ptr_t operation_t(size_t size);

static shared_t     *shared;
static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static ucp_rkey_h    rkey;
static pid_t         target;
static char          data[MEMORY];

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static counts_t counts(void)
{
    return (counts_t){
        .posts          = counter("posts"),
        .puts           = counter("puts"),
        .piggybacks     = counter("piggybacks"),
        .gets           = counter("gets"),
        .atomics        = counter("atomics"),
        .registrations  = counter("registrations"),
        .tcq_notices    = counter("tcq_notices"),
        .local_notices  = counter("local_notices"),
        .remote_notices = counter("remote_notices"),
    };
}

static void worker_open(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                  .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_worker_params_t mode   = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &mode, &worker));
}

static void be_target(void)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = data,
                                   .length     = sizeof(data)};
    ucp_address_t       *address;
    ucp_mem_h            memh;
    void                *key;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_node(1);
    worker_open();
    WANT(UCS_OK, ucp_mem_map(context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &key, &shared->key_length));
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &shared->address_length));
    memcpy(shared->key, key, shared->key_length);
    memcpy(shared->address, address, shared->address_length);
    shared->memory = (uintptr_t)data;
    atomic_store(&shared->ready, 1);
    for (;;) {
        if (ucp_worker_progress(worker) == 0) {
            usleep(100);
        }
    }
}

static void finish(ucs_status_ptr_t request)
{
    time_t       end    = time(NULL) + SECONDS;
    ucs_status_t status = UCS_PTR_IS_PTR(request) ? UCS_INPROGRESS : UCS_PTR_STATUS(request);

    while (status == UCS_INPROGRESS && time(NULL) < end) {
        ucp_worker_progress(worker);
        status = ucp_request_check_status(request);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    WANT(UCS_OK, status);
}

static ucs_status_ptr_t put(size_t size)
{
    return ucp_put_nbx(ep, data, size, shared->memory, rkey, &plain);
}

static ucs_status_ptr_t get(size_t size)
{
    return ucp_get_nbx(ep, data, size, shared->memory, rkey, &plain);
}

static ucs_status_ptr_t tag(size_t size)
{
    return ucp_tag_send_nbx(ep, data, size, 1, &plain);
}

static ucs_status_ptr_t put_with_signal(size_t size)
{
    static const ucpx_signal_t signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE, .value = -1};

    return ucpx_put_signal_nbx(ep, data, size, shared->memory, rkey, &signal, &plain);
}

static ucs_status_ptr_t flush(size_t size)
{
    (void)size;
    return ucp_ep_flush_nbx(ep, &plain);
}

static void begin(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    target = fork();
    if (target == 0) {
        be_target();
    }
    be_node(0);
    while (atomic_load(&shared->ready) == 0) {
        usleep(100);
    }
    worker_open();
    params.address = (const ucp_address_t *)shared->address;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep, shared->key, &rkey));
    /* Establishes the connection. */
    finish(tag(8));
    finish(put(8));
    finish(get(8));
    finish(flush(0));
}

static void end(void)
{
    kill(target, SIGKILL);
    waitpid(target, NULL, 0);
    ucp_rkey_destroy(rkey);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

/* Counters of one operation, from this many of them. */
static counts_t counted(operation_t *operation, size_t size)
{
    counts_t before = counts();

    for (int i = 0; i < TIMES; i++) {
        finish(operation(size));
    }
    counts_t after = counts();
    return (counts_t){
        .posts          = after.posts - before.posts,
        .puts           = after.puts - before.puts,
        .piggybacks     = after.piggybacks - before.piggybacks,
        .gets           = after.gets - before.gets,
        .atomics        = after.atomics - before.atomics,
        .registrations  = after.registrations - before.registrations,
        .tcq_notices    = after.tcq_notices - before.tcq_notices,
        .local_notices  = after.local_notices - before.local_notices,
        .remote_notices = after.remote_notices - before.remote_notices,
    };
}

static void are(counts_t wanted, counts_t got)
{
    WANT_TRUE(got.posts == wanted.posts);
    WANT_TRUE(got.puts == wanted.puts);
    WANT_TRUE(got.piggybacks == wanted.piggybacks);
    WANT_TRUE(got.gets == wanted.gets);
    WANT_TRUE(got.atomics == wanted.atomics);
    WANT_TRUE(got.registrations == wanted.registrations);
    WANT_TRUE(got.tcq_notices == wanted.tcq_notices);
    WANT_TRUE(got.local_notices == wanted.local_notices);
    WANT_TRUE(got.remote_notices == wanted.remote_notices);
}

/* In its descriptor, without a remote notice. */
static void short_puts(void)
{
    static const size_t sizes[] = {1, 4, 8, 9, 32};

    begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        are((counts_t){.posts = TIMES, .piggybacks = TIMES}, counted(put, sizes[i]));
    }
    end();
}

static void gets(void)
{
    static const size_t sizes[] = {1, 8, 64, 4000};

    begin();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        are((counts_t){.posts = TIMES, .gets = TIMES, .local_notices = TIMES}, counted(get, sizes[i]));
    }
    end();
}

/*
 * Header and payload in the descriptor; with a remote notice. The reader sends credits for each quarter of a ring:
 * these are fewer.
 */
static void short_messages(void)
{
    begin();
    are((counts_t){.posts = TIMES, .piggybacks = TIMES, .remote_notices = TIMES}, counted(tag, 8));
    end();
}

/* The data, and behind it a frame: each in its descriptor, without a reply. */
static void puts_with_signal(void)
{
    begin();
    are((counts_t){.posts = 2 * TIMES, .piggybacks = 2 * TIMES, .remote_notices = TIMES}, counted(put_with_signal, 8));
    end();
}

/* One, however many operations are in flight, and none if there are none. */
static void flushes(void)
{
    begin();
    are((counts_t){0}, counted(flush, 0));
    for (int i = 0; i < TIMES; i++) {
        for (int k = 0; k < TIMES; k++) {
            finish(put(8));
        }
        counts_t before = counts();
        finish(flush(0));
        counts_t after = counts();
        WANT_TRUE(after.posts - before.posts == 1);
        WANT_TRUE(after.local_notices - before.local_notices == 1);
    }
    end();
}

/* A pending flush delays nothing: operations behind it are posted in their own call, and each flush ends. */
static void behind_flushes(void)
{
    begin();
    for (int i = 0; i < TIMES; i++) {
        finish(put(8));
        ucs_status_ptr_t first = flush(0);
        WANT_TRUE(UCS_PTR_IS_PTR(first));
        counts_t before = counts();
        WANT_TRUE(put(8) == NULL);
        WANT_TRUE(tag(8) == NULL);
        counts_t after = counts();
        WANT_TRUE(after.posts - before.posts == 2);
        ucs_status_ptr_t reads[] = {get(8), get(4000)}, last = flush(0);
        WANT_TRUE(UCS_PTR_IS_PTR(last));
        finish(last);
        for (int k = 0; k < 2; k++) {
            WANT(UCS_OK, ucp_request_check_status(reads[k]));
            finish(reads[k]);
        }
        WANT(UCS_OK, ucp_request_check_status(first));
        finish(first);
    }
    end();
}

/*
 * Far more than may be unsignaled: the flush replies are polled inside of the calls, so that none has to wait for
 * progress.
 */
static void many_puts(void)
{
    begin();
    for (int i = 0; i < MANY; i++) {
        WANT_TRUE(put(8) == NULL);
    }
    finish(flush(0));
    /* Nor do those of a flush that is pending meanwhile. */
    finish(put(8));
    ucs_status_ptr_t flushed = flush(0);
    WANT_TRUE(UCS_PTR_IS_PTR(flushed));
    for (int i = 0; i < MANY; i++) {
        WANT_TRUE(put(8) == NULL);
    }
    finish(flushed);
    end();
}

/* Gets of a list whose keys alternate share tags: all are posted in the call, and so is one behind them. */
static void list_of_gets(void)
{
    enum { STEP = 16 };
    static void        *buffers[MANY];
    static size_t       lengths[MANY];
    static uint64_t     addrs[MANY];
    static ucp_rkey_h   rkeys[MANY];
    ucp_rkey_h          keys[]  = {NULL, NULL};
    ucp_dt_local_sgl_t  local   = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS,
                                   .buffers = buffers, .lengths = lengths};
    ucp_dt_remote_sgl_t there   = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                   .remote_addrs = addrs, .rkeys = rkeys};
    ucp_request_param_t param   = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                        UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(), .remote = &there, .remote_count = MANY,
    };

    begin();
    for (int i = 0; i < 2; i++) {
        WANT(UCS_OK, ucp_ep_rkey_unpack(ep, shared->key, &keys[i]));
    }
    for (int i = 0; i < MANY; i++) {
        buffers[i] = data + i * STEP;
        lengths[i] = 8;
        addrs[i]   = shared->memory + i * STEP;
        rkeys[i]   = keys[i % 2];
    }
    counts_t         before   = counts();
    ucs_status_ptr_t request  = ucp_get_nbx(ep, &local, MANY, UCP_REMOTE_ADDR_INVALID, UCP_RKEY_INVALID, &param);
    WANT_TRUE(counts().gets - before.gets == MANY);
    ucs_status_ptr_t behind = get(8);
    WANT_TRUE(counts().gets - before.gets == MANY + 1);
    finish(request);
    finish(behind);
    for (int i = 0; i < 2; i++) {
        ucp_rkey_destroy(keys[i]);
    }
    end();
}

static const case_t cases[] = {
    {"counts: puts in a descriptor", short_puts},
    {"counts: gets", gets},
    {"counts: gets of a list", list_of_gets},
    {"counts: messages in a descriptor", short_messages},
    {"counts: puts with signal", puts_with_signal},
    {"counts: flushes", flushes},
    {"counts: operations behind a flush", behind_flushes},
    {"counts: more puts than may be unsignaled", many_puts},
};

CHECK_MAIN(cases)
