//! Instructions of one operation, counted by callgrind: all workers in one process, so that the count repeats exactly.
//!
//! Run under `valgrind --tool=callgrind --collect-atstart=no`: each operation runs a while uncounted, then some times
//! counted, and the counts are dumped under `N x NAME`, again and again: the least is the operation's own, without the
//! library's periodic work. Over shared memory a sample is so short that some samples have no periodic work; adapters
//! complete in batches, and a sample holds several. `baseline` is the cost of counting itself; "send" and "receive" are
//! halves of a transfer. Worker A sends; B receives, over shared memory unless UCX_TLS is set. Operations with several
//! senders come last: the other senders' workers are created before the first operation that needs them.
#include "lists.h"
#include "pair.h"
#include "target.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucpx.h>
#include <valgrind/callgrind.h>

enum { WARM_UP = 300, SIZE = 1 << 20, AM_ID = 1, TAG = 7, MAX_SENDERS = 64, BACKLOG = 4, PIECES = 1000 };

#define COUNTED(statement)            \
    do {                              \
        CALLGRIND_TOGGLE_COLLECT;     \
        statement;                    \
        CALLGRIND_TOGGLE_COLLECT;     \
    } while (0)

/** How one operation is sampled. */
struct sampling {
    int samples, operations; /* of a sample */
};

static const struct sampling by_memory = {.samples = 60, .operations = 10};
static const struct sampling by_adapter = {.samples = 40, .operations = 50};
/** A list is many operations. */
static const struct sampling of_lists = {.samples = 12, .operations = 1};

static ucp_context_h context;
static ucp_worker_h a, b;
static ucp_ep_h ep; /* of a, to b */
static struct {
    ucp_worker_h worker;
    ucp_ep_h ep; /* to b */
} senders[MAX_SENDERS];
static int open_senders;   /* so many of them are connected */
static int current_sender; /* current sender and its endpoint */
static ucp_rkey_h rkey;
static ucpx_cq_h queue; /* of b; NULL where the library has none */
static uint64_t remote; /* memory of b */
static char out[SIZE], in[SIZE];
static long arrived;
static struct list *list, *alternating; /* of pieces of b's memory, with two keys; NULL where the library has none */
static struct {
    struct target process;
    ucp_ep_h ep;
    ucp_rkey_h rkey;
    struct list *list; /* of pieces of its memory; NULL where that is not accessible, or the library has no lists */
} other;

static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *message)
{
    (void)argument, (void)header, (void)header_length, (void)data, (void)length, (void)message;
    arrived++;
    return UCS_OK;
}

/* ---- waiting, as cheaply as a program can ---- */

static int is_pending(ucs_status_ptr_t request)
{
    return UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS;
}

static void finish(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        check(UCS_PTR_STATUS(request), "operation");
    }
    if (request != NULL) {
        ucp_request_free(request);
    }
}

/** Progresses one worker; the other one too when that finds nothing, or has progressed too often without completion. */
static void progress_mostly(ucp_worker_h own, ucp_worker_h other, int tries)
{
    if (ucp_worker_progress(own) == 0 || tries > 8) {
        ucp_worker_progress(other);
    }
}

static void wait_a(ucs_status_ptr_t request)
{
    for (int tries = 0; is_pending(request); tries++) {
        progress_mostly(a, b, tries);
    }
    finish(request);
}

static void wait_b(ucs_status_ptr_t request)
{
    for (int tries = 0; is_pending(request); tries++) {
        progress_mostly(b, a, tries);
    }
    finish(request);
}

static void wait_message(long before)
{
    for (int tries = 0; arrived <= before; tries++) {
        progress_mostly(b, a, tries);
    }
}

/* ---- the operations: each once ---- */

static ucs_status_ptr_t post_tag(size_t size)
{
    return ucp_tag_recv_nbx(b, in, size, TAG, (ucp_tag_t)-1, &plain);
}

static ucs_status_ptr_t send_tag(size_t size)
{
    return ucp_tag_send_nbx(ep, out, size, TAG, &plain);
}

static ucs_status_ptr_t send_message(size_t size)
{
    return ucp_am_send_nbx(ep, AM_ID, NULL, 0, out, size, &plain);
}

static ucs_status_ptr_t flush(void)
{
    return ucp_ep_flush_nbx(ep, &plain);
}

static uint64_t operand = 1, reply;

