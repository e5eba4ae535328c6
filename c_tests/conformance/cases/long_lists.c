/*
 * Scatter-gather lists of 100,000 pieces, of several threads of one worker, and with a piece that is refused.
 */
#define _GNU_SOURCE
#include "piece_lists.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 3, REPEATS = 2, LEAK_KIB = 1 << 10 };

static long peak_kib(void)
{
    struct rusage usage;

    WANT_TRUE(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

/* Every byte arrives, and later puts and gets need no more memory than the first ones: a list has 2 MB in each. */
static void many_pieces(void)
{
    party_t self;
    long    first;

    open_lists(&self);
    seed = 1;
    make_list(MOST, 16, 30000);
    WANT_TRUE(list.count == MOST);
    put_and_get(&self, 1);
    first = peak_kib();
    for (unsigned round = 2; round < 2 + REPEATS; round++) {
        put_and_get(&self, round);
    }
    WANT_TRUE(peak_kib() <= first + LEAK_KIB);
    close_lists(&self);
}

/* --- threads of one worker --- */

static party_t *shared;

static void *access_part(void *number)
{
    size_t part = list.count / THREADS, first = (uintptr_t)number / 2 * part;
    bool   puts = (uintptr_t)number % 2;

    for (int i = 0; i < ROUNDS; i++) {
        wait_ok(shared, begin_part(shared, puts, first, part));
    }
    return NULL;
}

static void by_threads(bool puts)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++) {
        WANT_TRUE(pthread_create(&threads[i], NULL, access_part, (void *)(i * 2 + puts)) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        WANT_TRUE(pthread_join(threads[i], NULL) == 0);
    }
}

static void open_worker(party_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = party_features};
    ucp_worker_params_t worker_params = {.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                         .thread_mode = UCS_THREAD_MODE_MULTI};

    must(ucp_init(&params, NULL, &self->context), "ucp_init");
    must(ucp_worker_create(self->context, &worker_params, &self->worker), "ucp_worker_create");
}

static void expose_to_threads(party_t *self)
{
    ucp_address_t *address;
    size_t         length;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_worker(self);
    must(ucp_worker_get_address(self->worker, &address, &length), "ucp_worker_get_address");
    WANT_TRUE(send(self->link, address, length, 0) == (ssize_t)length);
    register_length(self, SIZE);
    for (;;) {
        ucp_worker_progress(self->worker);
    }
}

static void threads_share_a_worker(void)
{
    party_t self = {0};
    int     links[2];
    char    packed[1024];

    there = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    self.other = fork();
    self.link  = links[self.other == 0];
    if (self.other == 0) {
        expose_to_threads(&self);
    }
    open_worker(&self);
    WANT_TRUE(recv(self.link, self.theirs, sizeof(self.theirs), 0) > 0);
    party_connect(&self, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT_TRUE(recv(self.link, packed, sizeof(packed), 0) > 0);
    for (int i = 0; i < KEYS; i++) {
        WANT(UCS_OK, ucp_ep_rkey_unpack(self.ep, packed, &keys[i]));
    }
    near   = malloc(SIZE);
    shared = &self;
    seed   = 2;
    make_list(4000, 200, 30);
    list.count -= list.count % THREADS;
    fill(near, 1);
    memset(there, GUARD, SIZE);
    by_threads(true);
    flush(&self);
    WANT_TRUE(has_pieces((char *)there, 1));
    fill((char *)there, 2);
    memset(near, GUARD, SIZE);
    by_threads(false);
    WANT_TRUE(has_pieces(near, 2));
    close_lists(&self);
}

/* --- a piece that is refused --- */

/* Nothing of a list is accessed if its last piece has no key or no buffer; the endpoint goes on. */
static void refused(void)
{
    party_t self;

    open_lists(&self);
    seed = 3;
    make_list(3000, 50, 40);
    for (int i = 0; i < 4; i++) {
        bool       puts   = i % 2;
        size_t     last   = list.count - 1;
        ucp_rkey_h key    = list.rkeys[last];
        void      *buffer = list.buffers[last];

        list.lengths[last] = 1;
        list.addrs[last]   = (uintptr_t)there + ((char *)buffer - near);
        *(i < 2 ? (void **)&list.rkeys[last] : &list.buffers[last]) = NULL;
        memset(near, 1, SIZE);
        memset(there, 2, SIZE);
        ucs_status_ptr_t request = begin(&self, puts);
        WANT(UCS_ERR_INVALID_PARAM, UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK);
        flush(&self);
        WANT_TRUE(near[0] == 1 && memcmp(near, near + 1, SIZE - 1) == 0);
        WANT_TRUE(((char *)there)[0] == 2 && memcmp(there, (char *)there + 1, SIZE - 1) == 0);
        list.rkeys[last]   = key;
        list.buffers[last] = buffer;
    }
    put_and_get(&self, 1);
    close_lists(&self);
}

static const case_t cases[] = {
    {"long_lists: 100,000 pieces", many_pieces},
    {"long_lists: threads share a worker", threads_share_a_worker},
    {"long_lists: a piece is refused", refused},
};

CHECK_MAIN(cases)
