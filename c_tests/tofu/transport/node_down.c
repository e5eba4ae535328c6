/*
 * A node goes down under traffic: the endpoints to it fail, with the matching status and a log line with uTofu's code;
 * all operations in flight end; the worker goes on with the others. It comes up again: a new endpoint works, with any
 * number of operations in flight. And a node whose process has ended: its rkeys address nothing, and harm no other
 * process.
 */
#include "check.h"
#include "finish.h"
#include "wire.h"

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

/* The parent is node 0. */
enum {
    NODES   = 3,
    FAILING = 1,
    WELL    = 2,
    SECONDS = 15,
    ROUNDS  = 3,
    OPS     = 7,
    BATCHES = 20,
    LONG    = 256 << 10,
    NUMBERS = 126
};

static const char code[] = "UTOFU_ERR_MRQ_PEER";

/* Addresses that a node publishes. */
typedef struct {
    atomic_int ready, over, failed;
    size_t     address_length, key_length;
    uint64_t   memory;
    char       address[4096], key[4096];
} published_t;

static const ucp_request_param_t none = {.op_attr_mask = 0};

static published_t        *published; /* indexed by node, the last slot is of a process that starts later */
static ucp_context_h  context;
static ucp_worker_h   worker;
static ucp_ep_h       ep[NODES];
static ucp_rkey_h     rkey[NODES];
static unsigned       failures[NODES];
static ucs_status_t   failure;
static pid_t          child[NODES + 1];
static char           log_file[64];
static unsigned char *own;

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)failed;
    ++*(unsigned *)arg;
    failure = status;
}

static void *memory(size_t length, int flags)
{
    void *bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    return bytes;
}

static void open_context(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features   = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
}

/* --- a passive node --- */

static void serve(int node, published_t *mine)
{
    static char           data[LONG];
    unsigned char        *bytes = memory(LONG, MAP_PRIVATE);
    ucp_mem_map_params_t  map   = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = bytes,
                                   .length     = LONG};
    ucs_status_ptr_t      receive = NULL;
    ucp_address_t        *address;
    ucp_mem_h             memh;
    void                 *key;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_node(node);
    open_context();
    WANT(UCS_OK, ucp_mem_map(context, &map, &memh));
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &key, &mine->key_length));
    WANT(UCS_OK, ucp_worker_get_address(worker, &address, &mine->address_length));
    WANT_TRUE(mine->key_length <= sizeof(mine->key) && mine->address_length <= sizeof(mine->address));
    memcpy(mine->key, key, mine->key_length);
    memcpy(mine->address, address, mine->address_length);
    mine->memory = (uintptr_t)bytes;
    atomic_store(&mine->ready, 1);
    while (!atomic_load(&mine->over)) {
        ucp_worker_progress(worker);
        if (receive == NULL) {
            receive = ucp_tag_recv_nbx(worker, data, LONG, 1, ~0ull, &none);
        }
        if (!UCS_PTR_IS_PTR(receive)) {
            receive = NULL;
        } else if (ucp_request_check_status(receive) != UCS_INPROGRESS) {
            ucp_request_free(receive);
            receive = NULL;
        }
    }
    ucp_rkey_buffer_release(key);
    ucp_worker_release_address(worker, address);
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    _exit(check_failed());
}

/* Before this process has called rucp. */
static void start(int node, int place)
{
    child[place] = fork();
    if (child[place] == 0) {
        serve(node, &published[place]);
    }
}

static void wait_ready(int place)
{
    time_t end = time(NULL) + SECONDS;

    while (!atomic_load(&published[place].ready) && time(NULL) < end) {
        usleep(1000);
    }
    WANT_TRUE(atomic_load(&published[place].ready));
}

/* --- node 0 --- */

static ucs_status_t finish(ucs_status_ptr_t request)
{
    return finish_on(worker, request, SECONDS);
}

static void connect_to(int node, const published_t *there, const void *key)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)there->address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_failure, .arg = &failures[node]},
    };

    failures[node] = 0;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &ep[node]));
    WANT(UCS_OK, ucp_ep_rkey_unpack(ep[node], key, &rkey[node]));
}

static void close_to(int node)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

    ucp_rkey_destroy(rkey[node]);
    WANT(UCS_OK, finish(ucp_ep_close_nbx(ep[node], &param)));
}

static ucs_status_ptr_t add(int node, uint64_t *reply)
{
    static const uint64_t one   = 1;
    ucp_request_param_t   param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE |
                                                   (reply != NULL ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0),
                                   .datatype     = ucp_dt_make_contig(sizeof(one)),
                                   .reply_buffer = reply};

    return ucp_atomic_op_nbx(ep[node], UCP_ATOMIC_OP_ADD, &one, 1, published[node].memory, rkey[node], &param);
}

