/*
 * Stages one hang, or a job that is busy, and prints the processes: `ready WAITER OTHER`. Then it hangs until it is
 * killed. c_tests/stuck/run checks what `rucp_top --stuck` says of it.
 *
 * usage: hang CASE
 */
#define _GNU_SOURCE
#include "../check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { HANDLER = 3, EAGER = 4000, LONG = 1 << 20, HUGE = 256 << 20, WORDS = 512 };

void check_report(const char *failure)
{
    fprintf(stderr, "hang: %s\n", failure);
    exit(1);
}

#define OK(call) CHECK((call) == UCS_OK)

typedef struct {
    volatile size_t length; /* of the address; 0: not there yet */
    char            address[1024];
} side_t;

typedef struct {
    side_t           waiter, other;
    size_t           key_length;
    char             key[512];
    volatile int     begin, met;
    volatile uint16_t port;
    _Alignas(4096) volatile uint64_t words[WORDS];
} shared_t;

typedef struct {
    const char *name;
    uint64_t    features;
    void (*waiter)(void);
    void (*other)(void);
    int stop_other;   /* stop it before the waiter begins, after both have met if `meet` */
    int meet;         /* they exchange a message first */
    int apart;        /* each in a network of its own, which answers nothing */
} case_t;

static shared_t           *shared;
static ucp_context_h       context;
static ucp_worker_h        worker;
static ucp_ep_h            ep;
static ucp_rkey_h          rkey;
static pid_t               other;
static const case_t       *this_case;
static char               *big;
static ucp_request_param_t none;

static void progress(void)
{
    if (ucp_worker_progress(worker) == 0) {
        usleep(500);
    }
}

static void hang(void)
{
    for (;;) {
        progress();
    }
}

static void finish(ucs_status_ptr_t request)
{
    CHECK(!UCS_PTR_IS_ERR(request));
    if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress();
        }
        OK(ucp_request_check_status(request));
        ucp_request_free(request);
    }
}

static void network_of_its_own(const char *address)
{
    char command[200];

    CHECK(unshare(CLONE_NEWNET) == 0);
    snprintf(command, sizeof(command),
             "ip link set lo up && ip link add d0 type veth peer name d1 && ip addr add %s/24 dev d0 && "
             "ip link set d0 arp off up && ip link set d1 arp off up", address);
    CHECK(system(command) == 0);
}

static void open_worker(side_t *side)
{
    ucp_params_t        params  = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = this_case->features};
    ucp_worker_params_t wparams = {.field_mask = 0};
    ucp_address_t      *address;
    size_t              length;

    OK(ucp_init(&params, NULL, &context));
    OK(ucp_worker_create(context, &wparams, &worker));
    OK(ucp_worker_get_address(worker, &address, &length));
    CHECK(length <= sizeof(side->address));
    memcpy(side->address, address, length);
    ucp_worker_release_address(worker, address);
    __atomic_store_n(&side->length, length, __ATOMIC_RELEASE);
}

static void connect_to(side_t *side)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};

    while (__atomic_load_n(&side->length, __ATOMIC_ACQUIRE) == 0) {
        usleep(500);
    }
    params.address = (ucp_address_t *)side->address;
    OK(ucp_ep_create(worker, &params, &ep));
}

/* A message in each direction. */
static void meet(void)
{
    char             in = 0;
    ucs_status_ptr_t receive;

    receive = ucp_tag_recv_nbx(worker, &in, 1, 99, ~0ul, &none);
    finish(ucp_tag_send_nbx(ep, "x", 1, 99, &none));
    finish(receive);
    CHECK(in == 'x');
}

static void share_memory(void)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .length     = sizeof(shared->words),
        .address    = (void *)shared->words,
    };
    ucp_mem_h memh;
    void     *packed;

    OK(ucp_mem_map(context, &params, &memh));
    OK(ucp_rkey_pack(context, memh, &packed, &shared->key_length));
    CHECK(shared->key_length <= sizeof(shared->key));
    memcpy(shared->key, packed, shared->key_length);
}

static ucs_status_t keep_data(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length;
    CHECK(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    return UCS_INPROGRESS;
}

/* What the other process does after both have met. */

static void progresses(void)
{
    hang();
}

static void sleeps(void)
{
    for (;;) {
        pause();
    }
}

static void computes(void)
{
    for (volatile uint64_t n = 0;; n++) {
    }
}

static void sends_tag_2(void)
{
    finish(ucp_tag_send_nbx(ep, "y", 1, 2, &none));
    hang();
}

static void dies(void)
{
    _exit(0);
}

static void keeps_messages(void)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = HANDLER, .cb = keep_data};

    OK(ucp_worker_set_am_recv_handler(worker, &handler));
    __atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
    hang();
}

static void lacks_descriptors(void)
{
    struct rlimit limit;

    OK(getrlimit(RLIMIT_NOFILE, &limit) == 0 ? UCS_OK : UCS_ERR_IO_ERROR);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    __atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
    hang();
}

static void on_client(ucp_conn_request_h request, void *arg)
{
    *(ucp_conn_request_h *)arg = request;
}

static ucp_conn_request_h client;

static void listen_here(void)
{
    struct sockaddr_in   address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_attr_t  attr    = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_params_t params = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {(struct sockaddr *)&address, sizeof(address)},
        .conn_handler = {on_client, &client},
    };
    ucp_listener_h listener;

    OK(ucp_listener_create(worker, &params, &listener));
    OK(ucp_listener_query(listener, &attr));
    __atomic_store_n(&shared->port, ((struct sockaddr_in *)&attr.sockaddr)->sin_port, __ATOMIC_RELEASE);
}

