//! Soak test: processes of several threads send each other tagged and active messages, put, get and add, at random and
//! verified, for any time.
//!
//! usage: soak [-s SECONDS] [-p PROCESSES] [-t THREADS] [-r SEED] [-m LARGEST MESSAGE]
//! Every process has one worker, in UCS_THREAD_MODE_MULTI if it has several threads. The last line of output is the
//! number of operations, or the first error. Only the public API: it runs on any UCX.
#define _GNU_SOURCE
#include "../check.h"

#include <ucp/api/ucp.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PROCESSES = 16,
    MAX_THREADS   = 8,
    BLOB          = 4096,      /* of an address or a key */
    RECEIVES      = 8,         /* posted by each thread */
    IN_FLIGHT     = 16,        /* messages that a thread sends before it waits for the oldest */
    SLOT          = 256 << 10, /* bytes of each window that one thread of one process may write */
    SYNC_EVERY    = 16,        /* one of this many messages is sent synchronously: receivers cannot fall behind far */
    AM_ID         = 5,
    STUCK_SECONDS = 60 /* seconds without any progress, under load, before an operation counts as stuck */
};

typedef enum { TAGGED, ACTIVE, PUT, GET, ADD, KINDS } kind_t;
static const char *kind_names[] = {"tagged", "active", "put", "get", "add"};

/** Shared by the processes outside of UCP: their addresses, and counters of their operations. */
typedef struct shared {
    struct {
        size_t        address_length, key_length;
        unsigned char address[BLOB], key[BLOB];
        uint64_t      window; /* base address of its memory */
    } process[MAX_PROCESSES];
    atomic_int  arrived[8];                                        /* one barrier each */
    atomic_int  drained;                                           /* threads that have sent all their messages */
    atomic_int  failed;                                            /* a process has found an error */
    atomic_long sent[MAX_PROCESSES][MAX_PROCESSES][MAX_THREADS];   /* tagged, from, to, thread */
    atomic_long sent_active[MAX_PROCESSES][MAX_PROCESSES];         /* from, to */
    atomic_long added[MAX_PROCESSES][MAX_PROCESSES * MAX_THREADS]; /* by target window and by origin */
    atomic_long done[KINDS], bytes;
} shared_t;

/** In front of every message; what follows is the pattern of `seed`. */
typedef struct message {
    uint32_t from, thread, seed, length; /* of the whole message */
    uint64_t sequence;
} message_t;

static shared_t *shared;
static int       processes = 3, threads = 2, me;
static unsigned  seed    = 1;
static double    seconds = 10;
static size_t    largest = 200000;

static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      endpoints[MAX_PROCESSES];
static ucp_rkey_h    keys[MAX_PROCESSES];
static ucp_mem_h     memory;
static unsigned char *window;
static atomic_long   active_received, active_open;
static double        stop_at;

typedef struct thread {
    int       number;
    uint64_t  random;
    long      expected[MAX_PROCESSES]; /* the next sequence number from each process */
    long      next[MAX_PROCESSES];     /* the next one to each process */
    long      received;
    unsigned char *scratch;
    struct {
        unsigned char *buffer;
        void          *request;
    } receive[RECEIVES];
    unsigned oldest; /* receive of all that are posted */
    struct {
        unsigned char *buffer;
        void          *request;
    } send[IN_FLIGHT];
    unsigned sends;
} thread_t;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void check_report(const char *failure)
{
    if (!atomic_exchange(&shared->failed, 1)) {
        fprintf(stderr, "FAILED in process %d: %s\n", me, failure);
    }
    _exit(1);
}

static void check_status(ucs_status_t status, const char *what)
{
    CHECK(status == UCS_OK, "%s: %s", what, ucs_status_string(status));
}

static uint32_t draw(thread_t *t)
{
    t->random = t->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(t->random >> 33);
}

/** Small ones most of the time: any number of bits is as likely as any other. */
static size_t draw_length(thread_t *t, size_t most)
{
    int bits = 64 - __builtin_clzl(most);

    return draw(t) & ((1ul << draw(t) % (bits + 1)) - 1) % (most + 1);
}

