/*
 * Scatter-gather lists to memory of another process, by whatever transport: pieces of every length arrive where they
 * belong and nowhere else; flushes and fences see a list of which not all is sent; it ends with its peer or endpoint.
 */
#define _GNU_SOURCE
#include "piece_lists.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                          .flags        = UCP_EP_CLOSE_FLAG_FORCE};

/* Lists of many kinds: longest piece, pieces, and how many of them in sequence have one key. */
static void pieces_arrive(void)
{
    static const size_t kinds[][3] = {
        {8, 6000, MANY}, {16, 1000, 1}, {64, 3000, 40}, {300, 2000, 7}, {9000, 300, 5}, {70000, 60, 2}, {500000, 9, 1},
        {8, 1, 1},       {8, 2, 1},     {300, 33, 33},
    };
    party_t self;

    open_lists(&self);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        seed = (unsigned)i + 1;
        make_list(kinds[i][1], kinds[i][0], kinds[i][2]);
        put_and_get(&self, (unsigned)i);
    }
    close_lists(&self);
}

/* A flush that begins when not all of a list is sent, and lists behind lists. */
static void flushed(void)
{
    enum { LISTS = 4 };
    party_t          self;
    ucs_status_ptr_t puts[LISTS];

    open_lists(&self);
    make_list(2000, 60, 100);
    for (unsigned round = 0; round < 3; round++) {
        fill(near, round);
        memset(there, GUARD, SIZE);
        for (int i = 0; i < LISTS; i++) {
            puts[i] = begin(&self, true);
        }
        flush(&self);
        WANT_TRUE(has_pieces((char *)there, round));
        for (int i = 0; i < LISTS; i++) {
            wait_ok(&self, puts[i]);
        }
        memset(there, GUARD, SIZE);
        ucs_status_ptr_t put = begin(&self, true);
        wait_ok(&self, ucp_worker_flush_nbx(self.worker, &plain));
        WANT_TRUE(has_pieces((char *)there, round));
        wait_ok(&self, put);
    }
    close_lists(&self);
}

/* What is behind a fence takes effect behind the lists in front of it. */
static void fenced(void)
{
    party_t self;
    char   *got;

    open_lists(&self);
    make_list(2500, 40, 50);
    for (unsigned round = 0; round < 4; round++) {
        fill(near, round);
        memset(there, GUARD, SIZE);
        ucs_status_ptr_t first = begin(&self, true);
        WANT(UCS_OK, ucp_worker_fence(self.worker));
        /* Read what was put, into memory of the same shape. */
        char *source = near;
        got          = malloc(SIZE);
        memset(got, GUARD, SIZE);
        for (size_t i = 0; i < list.count; i++) {
            list.buffers[i] = got + (list.addrs[i] - (uintptr_t)there);
        }
        ucs_status_ptr_t second = begin(&self, false);
        WANT(UCS_OK, ucp_worker_fence(self.worker));
        /* Overwrite it. */
        char *other = malloc(SIZE);
        fill(other, round + 1);
        for (size_t i = 0; i < list.count; i++) {
            list.buffers[i] = other + (list.addrs[i] - (uintptr_t)there);
        }
        ucs_status_ptr_t third = begin(&self, true);
        wait_ok(&self, first);
        wait_ok(&self, second);
        wait_ok(&self, third);
        flush(&self);
        WANT_TRUE(has_pieces(got, round));
        WANT_TRUE(has_pieces((char *)there, round + 1));
        for (size_t i = 0; i < list.count; i++) {
            list.buffers[i] = source + (list.addrs[i] - (uintptr_t)there);
        }
        free(other);
        free(got);
    }
    close_lists(&self);
}

static void open_unconnected(party_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask = 0};

    must(ucp_init(&params, NULL, &self->context), "ucp_init");
    must(ucp_worker_create(self->context, &worker_params, &self->worker), "ucp_worker_create");
}