static inline __attribute__((always_inline)) ucs_status_ptr_t atomic(ucp_atomic_op_t operation, int fetch)
{
    uint32_t reply_field = fetch ? UCP_OP_ATTR_FIELD_REPLY_BUFFER : 0;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | reply_field,
                                 .datatype = ucp_dt_make_contig(8),
                                 .reply_buffer = &reply};

    return ucp_atomic_op_nbx(ep, operation, &operand, 1, remote, rkey, &param);
}

static void nothing(size_t size)
{
    (void)size;
    COUNTED();
}

static void progress_idle(size_t size)
{
    (void)size;
    COUNTED(ucp_worker_progress(a));
}

static void ep_flush_idle(size_t size)
{
    (void)size;
    COUNTED(wait_a(flush()));
}

static void worker_flush_idle(size_t size)
{
    (void)size;
    COUNTED(wait_a(ucp_worker_flush_nbx(a, &plain)));
}

/** Of B, whose peers are all senders. */
static void receiver_flush_idle(size_t size)
{
    (void)size;
    COUNTED(wait_b(ucp_worker_flush_nbx(b, &plain)));
}

static void fence(size_t size)
{
    (void)size;
    COUNTED(check(ucp_worker_fence(a), "ucp_worker_fence"));
}

static void put(size_t size)
{
    COUNTED(wait_a(ucp_put_nbx(ep, out, size, remote, rkey, &plain)));
}

static void put_flush(size_t size)
{
    ucs_status_ptr_t request;

    COUNTED(request = ucp_put_nbx(ep, out, size, remote, rkey, &plain); wait_a(flush()); wait_a(request));
}

static void flush_behind_put(size_t size)
{
    ucs_status_ptr_t request = ucp_put_nbx(ep, out, size, remote, rkey, &plain);

    COUNTED(wait_a(flush()));
    wait_a(request);
}

/* Functions beyond UCX, resolved by name: this program runs on both. */
static __typeof__(&ucpx_cq_create) cq_create;
static __typeof__(&ucpx_cq_poll) cq_poll;
static __typeof__(&ucpx_put_signal_nbx) put_with_signal;

static ucs_status_ptr_t signal_put(size_t size)
{
    static const ucpx_signal_t signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE, .value = 5};

    return put_with_signal(ep, out, size, remote, rkey, &signal, &plain);
}

static void wait_signal(void)
{
    ucpx_cq_entry_t entry;

    while (cq_poll(queue, &entry, 1) == 0) {
        ucp_worker_progress(a);
    }
}

/* An origin that never progresses would leave the target with replies that wait for room. */
static void take_answer(void)
{
    ucp_worker_progress(a);
}

static void put_signal(size_t size)
{
    ucs_status_ptr_t request;

    COUNTED(request = signal_put(size); wait_signal(); wait_a(request));
    take_answer();
}

/* With the reply, where there is one. */
static void put_signal_flush(size_t size)
{
    ucs_status_ptr_t request;

    COUNTED(request = signal_put(size); wait_signal(); wait_a(request); wait_a(flush()));
}

static void put_signal_send(size_t size)
{
    ucs_status_ptr_t request;

    COUNTED(request = signal_put(size));
    wait_signal();
    wait_a(request);
    take_answer();
}

static void get(size_t size)
{
    COUNTED(wait_a(ucp_get_nbx(ep, out, size, remote, rkey, &plain)));
}

static void fetch_add(size_t size)
{
    (void)size;
    COUNTED(wait_a(atomic(UCP_ATOMIC_OP_ADD, 1)));
}

/* The memory is of this process: its contents can be read, and stay. */
static void compare_swap(size_t size)
{
    (void)size;
    operand = reply = *(uint64_t *)remote;
    COUNTED(wait_a(atomic(UCP_ATOMIC_OP_CSWAP, 1)));
    operand = 1;
}

static void compare_swap_failing(size_t size)
{
    (void)size;
    operand = *(uint64_t *)remote + 1;
    COUNTED(wait_a(atomic(UCP_ATOMIC_OP_CSWAP, 1)));
    operand = 1;
}

static void add_flush(size_t size)
{
    (void)size;
    COUNTED(wait_a(atomic(UCP_ATOMIC_OP_ADD, 0)); wait_a(flush()));
}

static void tag(size_t size)
{
    ucs_status_ptr_t receiving, sending;

    COUNTED(receiving = post_tag(size); sending = send_tag(size); wait_b(receiving); wait_a(sending));
}