static unsigned char pattern(size_t index, uint32_t of)
{
    return (unsigned char)(index * 31 + (index >> 8) * 7 + (index >> 16) * 13 + of * 101 + 5);
}

static void fill(unsigned char *bytes, size_t from, size_t to, uint32_t of)
{
    for (size_t i = from; i < to; i++) {
        bytes[i] = pattern(i, of);
    }
}

static void verify(const unsigned char *bytes, size_t from, size_t to, uint32_t of, const char *what)
{
    for (size_t i = from; i < to; i++) {
        CHECK(bytes[i] == pattern(i, of), "%s: byte %zu of %zu is wrong", what, i, to);
    }
}

static void count(kind_t kind, size_t length)
{
    atomic_fetch_add_explicit(&shared->done[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&shared->bytes, (long)length, memory_order_relaxed);
}

/** One iteration of every loop. Yields if nothing happened: there are more threads than cores. */
static void progress(void)
{
    if (ucp_worker_progress(worker) == 0) {
        sched_yield();
    }
    if (atomic_load_explicit(&shared->failed, memory_order_relaxed)) {
        _exit(1);
    }
}

#define UNTIL(condition, what)                                               \
    do {                                                                     \
        double since_ = now();                                               \
        while (!(condition)) {                                               \
            progress();                                                      \
            CHECK(now() - since_ < STUCK_SECONDS, "stuck: %s", what);             \
        }                                                                    \
    } while (0)

/** Waits for the request of a call. Not for sends: those may wait for receives, see `wait_for_send`. */
static ucs_status_t wait_for(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_RAW_STATUS(request);
    }
    UNTIL(ucp_request_check_status(request) != UCS_INPROGRESS, what);
    status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

/* --- tagged messages: to the same thread of another process, or of its own --- */

static ucp_tag_t tag_of(int thread, int from)
{
    return (ucp_tag_t)thread << 32 | (ucp_tag_t)from;
}

static void post_receive(thread_t *t, unsigned slot)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};

    /* From any sender: the mask leaves the sender open. */
    t->receive[slot].request = ucp_tag_recv_nbx(worker, t->receive[slot].buffer, largest, tag_of(t->number, 0),
                                                0xffffffff00000000ull, &param);
    CHECK(UCS_PTR_IS_PTR(t->receive[slot].request), "ucp_tag_recv_nbx");
}

/** Checks the receives in the order in which they were posted: the messages of each sender must arrive so. */
static void look_at_receives(thread_t *t)
{
    unsigned slot = t->oldest % RECEIVES;
    ucp_tag_recv_info_t info;
    message_t head;
    ucs_status_t status;

    while ((status = ucp_tag_recv_request_test(t->receive[slot].request, &info)) != UCS_INPROGRESS) {
        check_status(status, "receive");
        CHECK(info.length >= sizeof(head), "a message of %zu bytes", info.length);
        memcpy(&head, t->receive[slot].buffer, sizeof(head));
        CHECK(head.length == info.length && head.from < (unsigned)processes &&
                  info.sender_tag == tag_of(t->number, (int)head.from),
              "the head of a message: length %u instead of %zu, from %u", head.length, info.length, head.from);
        CHECK((long)head.sequence == t->expected[head.from], "message %lu of process %u arrived instead of %ld",
              (unsigned long)head.sequence, head.from, t->expected[head.from]);
        t->expected[head.from]++;
        verify(t->receive[slot].buffer, sizeof(head), info.length, head.seed, "tagged message");
        ucp_request_free(t->receive[slot].request);
        post_receive(t, slot);
        t->received++;
        slot = ++t->oldest % RECEIVES;
    }
}

/**
 * Waits for a message to be sent. It may wait for a receive of the other side, whose thread may wait here for one of
 * ours: by rendezvous nothing is sent before it has been received. So this thread's receives go on meanwhile.
 */
static void wait_for_send(thread_t *t, void *request)
{
    double since = now();
    ucs_status_t status;

    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        look_at_receives(t);
        progress();
        CHECK(now() - since < STUCK_SECONDS, "stuck: a message is not sent");
    }
    check_status(status, "send");
    ucp_request_free(request);
}

