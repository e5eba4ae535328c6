/*
 * What the transport that is selected here can do, as `lane NAME`, `has CAPABILITY` and `lacks CAPABILITY`, for
 * c_tests/conformance/transports. Each capability is tried, not read from a table: most of them between two processes,
 * one of which does not progress.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "finish.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20, SHORT = 8, SECONDS = 2, LANES = 8 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void nothing(party_t *self)
{
    (void)self;
}

/* Runs a probe in a process of its own, and prints what it says of the capability. */
static int probe(const char *capability, int (*works)(void))
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        int has = works();
        fflush(stdout);
        _exit(check_failed() ? 2 : !has);
    }
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
        printf("FAIL probe of %s: wait status %#x\n", capability, status);
        return 0;
    }
    printf("%s %s\n", WEXITSTATUS(status) == 0 ? "has" : "lacks", capability);
    return WEXITSTATUS(status) == 0;
}

/* Whether a flush of the endpoint completes while the peer does not progress. */
static int is_flushed(party_t *self)
{
    return finish_on(self->worker, ucp_ep_flush_nbx(self->ep, &plain), SECONDS) == UCS_OK;
}

/* --- another process --- */

/* A worker with these features in another process, and its address. */
static void other_worker(uint64_t features, int link, void (*act)(ucp_worker_h worker, int link))
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h       context;
    ucp_worker_h        worker;
    ucp_address_t      *address;
    size_t              length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    must(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    WANT_TRUE(send(link, address, length, 0) == (ssize_t)length);
    act(worker, link);
    for (;;) {
        pause();
    }
}

/* An endpoint to a worker in another process that runs `act`; false if there is no transport to it. */
static int reach_other(party_t *self, uint64_t features, void (*act)(ucp_worker_h worker, int link))
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t     ep            = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                         .address    = (const ucp_address_t *)self->theirs};
    int                 links[2];
    ucs_status_t        status;

    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self->other = fork();
    if (self->other == 0) {
        other_worker(features, links[1], act);
    }
    self->link = links[0];
    must(ucp_init(&params, NULL, &self->context), "ucp_init");
    must(ucp_worker_create(self->context, &worker_params, &self->worker), "ucp_worker_create");
    WANT_TRUE(recv(self->link, self->theirs, sizeof(self->theirs), 0) > 0);
    status = ucp_ep_create(self->worker, &ep, &self->ep);
    WANT_TRUE(status == UCS_OK || status == UCS_ERR_UNREACHABLE);
    return status == UCS_OK;
}

static void progress_for_ever(ucp_worker_h worker, int link)
{
    (void)link;
    for (;;) {
        ucp_worker_progress(worker);
    }
}

static int processes(void)
{
    party_t  self  = {.link = -1};
    uint64_t value = 1;

    return reach_other(&self, UCP_FEATURE_TAG, progress_for_ever) &&
           finish(&self, send_tag(&self, &value, 8)) == UCS_OK;
}

/* --- the transports of an endpoint --- */

static void print_lanes(ucp_ep_h ep)
{
    ucp_transport_entry_t lanes[LANES];
    ucp_ep_attr_t         attr = {
                .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                .transports = {.entries = lanes, .num_entries = LANES, .entry_size = sizeof(lanes[0])},
    };

    WANT(UCS_OK, ucp_ep_query(ep, &attr));
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        printf("lane %s %s\n", lanes[i].transport_name, lanes[i].device_name);
    }
}

static int lanes_to_other(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_NONE, nothing);
    print_lanes(self.ep);
    return 1;
}

static int lanes_to_oneself(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES & ~(uint64_t)UCP_FEATURE_WAKEUP);

    fixture_works(&fixture);
    print_lanes(fixture.ep);
    return 1;
}

/* --- without progress of the peer --- */

static int put_works(void)
{
    party_t       self;
    ucp_rkey_h    rkey = open_memory(&self, SIZE, register_memory);
    unsigned char data[SHORT];

    memset(data, 7, SHORT);
    WANT_TRUE(wait_notified(&self));
    ucs_status_ptr_t request = put(&self, data, SHORT, 0, rkey);
    int              flushed = is_flushed(&self);
    WANT_TRUE(!flushed || finish(&self, request) == UCS_OK);
    WANT_TRUE(!flushed || there[0] == 7);
    return flushed;
}