static void tag_unexpected(size_t size)
{
    ucs_status_ptr_t sending;

    COUNTED(sending = send_tag(size); ucp_worker_progress(b); wait_b(post_tag(size)); wait_a(sending));
}

static void tag_send(size_t size)
{
    ucs_status_ptr_t receiving = post_tag(size), sending;

    COUNTED(sending = send_tag(size));
    wait_b(receiving);
    wait_a(sending);
}

static void tag_receive(size_t size)
{
    ucs_status_ptr_t sending = send_tag(size);

    COUNTED(wait_b(post_tag(size)));
    wait_a(sending);
}

static void am(size_t size)
{
    long before = arrived;
    ucs_status_ptr_t sending;

    COUNTED(sending = send_message(size); wait_message(before); wait_a(sending));
}

static void am_send(size_t size)
{
    long before = arrived;
    ucs_status_ptr_t sending;

    COUNTED(sending = send_message(size));
    wait_message(before);
    wait_a(sending);
}

static void am_receive(size_t size)
{
    long before = arrived;
    ucs_status_ptr_t sending = send_message(size);

    COUNTED(wait_message(before));
    wait_a(sending);
}

/* ---- lists of short pieces: memory of b, and by the kernel's copy that of a process that does not progress ---- */

static void put_pieces(size_t size)
{
    (void)size;
    COUNTED(wait_a(put_list(ep, list)));
    wait_a(flush());
}

static void get_pieces(size_t size)
{
    (void)size;
    COUNTED(wait_a(get_list(ep, list)));
}

static void put_alternating_pieces(size_t size)
{
    (void)size;
    COUNTED(wait_a(put_list(ep, alternating)));
    wait_a(flush());
}

static void get_alternating_pieces(size_t size)
{
    (void)size;
    COUNTED(wait_a(get_list(ep, alternating)));
}

static void put_pieces_by_kernel(size_t size)
{
    (void)size;
    COUNTED(wait_a(put_list(other.ep, other.list)));
}

static void get_pieces_by_kernel(size_t size)
{
    (void)size;
    COUNTED(wait_a(get_list(other.ep, other.list)));
}

/* ---- several senders, connected to b ---- */

static void select_sender(int number)
{
    current_sender = number;
    a = senders[number].worker;
    ep = senders[number].ep;
}

/** The last message was another sender's. */
static void tag_send_in_turn(size_t size)
{
    select_sender((current_sender + 1) % open_senders);
    tag_send(size);
}

static void tag_receive_in_turn(size_t size)
{
    select_sender((current_sender + 1) % open_senders);
    tag_receive(size);
}

/** Like wait_message, but progresses the senders, too, if they have pending work. */
static void wait_for_all(long last)
{
    for (int calls = 1; arrived <= last; calls++) {
        ucp_worker_progress(b);
        for (int k = 0; k < open_senders && calls % 64 == 0; k++) {
            ucp_worker_progress(senders[k].worker);
        }
    }
}

/**
 * Waits until all messages of all senders have arrived; each has sent several, one after the other. Together no more
 * than a queue that they share holds: only b progresses.
 */
static void am_receive_backlog(size_t size)
{
    ucs_status_ptr_t sending[MAX_SENDERS * BACKLOG];
    int count = 0;
    long last = arrived + (long)open_senders * BACKLOG - 1;

    while (count < open_senders * BACKLOG) {
        select_sender(count / BACKLOG);
        sending[count++] = send_message(size);
    }
    COUNTED(wait_for_all(last));
    while (count > 0) {
        select_sender(--count / BACKLOG);
        wait_a(sending[count]);
    }
}