/* One of each operation: the first word is for the atomic operations. */
static void begin(int node, uint64_t to, ucs_status_ptr_t *requests, uint64_t *reply)
{
    requests[0] = ucp_put_nbx(ep[node], own, 8, to + 8, rkey[node], &none);
    requests[1] = ucp_put_nbx(ep[node], own, LONG - 8, to + 8, rkey[node], &none);
    requests[2] = ucp_get_nbx(ep[node], own + LONG, 8, to + 8, rkey[node], &none);
    requests[3] = ucp_get_nbx(ep[node], own + LONG, LONG - 8, to + 8, rkey[node], &none);
    requests[4] = add(node, NULL);
    requests[5] = add(node, reply);
    requests[6] = ucp_tag_send_nbx(ep[node], own, 1000, 1, &none);
}

static void works(int node)
{
    ucs_status_ptr_t requests[OPS];
    uint64_t         reply;

    memset(own, node, LONG);
    begin(node, published[node].memory, requests, &reply);
    for (int n = 0; n < OPS; n++) {
        WANT(UCS_OK, finish(requests[n]));
    }
    WANT(UCS_OK, finish(ucp_ep_flush_nbx(ep[node], &none)));
    memset(own + LONG, 0, LONG);
    WANT(UCS_OK, finish(ucp_get_nbx(ep[node], own + LONG, LONG - 8, published[node].memory + 8, rkey[node], &none)));
    WANT_TRUE(memcmp(own, own + LONG, LONG - 8) == 0);
}

/* Posts as many atomic operations as there are tags, without progress between them. Returns how many got one. */
static unsigned long post_with_all_numbers(int node)
{
    static uint64_t  replies[NUMBERS];
    ucs_status_ptr_t requests[NUMBERS];
    unsigned long    before = counter("atomics"), posted;

    for (int n = 0; n < NUMBERS; n++) {
        requests[n] = add(node, &replies[n]);
    }
    posted = counter("atomics") - before;
    for (int n = 0; n < NUMBERS; n++) {
        WANT(UCS_OK, finish(requests[n]));
        WANT_TRUE(n == 0 || replies[n] == replies[n - 1] + 1);
    }
    return posted;
}

/* All tags are free, sooner or later: the worker's own operations have some for a while. */
static void has_all_numbers(int node)
{
    time_t        end = time(NULL) + SECONDS;
    unsigned long posted;

    do {
        ucp_worker_progress(worker);
        posted = post_with_all_numbers(node);
    } while (posted != NUMBERS && time(NULL) < end);
    WANT_TRUE(posted == NUMBERS);
}

static int lines(const char *name)
{
    FILE *all = fopen(log_file, "r");
    char  line[512];
    int   found = 0;

    while (all != NULL && fgets(line, sizeof(line), all) != NULL) {
        found += strstr(line, "has failed") != NULL && strstr(line, name) != NULL;
    }
    if (all != NULL) {
        fclose(all);
    }
    return found;
}

static void wait_failure(void)
{
    time_t end = time(NULL) + SECONDS;

    while (failures[FAILING] == 0 && time(NULL) < end) {
        ucp_worker_progress(worker);
    }
    WANT_TRUE(failures[FAILING] == 1);
}

static void open_all(void)
{
    published = memory((NODES + 1) * sizeof(published_t), MAP_SHARED);
    own  = memory(2 * LONG, MAP_PRIVATE);
    for (int node = 1; node < NODES; node++) {
        start(node, node);
    }
}

static void connect_all(void)
{
    snprintf(log_file, sizeof(log_file), "/tmp/down.%d.log", getpid());
    unlink(log_file);
    setenv("UCX_LOG_LEVEL", "diag", 1);
    setenv("UCX_LOG_FILE", log_file, 1);
    be_node(0);
    open_context();
    for (int node = 1; node < NODES; node++) {
        wait_ready(node);
        connect_to(node, &published[node], published[node].key);
        works(node);
    }
}

static void close_all(void)
{
    close_to(FAILING);
    close_to(WELL);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    for (int i = 1; i <= NODES; i++) {
        int status = 0;

        atomic_store(&published[i].over, 1);
        WANT_TRUE(child[i] == 0 || (waitpid(child[i], &status, 0) == child[i] && status == 0));
    }
    unlink(log_file);
}

