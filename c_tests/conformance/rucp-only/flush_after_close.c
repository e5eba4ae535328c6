/*
 * A forced close ends remote accesses that are in flight or pending: flushes towards the same peer, through another
 * endpoint and of the worker, end all the same. (Where CMA is possible, reads end inside of their call and nothing
 * is in flight: this test is for TCP, and for processes without the right to use CMA.)
 */
#define _GNU_SOURCE
#include "../../transport.h"
#include "party.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <string.h>
#include <unistd.h>

#define SIZE (256 << 10)

static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Exposes memory and does not progress until notified; then progresses until the parent kills it. */
static void expose(party_t *self)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = calloc(1, SIZE),
        .length     = SIZE,
    };
    uint64_t  address = (uintptr_t)params.address;
    ucp_mem_h memh;
    void     *packed;
    size_t    length;
    char      byte;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &length));
    WANT_TRUE(send(self->link, &address, sizeof(address), 0) == sizeof(address));
    WANT_TRUE(send(self->link, packed, length, 0) == (ssize_t)length);
    WANT_TRUE(recv(self->link, &byte, 1, 0) == 1);
    while (!check_failed()) {
        ucp_worker_progress(self->worker);
    }
}

typedef struct {
    party_t    self, second; /* two endpoints to the same peer */
    uint64_t   remote;
    ucp_rkey_h rkey, second_rkey;
} twin_eps_t;

static void open_two_endpoints(twin_eps_t *a)
{
    char key[1024];

    start(&a->self, UCP_ERR_HANDLING_MODE_PEER, expose);
    WANT_TRUE(recv(a->self.link, &a->remote, sizeof(a->remote), 0) == sizeof(a->remote));
    WANT_TRUE(recv(a->self.link, key, sizeof(key), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(a->self.ep, key, &a->rkey));
    a->second = a->self;
    party_connect(&a->second, a->self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT(UCS_OK, ucp_ep_rkey_unpack(a->second.ep, key, &a->second_rkey));
}

/* The first endpoint is closed: operations of the second one can be flushed, and accesses go on. */
static void settle(twin_eps_t *a)
{
    uint64_t value = 7, back = 0;

    notify_peer(&a->self);
    WANT(UCS_OK, finish(&a->second, ucp_ep_flush_nbx(a->second.ep, &plain)));
    WANT(UCS_OK, finish(&a->second, ucp_worker_flush_nbx(a->second.worker, &plain)));
    ucp_rkey_h rkey = a->second_rkey;
    WANT(UCS_OK, finish(&a->second, ucp_put_nbx(a->second.ep, &value, 8, a->remote, rkey, &plain)));
    WANT(UCS_OK, finish(&a->second, ucp_ep_flush_nbx(a->second.ep, &plain)));
    WANT(UCS_OK, finish(&a->second, ucp_get_nbx(a->second.ep, &back, 8, a->remote, rkey, &plain)));
    WANT_TRUE(back == 7);
    ucp_rkey_destroy(rkey);
    kill_other(&a->self);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(a->second.ep, &force));
    ucp_worker_destroy(a->self.worker);
    ucp_cleanup(a->self.context);
}

static void close_first(twin_eps_t *a)
{
    ucp_rkey_destroy(a->rkey);
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(a->self.ep, &force));
}

/*
 * Closes an endpoint with an access in flight: it is canceled. A device needs no peer for one, so it may also have
 * ended; so it may where it ends only when the peer progresses.
 */
static void cut_short(twin_eps_t *a, ucs_status_ptr_t access)
{
    int by_device = !transport_has("memory") && transport_has("get") && transport_has("atomics");

    if (!transport_has("cancel")) {
        notify_peer(&a->self);
        by_device = 1;
    }
    ucs_status_t status = finish(&a->self, access);

    WANT_TRUE(status == UCS_ERR_CANCELED || (by_device && status == UCS_OK));
}