static void accepts_nobody(void)
{
    listen_here();
    hang();
}

static void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg, (void)failed, (void)status;
}

static void accepts_and_sleeps(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER, .err_handler.cb = on_failure};
    ucp_ep_h        accepted;
    char            in;

    listen_here();
    while (client == NULL) {
        progress();
    }
    params.conn_request = client;
    OK(ucp_ep_create(worker, &params, &accepted));
    finish(ucp_tag_recv_nbx(worker, &in, 1, 1, ~0ul, &none));
    finish(ucp_tag_send_nbx(accepted, "z", 1, 1, &none));
    for (int i = 0; i < 200; i++) {
        progress();
    }
    __atomic_store_n(&shared->met, 1, __ATOMIC_RELEASE);
    sleeps();
}

/* What the waiter does. */

static char in[LONG];

static void await_other(void)
{
    while (__atomic_load_n(&shared->begin, __ATOMIC_ACQUIRE) == 0) {
        progress();
    }
}

static void receives(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    hang();
}

static void receives_and_stops(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    raise(SIGSTOP);
}

static void receives_and_blocks(void)
{
    int ends[2];

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    for (int i = 0; i < 2000; i++) {
        progress();
    }
    CHECK(pipe(ends) == 0 && read(ends[0], in, 1) == 1);
}

static void receives_asleep(void)
{
    struct pollfd events = {.events = POLLIN};

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    OK(ucp_worker_get_efd(worker, &events.fd));
    for (;;) {
        while (ucp_worker_progress(worker) != 0) {
        }
        ucs_status_t status = ucp_worker_arm(worker);
        CHECK(status == UCS_OK || status == UCS_ERR_BUSY);
        if (status == UCS_OK) {
            poll(&events, 1, -1);
        }
    }
}

static void fills(void)
{
    for (int i = 0; i < 2000; i++) {
        CHECK(!UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep, big, EAGER, 7, &none)));
    }
    hang();
}

static void sends_long(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, big, LONG, 7, &none)));
    hang();
}

static void sends_short(void)
{
    CHECK(!UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep, big, 8, 7, &none)));
    hang();
}

static void sends_short_later(void)
{
    await_other();
    sends_short();
}

static void sends_sync(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(ep, big, 8, 7, &none)));
    hang();
}

static void sends_message(void)
{
    ucp_request_param_t rndv = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_RNDV};

    await_other();
    CHECK(UCS_PTR_IS_PTR(ucp_am_send_nbx(ep, HANDLER, NULL, 0, big, LONG, &rndv)));
    hang();
}

static void unpack(void)
{
    OK(ucp_ep_rkey_unpack(ep, shared->key, &rkey));
}

static void puts_much(void)
{
    unpack();
    for (int i = 0; i < 50000; i++) {
        CHECK(!UCS_PTR_IS_ERR(ucp_put_nbx(ep, big, sizeof(shared->words), (uintptr_t)shared->words, rkey, &none)));
    }
    hang();
}

static void gets(void)
{
    unpack();
    CHECK(UCS_PTR_IS_PTR(ucp_get_nbx(ep, in, sizeof(shared->words), (uintptr_t)shared->words, rkey, &none)));
    hang();
}

static void fetches(void)
{
    static uint64_t     one = 1, result;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                 .datatype = ucp_dt_make_contig(8), .reply_buffer = &result};

    unpack();
    CHECK(UCS_PTR_IS_PTR(
        ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)shared->words, rkey, &param)));
    hang();
}

static void flushes(void)
{
    static uint64_t     one   = 1;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    unpack();
    CHECK(!UCS_PTR_IS_ERR(
        ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)shared->words, rkey, &param)));
    CHECK(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(ep, &none)));
    hang();
}

static void reads_stream(void)
{
    size_t length;

    CHECK(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(ep, in, 8, &length, &none)));
    hang();
}

static void connect_as_client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_ep_params_t    params  = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                  .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                  .err_handler.cb = on_failure,
                                  .sockaddr = {(struct sockaddr *)&address, sizeof(address)}};

    while ((address.sin_port = __atomic_load_n(&shared->port, __ATOMIC_ACQUIRE)) == 0) {
        usleep(500);
    }
    OK(ucp_ep_create(worker, &params, &ep));
}

static void is_not_accepted(void)
{
    connect_as_client();
    sends_short();
}

static void closes(void)
{
    char             byte;
    ucs_status_ptr_t receive;

    connect_as_client();
    receive = ucp_tag_recv_nbx(worker, &byte, 1, 1, ~0ul, &none);
    finish(ucp_tag_send_nbx(ep, "z", 1, 1, &none));
    finish(receive);
    while (__atomic_load_n(&shared->met, __ATOMIC_ACQUIRE) == 0) {
        progress();
    }
    CHECK(UCS_PTR_IS_PTR(ucp_ep_close_nbx(ep, &none)));
    hang();
}

/* Jobs that wait for nothing. Messages of all kinds, and a receive that is never matched. */
static void is_busy(void)
{
    static char      out[LONG];
    ucs_status_ptr_t receive;
    char             one;

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, &one, 1, 77, ~0ul, &none)));
    for (uint64_t round = 0;; round++) {
        size_t length = round % 7 == 0 ? LONG : 8 << round % 9;
        receive       = ucp_tag_recv_nbx(worker, in, length, 1, ~0ul, &none);
        finish(ucp_tag_send_nbx(ep, out, length, 1, &none));
        finish(receive);
        usleep(100);
    }
}

/* A receive that is posted while the process computes. */
static void receives_and_computes(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    for (int i = 0; i < 400; i++) {
        progress();
    }
    computes();
}

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