/** Makes room for one more message: waits until the oldest in flight has been sent. */
static unsigned char *send_buffer(thread_t *t)
{
    unsigned slot = t->sends % IN_FLIGHT;

    if (t->send[slot].request != NULL) {
        wait_for_send(t, t->send[slot].request);
        t->send[slot].request = NULL;
    }
    return t->send[slot].buffer;
}

static void keep_send(thread_t *t, ucs_status_ptr_t request)
{
    CHECK(!UCS_PTR_IS_ERR(request), "send: %s", ucs_status_string(UCS_PTR_STATUS(request)));
    t->send[t->sends++ % IN_FLIGHT].request = request;
}

static size_t make_message(thread_t *t, unsigned char *buffer, uint64_t sequence)
{
    size_t length = sizeof(message_t) + draw_length(t, largest - sizeof(message_t));
    message_t head = {(unsigned)me, (unsigned)t->number, draw(t), (unsigned)length, sequence};

    memcpy(buffer, &head, sizeof(head));
    fill(buffer, sizeof(head), length, head.seed);
    return length;
}

static void send_tagged(thread_t *t, int to)
{
    unsigned char *buffer = send_buffer(t);
    ucp_request_param_t param = {.op_attr_mask = 0};
    size_t length = make_message(t, buffer, (uint64_t)t->next[to]);
    ucp_dt_iov_t pieces[3];
    ucp_tag_t tag = tag_of(t->number, me);

    if (t->next[to]++ % SYNC_EVERY == SYNC_EVERY - 1) {
        keep_send(t, ucp_tag_send_sync_nbx(endpoints[to], buffer, length, tag, &param));
    } else if (draw(t) % 8 == 0 && length < 2000) {
        /* In pieces; the list must live until the end, so this one is waited for. */
        size_t third = length / 3;

        pieces[0] = (ucp_dt_iov_t){buffer, third};
        pieces[1] = (ucp_dt_iov_t){buffer + third, 0};
        pieces[2] = (ucp_dt_iov_t){buffer + third, length - third};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype = ucp_dt_make_iov();
        ucs_status_ptr_t request = ucp_tag_send_nbx(endpoints[to], pieces, 3, tag, &param);

        if (UCS_PTR_IS_PTR(request)) {
            wait_for_send(t, request);
        } else {
            check_status(UCS_PTR_RAW_STATUS(request), "send of a list");
        }
    } else {
        keep_send(t, ucp_tag_send_nbx(endpoints[to], buffer, length, tag, &param));
    }
    atomic_fetch_add(&shared->sent[me][to][t->number], 1);
    count(TAGGED, length);
}

/* --- active messages: handled by any thread that progresses --- */

static void check_active(const message_t *head, const unsigned char *data, size_t length)
{
    CHECK(head->length == length && head->from < (unsigned)processes, "active message of %zu bytes, should be %u",
          length, head->length);
    verify(data, sizeof(message_t), length, head->seed, "active message");
    CHECK(length < sizeof(*head) || memcmp(data, head, sizeof(*head)) == 0, "the head of an active message");
    atomic_fetch_add(&active_received, 1);
}

typedef struct fetch {
    message_t     head;
    unsigned char data[];
} fetch_t;

static void on_fetched(void *request, ucs_status_t status, size_t length, void *user_data)
{
    fetch_t *fetch = user_data;

    check_status(status, "data of an active message");
    check_active(&fetch->head, fetch->data, length);
    free(fetch);
    ucp_request_free(request);
    atomic_fetch_sub(&active_open, 1);
}

static ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *info)
{
    (void)arg;
    CHECK(header_length == sizeof(message_t), "a header of %zu bytes", header_length);
    if (!(info->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        message_t head;

        memcpy(&head, header, sizeof(head));
        check_active(&head, data, length);
        return UCS_OK;
    }
    fetch_t *fetch = malloc(sizeof(*fetch) + length);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb.recv_am = on_fetched, .user_data = fetch};

    memcpy(&fetch->head, header, sizeof(fetch->head));
    atomic_fetch_add(&active_open, 1);
    CHECK(UCS_PTR_IS_PTR(ucp_am_recv_data_nbx(worker, data, fetch->data, length, &param)), "ucp_am_recv_data_nbx");
    return UCS_INPROGRESS;
}