static const struct {
    const char *name;
    void (*once)(size_t);
    size_t size;
    int senders; /* connected, at least */
} operations[] = {
    {"baseline", nothing, 0, 1},
    {"progress, idle", progress_idle, 0, 1},
    {"endpoint flush, idle", ep_flush_idle, 0, 1},
    {"worker flush, idle", worker_flush_idle, 0, 1},
    {"fence", fence, 0, 1},
    {"put 8 B", put, 8, 1},
    {"put 8 B + flush", put_flush, 8, 1},
    {"put 8 B, its flush", flush_behind_put, 8, 1},
    {"put 32 B", put, 32, 1},
    {"put 1 KiB", put, 1024, 1},
    {"put 8 B with signal", put_signal, 8, 1},
    {"put 8 B with signal, send", put_signal_send, 8, 1},
    {"put 8 B with signal + flush", put_signal_flush, 8, 1},
    {"get 8 B", get, 8, 1},
    {"get 1 KiB", get, 1024, 1},
    {"fetch-add", fetch_add, 8, 1},
    {"compare-swap", compare_swap, 8, 1},
    {"compare-swap, failing", compare_swap_failing, 8, 1},
    {"add + flush", add_flush, 8, 1},
    {"tag 8 B", tag, 8, 1},
    {"tag 8 B, send", tag_send, 8, 1},
    {"tag 8 B, receive", tag_receive, 8, 1},
    {"tag 8 B, unexpected", tag_unexpected, 8, 1},
    {"tag 1 KiB", tag, 1024, 1},
    {"am 8 B", am, 8, 1},
    {"am 8 B, send", am_send, 8, 1},
    {"am 8 B, receive", am_receive, 8, 1},
    {"am 1 KiB", am, 1024, 1},
    {"put 1,000 pieces of 8 B", put_pieces, 8, 1},
    {"get 1,000 pieces of 8 B", get_pieces, 8, 1},
    {"put 1,000 pieces, keys alternate", put_alternating_pieces, 8, 1},
    {"get 1,000 pieces, keys alternate", get_alternating_pieces, 8, 1},
    {"put 1,000 pieces of 8 B, kernel", put_pieces_by_kernel, 8, 1},
    {"get 1,000 pieces of 8 B, kernel", get_pieces_by_kernel, 8, 1},
    {"tag 8 B, one of 2 senders, send", tag_send_in_turn, 8, 2},
    {"tag 8 B, one of 2 senders, receive", tag_receive_in_turn, 8, 2},
    {"tag 8 B, 1 of 2 active, send", tag_send, 8, 2},
    {"tag 8 B, 1 of 2 active, receive", tag_receive, 8, 2},
    {"tag 8 B, one of 8 senders, send", tag_send_in_turn, 8, 8},
    {"tag 8 B, one of 8 senders, receive", tag_receive_in_turn, 8, 8},
    {"tag 8 B, 1 of 8 active, send", tag_send, 8, 8},
    {"tag 8 B, 1 of 8 active, receive", tag_receive, 8, 8},
    {"worker flush, idle, 8 peers", receiver_flush_idle, 0, 8},
    {"am 8 B, 4 from each of 8 senders, receive all", am_receive_backlog, 8, 8},
    {"tag 8 B, one of 64 senders, receive", tag_receive_in_turn, 8, 64},
    {"tag 8 B, 1 of 64 active, receive", tag_receive, 8, 64},
    {"worker flush, idle, 64 peers", receiver_flush_idle, 0, 64},
    {"am 8 B, 4 from each of 64 senders, receive all", am_receive_backlog, 8, 64},
};

/* ---- setting up ---- */

static ucp_worker_h open_worker(void)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID,
                                      .cb = on_message};
    ucp_worker_h worker;

    check(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    check(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    return worker;
}

/** Opens the next sender and connects it to b; it is the current one then. */
static void open_sender(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(b, &address, &length), "ucp_worker_get_address");
    params.address = address;
    senders[open_senders].worker = open_worker();
    check(ucp_ep_create(senders[open_senders].worker, &params, &senders[open_senders].ep), "ucp_ep_create");
    ucp_worker_release_address(b, address);
    select_sender(open_senders++);
}

/** Memory of b: its address, and its key for a. */
static uint64_t open_memory(ucp_rkey_h *opened)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = SIZE,
                                   .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h memory;
    size_t length;
    void *key;

    check(ucp_mem_map(context, &params, &memory), "ucp_mem_map");
    check(ucp_mem_query(memory, &attr), "ucp_mem_query");
    memset(attr.address, 0, SIZE);
    check(ucp_rkey_pack(context, memory, &key, &length), "ucp_rkey_pack");
    check(ucp_ep_rkey_unpack(ep, key, opened), "ucp_ep_rkey_unpack");
    ucp_rkey_buffer_release(key);
    return (uint64_t)(uintptr_t)attr.address;
}

static void open_queue(void)
{
    ucpx_cq_params_t params = {.field_mask = 0};

    cq_create = dlsym(RTLD_DEFAULT, "ucpx_cq_create");
    cq_poll = dlsym(RTLD_DEFAULT, "ucpx_cq_poll");
    put_with_signal = dlsym(RTLD_DEFAULT, "ucpx_put_signal_nbx");
    if (cq_create != NULL && cq_poll != NULL && put_with_signal != NULL) {
        check(cq_create(b, &params, &queue), "ucpx_cq_create");
    }
}

