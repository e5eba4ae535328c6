/*
 * Short puts and gets of memory that is not mapped are sent as messages where CMA is slow and the peer
 * progresses, and use CMA where it does not. Whichever path each takes, none overtakes another one to the same
 * address, and fences and flushes hold. CMA is made slow here, or some machines would never choose messages.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "../../random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20, WORDS = 64, LONGEST = 8000, ROUNDS = 3000, SLOW_NS = 3000, CHANCES = 200000 };
static const long long TIMEOUT_NS = 8000000000;
/* Actions of the other process. */
enum { WORKS, STANDS, ENDS };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static struct {
    atomic_int  wanted, current;
    atomic_long turns; /* calls of progress */
} *side; /* both processes see it */
static atomic_long copies; /* CMA calls of this process */

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void spend(long long nanoseconds)
{
    for (long long end = now_ns() + nanoseconds; now_ns() < end;) {
    }
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
                         unsigned long remotes, unsigned long flags)
{
    copies++;
    spend(SLOW_NS);
    return syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
                          unsigned long remotes, unsigned long flags)
{
    copies++;
    spend(SLOW_NS);
    return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}

static void expose(party_t *self)
{
    register_memory(self);
    for (int wanted; (wanted = side->wanted) != ENDS;) {
        side->current = wanted;
        if (wanted == WORKS) {
            side->turns++;
            ucp_worker_progress(self->worker);
        }
    }
    side->current = ENDS;
    WANT_TRUE(wait_notified(self));
}

static void let(int what)
{
    side->wanted = what;
}

static void order(int what)
{
    let(what);
    while (side->current != what) {
    }
}

static ucp_rkey_h open_side(party_t *self)
{
    side = mmap(NULL, sizeof(*side), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    let(WORKS);
    return open_memory(self, SIZE, expose);
}

static void close_side(party_t *self, ucp_rkey_h rkey)
{
    order(ENDS);
    close_memory(self, rkey);
    munmap(side, sizeof(*side));
}

static void flush(party_t *self)
{
    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &plain)));
}

/*
 * Puts and gets without a CMA call happen sooner or later where both processes run at the same time. On a machine that
 * is so busy that they hardly ever do, the test checks nothing.
 */
static void by_message(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_side(&self);

    for (int read = 0; read < 2; read++) {
        long long end = now_ns() + TIMEOUT_NS;
        long      without = 0, chances = 0;

        for (uint64_t value = 1; without < 5 && chances < CHANCES && now_ns() < end; value++) {
            long     before = copies, turns = side->turns;
            uint64_t back   = value;

            WANT(UCS_OK, finish(&self, read ? get(&self, &back, 8, 8, rkey) : put(&self, &value, 8, 0, rkey)));
            flush(&self);
            WANT_TRUE(read ? back == 0 : *(volatile uint64_t *)there == value);
            without += copies == before;
            chances += side->turns > turns;
        }
        WANT_TRUE(without == 5 || chances < CHANCES);
    }
    close_side(&self, rkey);
}

/* A peer that does not progress is reached: no operation waits for it. */
static void peer_without_progress(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_side(&self);

    for (uint64_t value = 1; value < 50; value++) {
        uint64_t back;
        long     before;

        order(WORKS);
        for (int i = 0; i < 10; i++) {
            WANT(UCS_OK, finish(&self, put(&self, &value, 8, 8, rkey)));
            flush(&self);
        }
        order(STANDS);
        spend(1000000);
        before = copies;
        WANT(UCS_OK, finish(&self, put(&self, &value, 8, 0, rkey)));
        flush(&self);
        WANT(UCS_OK, finish(&self, get(&self, &back, 8, 0, rkey)));
        WANT_TRUE(*(volatile uint64_t *)there == value && back == value && copies > before);
    }
    close_side(&self, rkey);
}

/* The peer stops before it has executed a message: later operations wait behind that, and no copy overtakes it. */
static void stops(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_side(&self);
    uint64_t   value = 0;

    long long end   = now_ns() + TIMEOUT_NS;

    for (int caught = 0; caught < 5 && now_ns() < end;) {
        ucs_status_ptr_t first, second, flushing;
        uint64_t         values[2] = {++value, ++value};
        static char      filling[LONGEST];
        size_t           length = caught % 2 ? LONGEST : 8;

        memset(filling, (int)value, sizeof(filling));
        memcpy(filling, &values[1], 8);
        WANT(UCS_OK, finish(&self, put(&self, &value, 8, 8, rkey)));
        flush(&self);
        let(STANDS);
        first = put(&self, &values[0], 8, 0, rkey);
        order(STANDS);
        second   = put(&self, filling, length, 0, rkey);
        flushing = ucp_ep_flush_nbx(self.ep, &plain);
        if (UCS_PTR_IS_PTR(flushing)) {
            for (int i = 0; i < 100; i++) {
                ucp_worker_progress(self.worker);
            }
            caught += ucp_request_check_status(flushing) == UCS_INPROGRESS;
        }
        order(WORKS);
        WANT(UCS_OK, finish(&self, flushing));
        WANT(UCS_OK, finish(&self, first));
        WANT(UCS_OK, finish(&self, second));
        WANT_TRUE(memcmp(there, filling, length) == 0);
    }
    close_side(&self, rkey);
}