static void send_active(thread_t *t, int to)
{
    unsigned char *buffer = send_buffer(t);
    size_t length = make_message(t, buffer, 0);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS};

    /* The header is the beginning of the message itself, which stays as it is until the message has been sent. */
    switch (draw(t) % 4) {
    case 0:
        param.flags = UCP_AM_SEND_FLAG_RNDV;
        break;
    case 1:
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        break;
    }
    keep_send(t, ucp_am_send_nbx(endpoints[to], AM_ID, buffer, sizeof(message_t), buffer, length, &param));
    atomic_fetch_add(&shared->sent_active[me][to], 1);
    count(ACTIVE, length);
}

/* --- remote memory: each thread of each process has a slot of its own in every window --- */

static size_t slot_offset(int process, int thread)
{
    return (size_t)(process * threads + thread) * SLOT;
}

/** Behind the slots: counters of 64 and of 32 bits for each thread of each process. */
static size_t counter_offset(int process, int thread)
{
    return (size_t)processes * (size_t)threads * SLOT + (size_t)(process * threads + thread) * 16;
}

static void put_and_get(thread_t *t, int to)
{
    size_t length = 1 + draw_length(t, SLOT - 1), offset = draw(t) % (SLOT - length + 1);
    uint64_t remote = shared->process[to].window + slot_offset(me, t->number) + offset;
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint32_t of = draw(t);

    fill(t->scratch, 0, length, of);
    check_status(wait_for(ucp_put_nbx(endpoints[to], t->scratch, length, remote, keys[to], &param), "put"), "put");
    check_status(wait_for(ucp_ep_flush_nbx(endpoints[to], &param), "flush"), "flush");
    count(PUT, length);
    memset(t->scratch, 0xcc, length + 1);
    check_status(wait_for(ucp_get_nbx(endpoints[to], t->scratch, length, remote, keys[to], &param), "get"), "get");
    verify(t->scratch, 0, length, of, "what was put, got back");
    CHECK(t->scratch[length] == 0xcc, "a get of %zu bytes wrote one more", length);
    count(GET, length);
}

static void add(thread_t *t, int to)
{
    uint64_t remote = shared->process[to].window + counter_offset(me, t->number), one = 1, before = 0;
    uint32_t one_small = 1, before_small = 0;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER};
    long have = atomic_load(&shared->added[to][me * threads + t->number]);

    param.datatype = ucp_dt_make_contig(8);
    param.reply_buffer = &before;
    check_status(
        wait_for(ucp_atomic_op_nbx(endpoints[to], UCP_ATOMIC_OP_ADD, &one, 1, remote, keys[to], &param), "add"), "add");
    CHECK((long)before == have, "a counter without other writers was %lu, should be %ld", (unsigned long)before, have);
    param.datatype = ucp_dt_make_contig(4);
    param.reply_buffer = &before_small;
    check_status(
        wait_for(ucp_atomic_op_nbx(endpoints[to], UCP_ATOMIC_OP_ADD, &one_small, 1, remote + 8, keys[to], &param),
                 "add"),
        "add of 32 bits");
    CHECK(before_small == (uint32_t)have, "a counter of 32 bits was %u, should be %ld", before_small, have);
    atomic_store(&shared->added[to][me * threads + t->number], have + 1);
    count(ADD, 12);
}

/* --- the life of a process --- */

/** Barrier of this thread of all processes. */
static void meet(int where)
{
    atomic_fetch_add(&shared->arrived[where], 1);
    UNTIL(atomic_load(&shared->arrived[where]) >= processes, "waiting for the other processes");
}