/** Whether a list was not refused: UCX 1.22 has none within a host. */
static int is_supported(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        return 0;
    }
    wait_a(request);
    return 1;
}

/** The worker `a` is that of the first sender. */
static void open_lists(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (const ucp_address_t *)other.process.address};

    uint64_t there;
    ucp_rkey_h key;

    list = make_list(PIECES, 8, out, remote, rkey);
    if (!is_supported(put_list(ep, list))) {
        free_list(list);
        list = NULL;
        return;
    }
    there = open_memory(&key);
    alternating = make_list(PIECES, 8, out, remote, rkey);
    alternate_keys(alternating, there, key);
    if (other.process.process != 0 && is_accessible(&other.process)) {
        check(ucp_ep_create(a, &params, &other.ep), "ucp_ep_create");
        check(ucp_ep_rkey_unpack(other.ep, other.process.key, &other.rkey), "ucp_ep_rkey_unpack");
        other.list = make_list(PIECES, 8, out, other.process.remote, other.rkey);
    }
}

static int is_missing(void (*once)(size_t))
{
    return (queue == NULL && (once == put_signal || once == put_signal_send || once == put_signal_flush)) ||
           (list == NULL && (once == put_pieces || once == get_pieces || once == put_alternating_pieces ||
                              once == get_alternating_pieces)) ||
           (other.list == NULL && (once == put_pieces_by_kernel || once == get_pieces_by_kernel));
}

static int is_list(void (*once)(size_t))
{
    return once == put_pieces || once == get_pieces || once == put_alternating_pieces ||
           once == get_alternating_pieces || once == put_pieces_by_kernel || once == get_pieces_by_kernel;
}

/** Completes everything that the current sender and b have started. */
static void settle_pair(void)
{
    for (int i = 0; i < 50; i++) {
        ucp_worker_progress(a);
        ucp_worker_progress(b);
    }
}

static void settle(void)
{
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < open_senders; k++) {
            ucp_worker_progress(senders[k].worker);
        }
        ucp_worker_progress(b);
    }
}

/** Opens senders up to this number, and selects the first one. */
static void connect_senders(int number)
{
    while (open_senders < number) {
        open_sender();
        /* Some libraries connect in several steps, for which both workers must progress. */
        for (int k = 0; k < WARM_UP; k++) {
            tag_unexpected(8);
            settle_pair();
        }
    }
    select_sender(0);
}

int run_instructions(const struct effort *effort, int argc, char **argv)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 | UCP_FEATURE_AM};

    const struct sampling *sampling = getenv("UCX_TLS") == NULL ? &by_memory : &by_adapter;
    char title[64];
    int most = argc > 1 ? atoi(argv[1]) : 8; /* senders; backlogs only where it is given: they vary through adapters */

    (void)effort;
    if (!RUNNING_ON_VALGRIND) {
        die("instructions are counted under valgrind --tool=callgrind --collect-atstart=no");
    }
    if (has_lists() && sampling == &by_memory) {
        start_target(&other.process, SIZE);
    }
    check(ucp_init(&params, NULL, &context), "ucp_init");
    b = open_worker();
    connect_senders(1);
    remote = open_memory(&rkey);
    open_queue();
    if (has_lists()) {
        open_lists();
    }
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
        if (is_missing(operations[i].once) || operations[i].senders > most ||
            (operations[i].once == am_receive_backlog && argc < 2)) {
            continue;
        }
        const struct sampling *sampled = is_list(operations[i].once) ? &of_lists : sampling;

        connect_senders(operations[i].senders);
        for (int k = 0; k < (sampled == &of_lists ? WARM_UP / 20 : WARM_UP); k++) {
            operations[i].once(operations[i].size);
        }
        settle();
        /*
         * Callgrind keeps some inclusive costs of earlier calls when it zeroes counters: a discarded dump removes them.
         */
        if (operations[i].senders > 1) {
            CALLGRIND_DUMP_STATS;
        }
        snprintf(title, sizeof(title), "%d x %s", sampled->operations, operations[i].name);
        for (int sample = 0; sample < sampled->samples; sample++) {
            CALLGRIND_ZERO_STATS;
            for (int k = 0; k < sampled->operations; k++) {
                operations[i].once(operations[i].size);
            }
            CALLGRIND_DUMP_STATS_AT(title);
        }
    }
    if (other.process.process != 0) {
        end_target(&other.process);
    }
    return 0; /* the cost of closing is not measured */
}