static int get_works(void)
{
    party_t       self;
    ucp_rkey_h    rkey = open_memory(&self, SIZE, register_memory);
    unsigned char data[SHORT] = {0};

    WANT_TRUE(wait_notified(&self));
    there[0]            = 7;
    ucs_status_t status = finish_on(self.worker, get(&self, data, SHORT, 0, rkey), SECONDS);
    WANT_TRUE(status == UCS_INPROGRESS || (status == UCS_OK && data[0] == 7));
    return status == UCS_OK;
}

static int atomics_work(void)
{
    party_t             self;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    ucp_rkey_h          rkey  = open_memory(&self, SIZE, register_memory);
    uint64_t            one   = 1;

    WANT_TRUE(wait_notified(&self));
    ucp_atomic_op_nbx(self.ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)there, rkey, &param);
    int flushed = is_flushed(&self);
    WANT_TRUE(!flushed || there[0] == 1);
    return flushed;
}

/* Accesses that are canceled end while the peer does not progress. */
static int cancel(void)
{
    party_t             self;
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_rkey_h          rkey  = open_memory(&self, SIZE, register_memory);
    ucs_status_ptr_t    requests[2];
    int                 ended = 1;

    WANT_TRUE(wait_notified(&self));
    requests[0] = put(&self, malloc(SIZE), SIZE, 0, rkey);
    requests[1] = get(&self, malloc(SIZE), SIZE, 0, rkey);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self.worker);
    }
    ucp_rkey_destroy(rkey);
    WANT_TRUE(!UCS_PTR_IS_ERR(ucp_ep_close_nbx(self.ep, &force)));
    for (int i = 0; i < 2; i++) {
        ended &= finish_on(self.worker, requests[i], SECONDS) != UCS_INPROGRESS;
    }
    return ended;
}

static int delivery(void)
{
    party_t  self;
    uint64_t value = 1;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    send_tag(&self, &value, 8);
    return is_flushed(&self);
}

static void send_long(party_t *self)
{
    send_tag(self, calloc(1, SIZE), SIZE);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self->worker);
    }
}

/* The receiver of a rendezvous reads from the sender, which does not progress. */
static int rndv_get(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_long);
    WANT_TRUE(wait_notified(&self));
    ucs_status_t status = finish_on(self.worker, receive_tag(&self, malloc(SIZE), SIZE, 1), SECONDS);
    WANT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
    return status == UCS_OK;
}

/* --- memory, wakeup, an address of an ended process --- */

static int memory(void)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = SIZE, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    fixture_t            one    = fixture_open(ALL_FEATURES & ~(uint64_t)UCP_FEATURE_WAKEUP);
    ucp_mem_h            memh;
    ucp_rkey_h           rkey;
    void                *packed, *pointer = NULL;
    size_t               length;

    WANT(UCS_OK, ucp_mem_map(one.context, &params, &memh));
    WANT(UCS_OK, ucp_mem_query(memh, &attr));
    WANT(UCS_OK, ucp_rkey_pack(one.context, memh, &packed, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(one.ep, packed, &rkey));
    ucs_status_t status = ucp_rkey_ptr(rkey, (uintptr_t)attr.address, &pointer);
    WANT_TRUE(status == UCS_ERR_UNREACHABLE || (status == UCS_OK && pointer != NULL));
    return status == UCS_OK;
}

static void map_and_pack(party_t *self)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = SIZE, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h            memh;
    void                *packed;
    size_t               length;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_mem_query(memh, &attr));
    memset(attr.address, 9, SIZE);
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, &attr.address, sizeof(attr.address), 0) == sizeof(attr.address));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
}

/* Memory of another process by a pointer. */
static int memory_of_other(void)
{
    party_t    self;
    char       key[1024];
    void      *remote, *pointer = NULL;
    ucp_rkey_h rkey;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, map_and_pack);
    WANT_TRUE(recv(self.link, &remote, sizeof(remote), 0) == sizeof(remote));
    WANT_TRUE(recv(self.link, key, sizeof(key), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(self.ep, key, &rkey));
    ucs_status_t status = ucp_rkey_ptr(rkey, (uintptr_t)remote, &pointer);
    WANT_TRUE(status == UCS_ERR_UNREACHABLE || (status == UCS_OK && *(char *)pointer == 9));
    return status == UCS_OK;
}