static void open_worker(void)
{
    ucp_params_t        params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                  .features   = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 |
                                                UCP_FEATURE_AMO64,
                                  .mt_workers_shared = threads > 1};
    ucp_worker_params_t worker_params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = threads > 1 ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID, .cb = on_active};
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                              UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
                                .length = counter_offset(processes, 0)};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_address_t *address;
    void *key;

    check_status(ucp_init(&params, NULL, &context), "ucp_init");
    check_status(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    check_status(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    /* Memory allocated by the library in one process, by the program in the next. */
    if (me % 2 == 0) {
        map.flags = UCP_MEM_MAP_ALLOCATE;
    } else {
        map.address = aligned_alloc(4096, (map.length + 4095) / 4096 * 4096);
    }
    check_status(ucp_mem_map(context, &map, &memory), "ucp_mem_map");
    check_status(ucp_mem_query(memory, &attr), "ucp_mem_query");
    window = attr.address;
    memset(window, 0, map.length);
    shared->process[me].window = (uintptr_t)window;
    check_status(ucp_worker_get_address(worker, &address, &shared->process[me].address_length), "address");
    check_status(ucp_rkey_pack(context, memory, &key, &shared->process[me].key_length), "key");
    CHECK(shared->process[me].address_length <= BLOB && shared->process[me].key_length <= BLOB,
          "a large address or key");
    memcpy(shared->process[me].address, address, shared->process[me].address_length);
    memcpy(shared->process[me].key, key, shared->process[me].key_length);
    ucp_worker_release_address(worker, address);
    ucp_rkey_buffer_release(key);
}

static void connect_all(void)
{
    for (int p = 0; p < processes; p++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (const ucp_address_t *)shared->process[p].address};

        check_status(ucp_ep_create(worker, &params, &endpoints[p]), "ucp_ep_create");
        check_status(ucp_ep_rkey_unpack(endpoints[p], shared->process[p].key, &keys[p]), "ucp_ep_rkey_unpack");
    }
}

static void *run_thread(void *arg)
{
    thread_t *t = arg;

    while (now() < stop_at) {
        int to = (int)(draw(t) % (unsigned)processes);

        switch (draw(t) % 8) {
        case 0:
            put_and_get(t, to);
            break;
        case 1:
            add(t, to);
            break;
        case 2:
        case 3:
            send_active(t, to);
            break;
        default:
            send_tagged(t, to);
        }
        look_at_receives(t);
        progress();
    }
    for (int i = 0; i < IN_FLIGHT; i++, t->sends++) {
        send_buffer(t);
    }
    /* The others may still wait for this thread to receive. */
    atomic_fetch_add(&shared->drained, 1);
    double since = now();
    while (atomic_load(&shared->drained) < processes * threads) {
        look_at_receives(t);
        progress();
        CHECK(now() - since < STUCK_SECONDS, "stuck: waiting for the other threads");
    }
    return NULL;
}

static void start_thread(thread_t *t, int number)
{
    t->number = number;
    t->random = seed * 1000003ull + (unsigned)(me * MAX_THREADS + number);
    t->scratch = malloc(SLOT + 1);
    for (int i = 0; i < RECEIVES; i++) {
        t->receive[i].buffer = malloc(largest);
        post_receive(t, (unsigned)i);
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        t->send[i].buffer = malloc(largest);
    }
}

static long sent_to_me(int thread)
{
    long sum = 0;

    for (int p = 0; p < processes; p++) {
        sum += thread < 0 ? atomic_load(&shared->sent_active[p][me]) : atomic_load(&shared->sent[p][me][thread]);
    }
    return sum;
}

/** All messages have arrived, no more, and all sums are right. */
static void settle(thread_t *all)
{
    for (int i = 0; i < threads; i++) {
        double since = now();

        while (all[i].received < sent_to_me(i)) {
            look_at_receives(&all[i]);
            progress();
            CHECK(now() - since < STUCK_SECONDS, "%ld of %ld tagged messages arrived", all[i].received, sent_to_me(i));
        }
    }
    UNTIL(atomic_load(&active_received) >= sent_to_me(-1) && atomic_load(&active_open) == 0,
          "active messages do not come");
    meet(2);
    for (int i = 0; i < threads; i++) {
        look_at_receives(&all[i]);
        CHECK(all[i].received == sent_to_me(i), "%ld tagged messages arrived, %ld were sent", all[i].received,
              sent_to_me(i));
    }
    CHECK(atomic_load(&active_received) == sent_to_me(-1), "too many active messages arrived");
    for (int p = 0; p < processes; p++) {
        for (int i = 0; i < threads; i++) {
            uint64_t wide;
            uint32_t narrow;
            long want = atomic_load(&shared->added[me][p * threads + i]);

            memcpy(&wide, window + counter_offset(p, i), sizeof(wide));
            memcpy(&narrow, window + counter_offset(p, i) + 8, sizeof(narrow));
            CHECK((long)wide == want && narrow == (uint32_t)want, "a counter is %lu and %u, should be %ld",
                  (unsigned long)wide, narrow, want);
        }
    }
}