static void read_in_flight(void)
{
    twin_eps_t a;
    char      *data = calloc(1, SIZE);

    open_two_endpoints(&a);
    ucs_status_ptr_t got = ucp_get_nbx(a.self.ep, data, SIZE, a.remote, a.rkey, &plain);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(a.self.worker);
    }
    close_first(&a);
    if (UCS_PTR_IS_PTR(got)) {
        cut_short(&a, got);
    }
    settle(&a);
    free(data);
}

static ucs_status_ptr_t fetch_add(twin_eps_t *a, uint64_t *old)
{
    static uint64_t     one   = 1;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype     = ucp_dt_make_contig(8),
        .reply_buffer = old,
    };

    return ucp_atomic_op_nbx(a->self.ep, UCP_ATOMIC_OP_ADD, &one, 1, a->remote + 64, a->rkey, &param);
}

static void atomic_in_flight(void)
{
    twin_eps_t a;
    uint64_t   old;

    open_two_endpoints(&a);
    ucs_status_ptr_t added = fetch_add(&a, &old);
    WANT_TRUE(UCS_PTR_IS_PTR(added));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(a.self.worker);
    }
    close_first(&a);
    cut_short(&a, added);
    settle(&a);
}

enum { MAX_SENT = 4000 };

static int is_done(ucs_status_ptr_t request)
{
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
}

/* Sends through the second endpoint until a message is pending for more than one progress call. Returns how many were
 * sent, that one included. */
static int fill(twin_eps_t *a, ucs_status_ptr_t sent[MAX_SENT])
{
    static char message[8000];
    int         count = 0;

    do {
        sent[count] = send_tag(&a->second, message, sizeof(message));
        ucp_worker_progress(a->self.worker);
    } while (is_done(sent[count++]) && count < MAX_SENT);
    WANT_TRUE(count < MAX_SENT);
    return count;
}

/* Behind messages that the peer does not receive. */
static void waiting_to_be_sent(int read)
{
    static ucs_status_ptr_t sent[MAX_SENT];
    static char             data[SIZE];
    twin_eps_t              a;
    uint64_t                old;
    int                     count;

    open_two_endpoints(&a);
    count = fill(&a, sent);
    ucs_status_ptr_t access = read ? ucp_get_nbx(a.self.ep, data, SIZE, a.remote, a.rkey, &plain) : fetch_add(&a, &old);
    close_first(&a);
    if (UCS_PTR_IS_PTR(access)) {
        WANT(UCS_ERR_CANCELED, finish(&a.self, access));
    }
    notify_peer(&a.self);
    for (int i = 0; i < count; i++) {
        WANT(UCS_OK, finish(&a.second, sent[i]));
    }
    settle(&a);
}

static void atomic_waiting(void)
{
    waiting_to_be_sent(0);
}

static void read_waiting(void)
{
    waiting_to_be_sent(1);
}

/* An operation that may not be queued (UCS_ERR_NO_RESOURCE) is not counted either. */
static void atomic_refused(void)
{
    static ucs_status_ptr_t sent[MAX_SENT];
    twin_eps_t              a;
    uint64_t                one   = 1, old;
    int                     count;
    ucp_request_param_t     param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .datatype     = ucp_dt_make_contig(8),
        .reply_buffer = &old,
    };

    open_two_endpoints(&a);
    count = fill(&a, sent);
    WANT_PTR(UCS_ERR_NO_RESOURCE,
             ucp_atomic_op_nbx(a.self.ep, UCP_ATOMIC_OP_ADD, &one, 1, a.remote + 64, a.rkey, &param));
    close_first(&a);
    notify_peer(&a.self);
    for (int i = 0; i < count; i++) {
        WANT(UCS_OK, finish(&a.second, sent[i]));
    }
    settle(&a);
}

static const case_t cases[] = {
    {"flush_after_close: read in flight", read_in_flight},
    {"flush_after_close: read that waits", read_waiting},
    {"flush_after_close: atomic in flight", atomic_in_flight},
    {"flush_after_close: atomic that waits", atomic_waiting},
    {"flush_after_close: atomic that must not wait", atomic_refused},
};

CHECK_MAIN(cases)