/* Sends once the other process sleeps, as far as a tenth of a second shows it. */
static void wait_and_send(ucp_worker_h worker, int link)
{
    static uint64_t value  = 1;
    party_t         self   = {.worker = worker, .link = link};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address    = (const ucp_address_t *)self.theirs};
    struct timespec tenth  = {0, 100000000};

    WANT_TRUE(recv(link, self.theirs, sizeof(self.theirs), 0) > 0);
    WANT(UCS_OK, ucp_ep_create(worker, &params, &self.ep));
    nanosleep(&tenth, NULL);
    send_tag(&self, &value, 8);
    progress_for_ever(worker, link);
}

static int wakeup(void)
{
    party_t        self = {.link = -1};
    struct pollfd  fd   = {.events = POLLIN};
    ucp_address_t *address;
    size_t         length;
    uint64_t       value   = 0;
    int            wakings = 0;

    if (!reach_other(&self, UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP, wait_and_send)) {
        return 0;
    }
    WANT(UCS_OK, ucp_worker_get_address(self.worker, &address, &length));
    WANT_TRUE(send(self.link, address, length, 0) == (ssize_t)length);
    WANT(UCS_OK, ucp_worker_get_efd(self.worker, &fd.fd));
    ucs_status_ptr_t received = receive_tag(&self, &value, 8, 1);
    while (ucp_request_check_status(received) == UCS_INPROGRESS) {
        while (ucp_worker_progress(self.worker) != 0) {
        }
        if (ucp_request_check_status(received) != UCS_INPROGRESS || ucp_worker_arm(self.worker) == UCS_ERR_BUSY) {
            continue;
        }
        if (poll(&fd, 1, SECONDS * 1000) != 1) {
            return 0;
        }
        wakings++;
    }
    WANT_TRUE(value == 1);
    return wakings > 0;
}

/* A process with more to send than fits may sleep until there is room. */
static int room_event(void)
{
    enum { MOST = 4000, LENGTH = 8000 };
    static ucs_status_ptr_t sent;
    static char             message[LENGTH];
    party_t                 self;

    party_features |= UCP_FEATURE_WAKEUP;
    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    for (int i = 0; i < MOST && !UCS_PTR_IS_PTR(sent); i++) {
        sent = send_tag(&self, message, LENGTH);
        ucp_worker_progress(self.worker);
    }
    WANT_TRUE(UCS_PTR_IS_PTR(sent));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(self.worker);
    }
    ucs_status_t status = ucp_worker_arm(self.worker);
    WANT_TRUE(status == UCS_OK || status == UCS_ERR_BUSY);
    return status == UCS_OK;
}

/* A connection to a process that has ended is refused at once: the status is UNREACHABLE. */
static int refusal(void)
{
    party_t             self, late;
    ucp_worker_params_t params = {.field_mask = 0};
    uint64_t            value  = 1;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT_TRUE(wait_notified(&self));
    late = self;
    WANT(UCS_OK, ucp_worker_create(self.context, &params, &late.worker));
    kill_other(&self);
    ucp_ep_params_t ep     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .address    = (const ucp_address_t *)late.theirs,
                              .err_mode   = UCP_ERR_HANDLING_MODE_PEER};
    ucs_status_t    status = ucp_ep_create(late.worker, &ep, &late.ep);
    if (status == UCS_OK) {
        status = finish(&late, send_tag(&late, &value, 8));
    }
    return status == UCS_ERR_UNREACHABLE;
}

int main(void)
{
    if (!probe("processes", processes)) {
        probe("memory", memory);
        return !probe("lanes", lanes_to_oneself);
    }
    probe("memory", memory_of_other);
    if (probe("wakeup", wakeup)) {
        probe("room_event", room_event);
    } else {
        printf("lacks room_event\n");
    }
    probe("put", put_works);
    probe("get", get_works);
    probe("atomics", atomics_work);
    probe("cancel", cancel);
    probe("delivery", delivery);
    probe("rndv_get", rndv_get);
    probe("refusal", refusal);
    return !probe("lanes", lanes_to_other);
}