static void expose_unconnected(party_t *self)
{
    ucp_address_t *address;
    size_t         length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_unconnected(self);
    must(ucp_worker_get_address(self->worker, &address, &length), "ucp_worker_get_address");
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    register_length(self, SIZE);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

/* Lists are the first that an endpoint sends: no transport is chosen yet. */
static void first_of_endpoint(bool puts)
{
    party_t          self = {0};
    int              links[2];
    char             packed[1024];
    ucs_status_ptr_t lists[2];

    there = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self.other = fork();
    self.link  = links[self.other == 0];
    if (self.other == 0) {
        expose_unconnected(&self);
    }
    open_unconnected(&self);
    WANT_TRUE(recv(self.link, self.theirs, sizeof(self.theirs), 0) > 0);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT_TRUE(recv(self.link, packed, sizeof(packed), 0) > 0);
    for (int i = 0; i < KEYS; i++) {
        WANT(UCS_OK, ucp_ep_rkey_unpack(self.ep, packed, &keys[i]));
    }
    near = malloc(SIZE);
    make_list(700, 300, 50);
    fill(puts ? near : (char *)there, 1);
    memset(puts ? (char *)there : near, GUARD, SIZE);
    lists[0] = begin(&self, puts);
    lists[1] = begin(&self, puts);
    flush(&self);
    WANT_TRUE(has_pieces(puts ? (char *)there : near, 1));
    wait_ok(&self, lists[0]);
    wait_ok(&self, lists[1]);
    put_and_get(&self, 2);
    close_lists(&self);
}

static void first_puts(void)
{
    first_of_endpoint(true);
}

static void first_gets(void)
{
    first_of_endpoint(false);
}

/* Each list of a peer that dies ends, whole or with the loss, however much of it was sent. */
static void peer_dies(bool puts)
{
    enum { LISTS = 3 };
    party_t          self;
    ucs_status_ptr_t lists[LISTS];

    open_lists(&self);
    make_list(MANY, 100, MANY);
    wait_ok(&self, begin(&self, puts));
    for (int i = 0; i < LISTS; i++) {
        lists[i] = begin(&self, puts);
    }
    for (int i = 0; i < 3; i++) {
        ucp_worker_progress(self.worker);
    }
    kill_other(&self);
    for (int i = 0; i < LISTS; i++) {
        ucs_status_t status = finish(&self, lists[i]);
        WANT_TRUE(status == UCS_OK || is_loss_or_canceled(status));
    }
    ucs_status_t flushed = finish(&self, ucp_ep_flush_nbx(self.ep, &plain));
    WANT_TRUE(flushed == UCS_OK || is_loss_or_canceled(flushed));
    check_failure(&self);
    destroy_keys();
    check_after_failure(&self);
    free(near);
}

static void dies_of_puts(void)
{
    peer_dies(true);
}

static void dies_of_gets(void)
{
    peer_dies(false);
}

/* A forced close ends the lists of its endpoint; then no more is written into the memory of a get. */
static void closed_by_force(void)
{
    party_t          self;
    ucs_status_ptr_t lists[2];

    open_lists(&self);
    make_list(MANY, 100, MANY);
    fill((char *)there, 1);
    memset(near, GUARD, SIZE);
    wait_ok(&self, begin(&self, true));
    lists[0] = begin(&self, false);
    lists[1] = begin(&self, true);
    ucp_worker_progress(self.worker);
    ucs_status_ptr_t closing = ucp_ep_close_nbx(self.ep, &force);
    for (int i = 0; i < 2; i++) {
        ucs_status_t status = finish(&self, lists[i]);
        WANT_TRUE(status == UCS_OK || status == UCS_ERR_CANCELED);
    }
    memset(near, 3, SIZE);
    WANT(UCS_OK, finish(&self, closing));
    for (int i = 0; i < 10000; i++) {
        ucp_worker_progress(self.worker);
    }
    size_t written = 0;
    for (size_t i = 0; i < SIZE; i++) {
        written += near[i] != 3;
    }
    WANT_TRUE(written == 0);
    destroy_keys();
    kill_other(&self);
    ucp_worker_destroy(self.worker);
    ucp_cleanup(self.context);
    free(near);
}

static const case_t cases[] = {
    {"lists: pieces arrive", pieces_arrive},
    {"lists: flushes", flushed},
    {"lists: fences", fenced},
    {"lists: puts before the connection", first_puts},
    {"lists: gets before the connection", first_gets},
    {"lists: the peer of puts dies", dies_of_puts},
    {"lists: the peer of gets dies", dies_of_gets},
    {"lists: closed by force", closed_by_force},
};

CHECK_MAIN(cases)