/*
 * Lengths around the batch size, to the same addresses, by either path, while the peer progresses and pauses by turns.
 */
static void mixed(void)
{
    party_t               self;
    ucp_rkey_h            rkey   = open_side(&self);
    unsigned              random = 1;
    static unsigned char  mine[WORDS][LONGEST], model[SIZE], back[LONGEST];
    ucs_status_ptr_t      requests[WORDS];

    for (int round = 0; round < ROUNDS; round++) {
        int    count = 1 + (int)(next_random(&random) % WORDS);
        size_t place = 0, longest = 0;

        for (int i = 0; i < count; i++) {
            size_t size = next_random(&random) % 8 == 0 ? 1 + next_random(&random) % LONGEST : 8;

            if (next_random(&random) % 16 == 0) {
                let(next_random(&random) % 2 ? WORKS : STANDS);
            }
            place = next_random(&random) % 4 * 8;
            memset(mine[i], (int)next_random(&random), size);
            memcpy(model + place, mine[i], size);
            requests[i] = put(&self, mine[i], size, place, rkey);
            longest     = size > longest ? size : longest;
            if (next_random(&random) % 8 == 0) {
                WANT(UCS_OK, ucp_worker_fence(self.worker));
            }
            if (next_random(&random) % 8 == 0) {
                ucp_worker_progress(self.worker);
            }
        }
        WANT(UCS_OK, ucp_worker_fence(self.worker));
        let(WORKS);
        WANT(UCS_OK, finish(&self, get(&self, back, longest, place, rkey)));
        WANT_TRUE(memcmp(back, model + place, longest) == 0);
        flush(&self);
        WANT_TRUE(memcmp(there, model, 2 * LONGEST) == 0);
        for (int i = 0; i < count; i++) {
            WANT(UCS_OK, finish(&self, requests[i]));
        }
    }
    close_side(&self, rkey);
}

typedef struct {
    party_t   *self;
    ucp_rkey_h rkey;
    int        number;
} user_t;

static void *use(void *argument)
{
    user_t  *user  = argument;
    size_t   place = 64 * (1 + (size_t)user->number);
    uint64_t back;

    for (uint64_t value = 1; value <= ROUNDS; value++) {
        uint64_t         old    = ~value;
        ucs_status_ptr_t first = put(user->self, &old, 8, place, user->rkey);
        ucs_status_ptr_t second;

        /* Without it puts are not ordered: a queued one is overtaken when the other thread progresses. */
        WANT(UCS_OK, ucp_worker_fence(user->self->worker));
        second = put(user->self, &value, 8, place, user->rkey);
        if (value % 64 == 0) {
            let(value % 128 ? WORKS : STANDS);
        }
        let(WORKS);
        WANT(UCS_OK, finish(user->self, ucp_ep_flush_nbx(user->self->ep, &plain)));
        WANT(UCS_OK, finish(user->self, first));
        WANT(UCS_OK, finish(user->self, second));
        WANT_TRUE(*(volatile uint64_t *)(there + place) == value);
        WANT(UCS_OK, finish(user->self, get(user->self, &back, 8, place, user->rkey)));
        WANT_TRUE(back == value);
    }
    return NULL;
}

static void threads(void)
{
    enum { USERS = 2 };
    party_t    self;
    pthread_t  threads[USERS];
    user_t     users[USERS];
    ucp_rkey_h rkey;

    party_thread_mode = UCS_THREAD_MODE_MULTI;
    rkey              = open_side(&self);
    for (int i = 0; i < USERS; i++) {
        users[i] = (user_t){&self, rkey, i};
        WANT_TRUE(pthread_create(&threads[i], NULL, use, &users[i]) == 0);
    }
    for (int i = 0; i < USERS; i++) {
        pthread_join(threads[i], NULL);
    }
    close_side(&self, rkey);
    party_thread_mode = UCS_THREAD_MODE_SINGLE;
}

static const case_t cases[] = {
    {"short: by message", by_message},
    {"short: to a peer without progress", peer_without_progress},
    {"short: to one that stops", stops},
    {"short: mixed", mixed},
    {"short: two threads", threads},
};

CHECK_MAIN(cases)
