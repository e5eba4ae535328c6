/*
 * Long puts and gets over several network interfaces: UCX_TOFU_VCQS_PER_WORKER is RAILS and UCX_MAX_RMA_RAILS no less.
 * Every interface carries its part, operations that have to follow all parts do, and one that fails ends the request
 * and the endpoint.
 */
#include "multi_vcq.h"
#include "wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 100 };

static ucs_status_ptr_t put(const void *from, size_t size)
{
    return ucp_put_nbx(ep, from, size, (uint64_t)theirs, rkey, &none);
}

static ucs_status_ptr_t get(void *into, size_t size)
{
    return ucp_get_nbx(ep, into, size, (uint64_t)theirs, rkey, &none);
}

static void parts(void)
{
    static const size_t sizes[] = {64 << 10, LONG, LONG + 12345, SIZE};
    unsigned long       before[MOST];
    unsigned            seed = 1;

    open_all();
    carried(before);
    WANT(UCS_OK, settle(put(own, (64 << 10) - 1)));
    WANT(UCS_OK, flush());
    want_carried("put that is too short", before, 1, (64 << 10) - 1);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t   size = sizes[i];
        unsigned all  = interfaces_of(size);

        pattern(own, size, seed++);
        carried(before);
        WANT(UCS_OK, settle(put(own, size)));
        WANT(UCS_OK, flush());
        want_carried("put", before, all, size / all);
        WANT_TRUE(memcmp(own, theirs, size) == 0);
        pattern(theirs, size, seed++);
        carried(before);
        WANT(UCS_OK, settle(get(own, size)));
        want_carried("get", before, all, size / all);
        WANT_TRUE(memcmp(own, theirs, size) == 0);
    }
    close_all();
}

/* Rails may have overtaken an earlier entry of the queue. Behind a fence there is nothing earlier. */
static void signals(int fenced)
{
    ucpx_cq_entry_t  entry  = {.field_mask = 0};
    ucpx_signal_t    signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE};
    time_t           end    = time(NULL) + SECONDS;
    ucs_status_ptr_t first, second;

    open_all();
    for (int round = 1; round <= ROUNDS; round++) {
        memset(own, round, LONG);
        signal.value = (uint64_t)round;
        if (fenced) {
            first = put(own, LONG);
            WANT(UCS_OK, ucp_worker_fence(worker));
            second = FIND(ucpx_put_signal_nbx)(ep, own, 8, (uint64_t)theirs + LONG, rkey, &signal, &none);
        } else {
            first  = UCS_STATUS_PTR(UCS_OK);
            second = FIND(ucpx_put_signal_nbx)(ep, own, LONG, (uint64_t)theirs, rkey, &signal, &none);
        }
        while (FIND(ucpx_cq_poll)(queue, &entry, 1) == 0 && time(NULL) < end) {
            progress();
        }
        WANT_TRUE(entry.value == (uint64_t)round);
        for (size_t at = 0; at < LONG; at += LINE) {
            WANT_TRUE(theirs[at] == (unsigned char)round && theirs[at + LINE - 1] == (unsigned char)round);
        }
        WANT(UCS_OK, settle(first));
        WANT(UCS_OK, settle(second));
        WANT(UCS_OK, flush());
    }
    close_all();
}

static void behind_its_data(void)
{
    signals(0);
}

static void behind_a_fence(void)
{
    signals(1);
}

/* A put, a fence, another one to the same address, a fence, a get of it: each over all interfaces. */
static void fences(void)
{
    unsigned char   *other = fresh(0), *into = fresh(0);
    ucs_status_ptr_t requests[3];

    open_all();
    for (int round = 1; round <= ROUNDS; round++) {
        memset(own, round, LONG);
        memset(other, ~round, LONG);
        requests[0] = put(own, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[1] = put(other, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[2] = get(into, LONG);
        for (int i = 0; i < 3; i++) {
            WANT(UCS_OK, settle(requests[i]));
        }
        WANT_TRUE(memcmp(into, other, LONG) == 0);
        /* The other way about: the get returns the data before the put. */
        requests[0] = get(into, LONG);
        WANT(UCS_OK, ucp_worker_fence(worker));
        requests[1] = put(own, LONG);
        WANT(UCS_OK, settle(requests[0]));
        WANT(UCS_OK, settle(requests[1]));
        WANT(UCS_OK, flush());
        WANT_TRUE(memcmp(into, other, LONG) == 0 && memcmp(theirs, own, LONG) == 0);
    }
    close_all();
    munmap(other, SIZE);
    munmap(into, SIZE);
}

/* The n-th operation fails: the request ends as the endpoint does, when no adapter accesses the memory any more. */
static void failing(int nth, int code, int writes)
{
    ucs_status_ptr_t request;
    ucs_status_t     status;
    char             order[64];
    time_t           end = time(NULL) + SECONDS;

    open_all();
    snprintf(order, sizeof(order), "fail_nth=%d,fail_code=%d", nth, code);
    fault(order);
    request = writes ? put(own, LONG) : get(own, LONG);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    status = settle(request);
    WANT_TRUE(status == UCS_ERR_IO_ERROR || status == UCS_ERR_CONNECTION_RESET ||
              (writes && nth == 1 && status == UCS_OK));
    while (failures == 0 && time(NULL) < end) {
        progress();
    }
    WANT_TRUE(failures == 1);
    close_all();
}

static void failing_puts(void)
{
    for (int nth = 1; nth <= (int)queues(); nth++) {
        failing(nth, -131, 1);
        failing(nth, -197, 1);
        failing(nth, -193, 1);
    }
}

static void failing_gets(void)
{
    for (int nth = 1; nth <= (int)queues(); nth++) {
        failing(nth, -196, 0);
        failing(nth, -193, 0);
    }
}

/* Rails whose registration fails carry nothing: the others carry all. */
static void not_registered(void)
{
    unsigned long before[MOST];
    char          order[32];

    for (int nth = 2; nth <= (int)queues(); nth++) {
        open_all();
        pattern(own, LONG, (unsigned)nth);
        carried(before);
        snprintf(order, sizeof(order), "reg_fail_nth=%d", nth);
        fault(order);
        WANT(UCS_OK, settle(put(own, LONG)));
        WANT(UCS_OK, flush());
        want_carried("put with a rail less", before, queues() - 1, LONG / (queues() - 1));
        WANT_TRUE(memcmp(own, theirs, LONG) == 0);
        close_all();
    }
}

/* After a forced close the buffer is free when it is not written any more. */
static void closed_by_force(void)
{
    ucs_status_ptr_t request;
    ucs_status_t     status;

    open_all();
    memset(theirs, 5, LONG);
    fault("delay_us=100000");
    request = get(own, LONG);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    WANT(UCS_OK, settle(close_ep()));
    status = settle(request);
    WANT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET);
    /* It could not be stopped: so the data must have arrived by now. */
    for (size_t at = 0; at < LONG; at += LINE) {
        WANT_TRUE(own[at] == 5 && own[at + LINE - 1] == 5);
    }
    fault("delay_us=0");
    close_rest();
}

static const case_t cases[] = {
    {"rma_rails: parts", parts},
    {"rma_rails: signals behind their data", behind_its_data},
    {"rma_rails: signals behind a fence", behind_a_fence},
    {"rma_rails: fences", fences},
    {"rma_rails: puts that fail", failing_puts},
    {"rma_rails: gets that fail", failing_gets},
    {"rma_rails: memory that is not registered", not_registered},
    {"rma_rails: closed by force", closed_by_force},
};

CHECK_MAIN(cases)
