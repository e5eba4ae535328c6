//! Ping-pong of many threads: each thread with the thread of the same number in the partner, one message in flight.
//!
//! By put: a message of up to 8 bytes is its number, which the receiver polls for; a larger one is put, and after a
//! fence its number is put behind it, since no event reports the arrival of all of it. By tags: send and receive.
#include "../pattern.h"
#include "benchmark.h"
#include "figure.h"
#include "job.h"
#include "local.h"

#include <stdio.h>
#include <string.h>

/* In the memory of a thread: the number of the last message, then the message. */
enum { NUMBER_ROOM = APART, CAREFUL_ROUNDS = 4 };

/** A thread's functions for one message. */
typedef void (*transfer)(int thread, ucp_worker_h worker, ucp_ep_h ep);

static struct {
    struct fabric fabric;
    size_t size, stride;
    transfer send, receive;
    int verify_contents; /* every message has other contents, all of which are compared */
    struct {
        _Alignas(512) uint64_t sent, received; /* numbers of the last messages */
        uint64_t number;                       /* the put's source: it must last until the put is complete */
    } at[MAX_THREADS];
} table;

static unsigned char *outbox(int thread)
{
    return local.of[thread];
}

/** Target of the partner's puts and of tagged receives: memory allocated by the program. */
static unsigned char *put_inbox(int thread)
{
    return table.fabric.own + (size_t)thread * table.stride + NUMBER_ROOM;
}

static unsigned char *tag_inbox(int thread)
{
    return local.of[thread] + options.largest;
}

static int first_side(void)
{
    return job.rank < job.size / 2;
}

static unsigned seed_of(int side, int thread, uint64_t number)
{
    return (unsigned)side * 50021u + (unsigned)thread * 263u + (unsigned)number;
}

/* ---- by put ---- */

static void put(int thread, ucp_worker_h worker, ucp_ep_h ep, const void *data, size_t length, size_t offset)
{
    struct fabric *fabric = &table.fabric;
    int end = worker_of(fabric, thread) * job.size + fabric->partner;
    uint64_t address = fabric->base[fabric->partner] + (uint64_t)thread * table.stride + offset;

    complete(fabric, worker, ucp_put_nbx(ep, data, length, address, fabric->rkey[end], &plain));
}

static void send_by_put(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    size_t length = sizeof(uint64_t);

    table.at[thread].number = table.at[thread].sent;
    if (table.size <= length) {
        length = table.size;
    } else {
        put(thread, worker, ep, outbox(thread), table.size, NUMBER_ROOM);
        check(ucp_worker_fence(worker), "ucp_worker_fence");
    }
    put(thread, worker, ep, &table.at[thread].number, length, 0);
}

/** Whether the expected number has arrived; it is written by the partner's put. */
static int number_is_here(int thread)
{
    const unsigned char *place = put_inbox(thread) - NUMBER_ROOM;
    uint64_t expected = table.at[thread].received;

    /*
     * Acquire: the data that the partner put before the fence is visible. Four bytes of little endian are the lower
     * half.
     */
    if (table.size < sizeof(uint64_t)) {
        return __atomic_load_n((const uint32_t *)(const void *)place, __ATOMIC_ACQUIRE) == (uint32_t)expected;
    }
    return __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE) == expected;
}

static void receive_by_put(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    (void)ep;
    while (!number_is_here(thread)) {
        progress(&table.fabric, worker);
    }
}

/* ---- by tags ---- */

static void send_by_tag(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    complete(&table.fabric, worker, ucp_tag_send_nbx(ep, outbox(thread), table.size, (ucp_tag_t)thread, &plain));
}

static void receive_by_tag(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    (void)ep;
    complete(&table.fabric, worker,
             ucp_tag_recv_nbx(worker, tag_inbox(thread), table.size, (ucp_tag_t)thread, (ucp_tag_t)-1, &plain));
}

/* ---- the exchange ---- */

static void send_next(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    uint64_t number = ++table.at[thread].sent;

    if (table.verify_contents) {
        fill(outbox(thread), table.size, seed_of(first_side(), thread, number));
    }
    table.send(thread, worker, ep);
}

/** A short put is its number and was compared by the waiting function. */
static void receive_next(int thread, ucp_worker_h worker, ucp_ep_h ep)
{
    uint64_t number = ++table.at[thread].received;
    int by_tag = table.receive == receive_by_tag;
    size_t wrong;

    table.receive(thread, worker, ep);
    if (table.verify_contents && (by_tag || table.size > sizeof(uint64_t))) {
        wrong = first_wrong(by_tag ? tag_inbox(thread) : put_inbox(thread), table.size,
                            seed_of(!first_side(), thread, number));
        if (wrong < table.size) {
            die("ping-pong of %zu bytes, thread %d: byte %zu of message %llu is wrong", table.size, thread, wrong,
                (unsigned long long)number);
        }
    }
}

static void exchange(int thread, long rounds)
{
    ucp_worker_h worker = own_worker(&table.fabric, thread);
    ucp_ep_h ep = table.fabric.ep[worker_of(&table.fabric, thread) * job.size + table.fabric.partner];

    for (long i = 0; i < rounds; i++) {
        if (first_side()) {
            send_next(thread, worker, ep);
            receive_next(thread, worker, ep);
        } else {
            receive_next(thread, worker, ep);
            send_next(thread, worker, ep);
        }
    }
}

static void verify(void)
{
    table.verify_contents = 1;
    run_team(exchange, CAREFUL_ROUNDS);
    table.verify_contents = 0;
}

static void play(const char *name, int threads, int workers, uint64_t features)
{
    char latency[64], bandwidth[64];

    memset(table.at, 0, sizeof(table.at));
    table.stride = NUMBER_ROOM + rounded_up(options.largest);
    open_fabric(&table.fabric, threads, workers, PARTNER, features, (size_t)threads * table.stride);
    open_team(&table.fabric);
    open_local(2 * options.largest);
    snprintf(latency, sizeof(latency), "%s_latency", name);
    snprintf(bandwidth, sizeof(bandwidth), "%s_bandwidth", name);
    for (table.size = options.smallest; table.size <= options.largest; table.size *= options.factor) {
        struct round_time time;
        /* In both directions, of all threads of all pairs. */
        double bytes = (double)table.size * threads * job.size;

        verify();
        time = measure(exchange, 1L << 40, job.size / 2, NULL);
        verify();
        print_row(latency, &table.fabric, table.size, time.mean / 2 * 1e6, "us");
        print_row(bandwidth, &table.fabric, table.size, bytes / time.whole / 1e6, "MB/s");
    }
    close_team();
    close_local();
    close_fabric(&table.fabric);
}

void pingpong_put(int threads, int workers)
{
    table.send = send_by_put;
    table.receive = receive_by_put;
    play("pingpong_put", threads, workers, UCP_FEATURE_RMA);
}

void pingpong_tag(int threads, int workers)
{
    table.send = send_by_tag;
    table.receive = receive_by_tag;
    play("pingpong_tag", threads, workers, UCP_FEATURE_TAG | UCP_FEATURE_RMA);
}
