//! What each process of the soak test has, and how it checks and waits: see soak.h.
#define _GNU_SOURCE
#include "soak.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int            processes = 3, threads = 2, me;
size_t         largest = 200000;
shared_t      *shared;
ucp_context_h  context;
ucp_worker_h   worker;
ucp_ep_h       endpoints[MAX_PROCESSES];
ucp_rkey_h     keys[MAX_PROCESSES];
unsigned char *window;

double now(void)
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

void check_status(ucs_status_t status, const char *what)
{
    CHECK(status == UCS_OK, "%s: %s", what, ucs_status_string(status));
}

uint32_t draw(thread_t *t)
{
    t->random = t->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(t->random >> 33);
}

size_t draw_length(thread_t *t, size_t most)
{
    int bits = 64 - __builtin_clzl(most);

    return draw(t) & ((1ul << draw(t) % (bits + 1)) - 1) % (most + 1);
}

static unsigned char pattern(size_t index, uint32_t of)
{
    return (unsigned char)(index * 31 + (index >> 8) * 7 + (index >> 16) * 13 + of * 101 + 5);
}

void fill(unsigned char *bytes, size_t from, size_t to, uint32_t of)
{
    for (size_t i = from; i < to; i++) {
        bytes[i] = pattern(i, of);
    }
}

void verify(const unsigned char *bytes, size_t from, size_t to, uint32_t of, const char *what)
{
    for (size_t i = from; i < to; i++) {
        CHECK(bytes[i] == pattern(i, of), "%s: byte %zu of %zu is wrong", what, i, to);
    }
}

void count(kind_t kind, size_t length)
{
    atomic_fetch_add_explicit(&shared->done[kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&shared->bytes, (long)length, memory_order_relaxed);
}

void progress(void)
{
    if (ucp_worker_progress(worker) == 0) {
        sched_yield();
    }
    if (atomic_load_explicit(&shared->failed, memory_order_relaxed)) {
        _exit(1);
    }
}

ucs_status_t wait_for(ucs_status_ptr_t request, const char *what)
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