/* `delay`: all operations are in flight when the node goes down, else they complete before or start after. */
static void node_fails(int delay)
{
    ucs_status_ptr_t requests[NODES][BATCHES][OPS];
    uint64_t         replies[BATCHES];
    ucs_status_t     status;
    int              before = lines(code), bad = 0;

    if (delay) {
        fault("delay_us=200000");
    }
    for (int i = 0; i < BATCHES; i++) {
        if (i == BATCHES / 2 && !delay) {
            fault("node_down=2");
        }
        for (int node = 1; node < NODES; node++) {
            begin(node, published[node].memory, requests[node][i], &replies[i]);
        }
    }
    if (delay) {
        fault("delay_us=0,node_down=2");
    }
    wait_failure();
    WANT(UCS_ERR_CONNECTION_RESET, failure);
    WANT_TRUE(lines(code) == before + 1);
    for (int i = 0; i < BATCHES; i++) {
        for (int n = 0; n < OPS; n++) {
            WANT(UCS_OK, finish(requests[WELL][i][n]));
            status = finish(requests[FAILING][i][n]);
            WANT_TRUE(status == UCS_OK || status == UCS_ERR_CONNECTION_RESET);
            bad += status != UCS_OK;
        }
    }
    /* Operations in flight may have arrived on a busy machine: then a keepalive flush fails. */
    WANT_TRUE(bad > 0 || delay);
    WANT(UCS_ERR_CONNECTION_RESET, finish(ucp_ep_flush_nbx(ep[FAILING], &none)));
    WANT_TRUE(failures[FAILING] == 1 && failures[WELL] == 0);
    works(WELL);
}

/* While it is down it is unreachable. */
static void node_stays_failed(void)
{
    int before = lines(code);

    close_to(FAILING);
    connect_to(FAILING, &published[FAILING], published[FAILING].key);
    SURVIVE(finish(ucp_put_nbx(ep[FAILING], own, 8, published[FAILING].memory + 8, rkey[FAILING], &none)));
    WANT(UCS_ERR_CONNECTION_RESET, finish(ucp_ep_flush_nbx(ep[FAILING], &none)));
    wait_failure();
    WANT(UCS_ERR_CONNECTION_RESET, failure);
    WANT_TRUE(lines(code) == before + 1);
    works(WELL);
}

static void node_recovers(int delay)
{
    open_all();
    connect_all();
    for (int round = 0; round < ROUNDS; round++) {
        node_fails(delay);
        node_stays_failed();
        fault("node_down=0");
        close_to(FAILING);
        connect_to(FAILING, &published[FAILING], published[FAILING].key);
        works(FAILING);
        has_all_numbers(FAILING);
        has_all_numbers(WELL);
    }
    WANT_TRUE(failures[FAILING] == 0 && failures[WELL] == 0);
    close_all();
}

static void between(void)
{
    node_recovers(0);
}

static void on_the_way(void)
{
    node_recovers(1);
}

/* Another process is on the node then. */
static void keys(void)
{
    ucs_status_ptr_t requests[OPS];
    uint64_t         reply;
    int              status;

    open_all();
    start(FAILING, NODES);
    connect_all();
    wait_ready(NODES);
    kill(child[FAILING], SIGKILL);
    WANT_TRUE(waitpid(child[FAILING], &status, 0) == child[FAILING]);
    child[FAILING] = 0;
    for (int round = 0; round < 2; round++) {
        begin(FAILING, published[FAILING].memory, requests, &reply);
        for (int n = 0; n < OPS; n++) {
            WANT_TRUE(finish(requests[n]) != UCS_INPROGRESS);
        }
        wait_failure();
        WANT(UCS_ERR_CONNECTION_RESET, failure);
        WANT_TRUE(lines(code) == round + 1);
        /* A failed endpoint sends nothing, whatever the rkey; a new one to an ended process fails. */
        begin(FAILING, published[FAILING].memory, requests, &reply);
        for (int n = 0; n < OPS; n++) {
            WANT(UCS_ERR_CONNECTION_RESET, finish(requests[n]));
        }
        works(WELL);
        close_to(FAILING);
        connect_to(FAILING, &published[FAILING], published[FAILING].key);
    }
    close_to(FAILING);
    /* The rkey of the ended process, with its successor on the node. */
    connect_to(FAILING, &published[NODES], published[FAILING].key);
    begin(FAILING, published[FAILING].memory, requests, &reply);
    for (int n = 0; n < OPS; n++) {
        WANT_TRUE(finish(requests[n]) != UCS_INPROGRESS);
    }
    WANT_TRUE(finish(ucp_ep_flush_nbx(ep[FAILING], &none)) < 0);
    works(WELL);
    close_to(FAILING);
    published[FAILING].memory = published[NODES].memory;
    connect_to(FAILING, &published[NODES], published[NODES].key);
    works(FAILING);
    has_all_numbers(FAILING);
    close_all();
}

static const case_t cases[] = {
    {"node_down: a node goes down between operations, and comes up", between},
    {"node_down: a node goes down with operations in flight, and comes up", on_the_way},
    {"node_down: rkeys of an ended process", keys},
};

CHECK_MAIN(cases)