static void close_all(thread_t *all)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (int i = 0; i < threads; i++) {
        for (int r = 0; r < RECEIVES; r++) {
            ucp_request_cancel(worker, all[i].receive[r].request);
            CHECK(wait_for(all[i].receive[r].request, "cancelled receive") == UCS_ERR_CANCELED,
                  "a receive was not cancelled");
            free(all[i].receive[r].buffer);
        }
        for (int s = 0; s < IN_FLIGHT; s++) {
            free(all[i].send[s].buffer);
        }
        free(all[i].scratch);
    }
    for (int p = 0; p < processes; p++) {
        ucp_rkey_destroy(keys[p]);
        check_status(wait_for(ucp_ep_close_nbx(endpoints[p], &param), "close"), "close");
    }
    meet(3);
    check_status(ucp_mem_unmap(context, memory), "ucp_mem_unmap");
    if (me % 2 == 1) {
        free(window);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static void run_process(void)
{
    static thread_t all[MAX_THREADS];
    pthread_t ids[MAX_THREADS];

    open_worker();
    meet(0);
    connect_all();
    for (int i = 0; i < threads; i++) {
        start_thread(&all[i], i);
    }
    meet(4);
    stop_at = now() + seconds;
    for (int i = 1; i < threads; i++) {
        CHECK(pthread_create(&ids[i], NULL, run_thread, &all[i]) == 0, "no thread");
    }
    run_thread(&all[0]);
    for (int i = 1; i < threads; i++) {
        pthread_join(ids[i], NULL);
    }
    settle(all);
    close_all(all);
    exit(0);
}

static void report(double after)
{
    printf("[%4.0f s]", after);
    for (int k = 0; k < KINDS; k++) {
        printf(" %s %ld", kind_names[k], atomic_load(&shared->done[k]));
    }
    printf(", %ld MB\n", atomic_load(&shared->bytes) / 1000000);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pid_t children[MAX_PROCESSES];
    int option, left, bad = 0;
    double began = now(), reported = began;

    while ((option = getopt(argc, argv, "s:p:t:r:m:")) != -1) {
        switch (option) {
        case 's': seconds = atof(optarg); break;
        case 'p': processes = atoi(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'r': seed = (unsigned)atoi(optarg); break;
        case 'm': largest = (size_t)atol(optarg); break;
        default:
            fprintf(stderr, "usage: soak [-s seconds] [-p processes] [-t threads] [-r seed] [-m largest]\n");
            return 2;
        }
    }
    if (processes < 1 || processes > MAX_PROCESSES || threads < 1 || threads > MAX_THREADS ||
        largest < 2 * sizeof(message_t)) {
        fprintf(stderr, "soak: at most %d processes of %d threads, messages of %zu bytes and more\n", MAX_PROCESSES,
                MAX_THREADS, 2 * sizeof(message_t));
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    for (me = 0; me < processes; me++) {
        children[me] = fork();
        if (children[me] == 0) {
            run_process();
        }
    }
    for (left = processes; left > 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);

        if (ended <= 0) {
            nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
            if (now() - reported >= 10) {
                reported = now();
                report(reported - began);
            }
            continue;
        }
        left--;
        if (status != 0) {
            bad = 1;
            atomic_store(&shared->failed, 1);
            if (WIFSIGNALED(status)) {
                fprintf(stderr, "FAILED: process %d was ended by signal %d\n", (int)ended, WTERMSIG(status));
            }
        }
    }
    report(now() - began);
    printf("%s: %d processes of %d threads, seed %u\n", bad ? "FAILED" : "fine", processes, threads, seed);
    (void)children;
    return bad;
}
