//! Costs of a worker with history: peers that have disconnected, endpoints that were closed, unexpected messages,
//! posted receives without a message.
//!
//! ucpbench growth peers|endpoints|unexpected|posted NUMBER: this many of them, then a ping-pong of 8 bytes with a peer
//! that is connected all the time, and the resources of the process: memory (PSS), descriptors, mappings. `cycle` is
//! the time of the last tenth: of peers and endpoints from the endpoint's creation to its close, of unexpected messages
//! and posted receives that of one to be received.
#define _GNU_SOURCE
#include "pair.h"
#include "../resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 8, PING = 1, OTHERS = 2, MOST = 1000000, SETTLE_SECONDS = 1 };

static const ucp_tag_t all_bits = ~(ucp_tag_t)0;

struct growth {
    const struct effort *effort;
    const char *kind;
    int number;
};

static ucs_status_ptr_t send_tag(ucp_ep_h ep, const void *bytes, ucp_tag_t tag)
{
    return ucp_tag_send_nbx(ep, bytes, BYTES, tag, &plain);
}

static ucs_status_ptr_t receive_tag(struct side *side, void *bytes, ucp_tag_t tag)
{
    return ucp_tag_recv_nbx(side->worker, bytes, BYTES, tag, all_bits, &plain);
}

static void ping_pong(struct side *side, size_t size, long rounds)
{
    (void)size;
    for (long i = 0; i < rounds; i++) {
        for (int turn = 0; turn < 2; turn++) {
            if (turn == side->place.index) {
                wait_for(side, send_tag(side->ep, side->buffer, PING), "ucp_tag_send_nbx");
            } else {
                wait_for(side, receive_tag(side, side->buffer + BYTES, PING), "ucp_tag_recv_nbx");
            }
        }
    }
}

/** Lets the library detect closed peers. */
static void settle(struct side *side)
{
    double end = now() + SETTLE_SECONDS;

    while (now() < end) {
        ucp_worker_progress(side->worker);
    }
    meet_other(side);
}

/** Kibibytes of memory (PSS). */
static long pss_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "Pss: %ld", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

static void report(const struct growth *growth, const char *what, double value, const char *unit)
{
    char name[64];

    snprintf(name, sizeof(name), "growth_%s_%s", growth->kind, what);
    figure(name, growth->number, value, unit);
}

static ucp_ep_h connect_to(struct side *side, const void *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_ep_h ep;

    check(ucp_ep_create(side->worker, &params, &ep), "ucp_ep_create");
    return ep;
}

static ucp_worker_h new_worker(struct side *side)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_worker_h worker;

    check(ucp_worker_create(side->context, &params, &worker), "ucp_worker_create");
    return worker;
}

/** Seconds of a message and the close on an endpoint that is created for it. */
static double one_endpoint(struct side *side, const void *address)
{
    double begin = now();
    ucp_ep_h ep = connect_to(side, address);

    wait_for(side, send_tag(ep, side->buffer, OTHERS), "ucp_tag_send_nbx");
    wait_for(side, ucp_ep_close_nbx(ep, &plain), "ucp_ep_close_nbx");
    return now() - begin;
}

/** Receives one message for OTHERS, on a worker of this side. */
static void receive_other(struct side *side, ucp_worker_h worker)
{
    ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, side->buffer, BYTES, OTHERS, all_bits, &plain);

    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
        ucp_worker_progress(side->worker);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
}

/** Two workers of one process. */
struct two {
    ucp_worker_h first, second;
};

static void progress_both(void *argument)
{
    struct two *two = argument;

    ucp_worker_progress(two->first);
    ucp_worker_progress(two->second);
}

static double grow_peers(struct side *side, int number)
{
    char theirs[MAIL_ROOM] = {0};
    double spent = 0;

    for (int i = 0; i < number; i++) {
        struct two two = {side->worker, side->worker};
        ucp_address_t *address = NULL;
        size_t length = 0;

        if (side->place.index == 1) {
            two.second = new_worker(side);
            check(ucp_worker_get_address(two.second, &address, &length), "ucp_worker_get_address");
        }
        exchange(side->place, address, length, theirs, sizeof(theirs));
        if (side->place.index == 0) {
            double took = one_endpoint(side, theirs);

            spent += i >= number - number / 10 ? took : 0;
        } else {
            ucp_worker_release_address(two.second, address);
            receive_other(side, two.second);
        }
        meet(side->place, progress_both, &two);
        if (side->place.index == 1) {
            ucp_worker_destroy(two.second);
        }
    }
    return spent / (number / 10);
}

static double grow_endpoints(struct side *side, int number)
{
    char theirs[MAIL_ROOM];
    ucp_address_t *address;
    double spent = 0;
    size_t length;

    check(ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    exchange(side->place, address, length, theirs, sizeof(theirs));
    ucp_worker_release_address(side->worker, address);
    for (int i = 0; i < number; i++) {
        if (side->place.index == 0) {
            double took = one_endpoint(side, theirs);

            spent += i >= number - number / 10 ? took : 0;
        } else {
            receive_other(side, side->worker);
        }
    }
    meet_other(side);
    return spent / (number / 10);
}

/** Side 1 sends this many messages for OTHERS and the message after them. */
static void send_many(struct side *side, int number)
{
    ucs_status_ptr_t *sent = calloc((size_t)number, sizeof(*sent));

    for (int i = 0; i < number; i++) {
        sent[i] = send_tag(side->ep, side->buffer, OTHERS + (ucp_tag_t)i);
        ucp_worker_progress(side->worker);
    }
    for (int i = 0; i < number; i++) {
        wait_for(side, sent[i], "ucp_tag_send_nbx");
    }
    free(sent);
}

static void measure(struct side *side, const struct growth *growth)
{
    double latency;

    if (strcmp(growth->kind, "peers") == 0 || strcmp(growth->kind, "endpoints") == 0) {
        settle(side);
    }
    latency = seconds_per_round(side, ping_pong, BYTES) * 1e6 / 2;
    if (side->place.index == 0) {
        report(growth, "latency", latency, "us");
        report(growth, "memory", (double)pss_kib(), "KiB");
        report(growth, "descriptors", (double)entries_of("/proc/self/fd"), "descriptors");
        report(growth, "mappings", (double)lines_of("/proc/self/maps"), "mappings");
    }
}

/** This many unexpected messages; seconds to receive one in the end. */
static double grow_unexpected(struct side *side, const struct growth *growth)
{
    double begin;

    if (side->place.index == 1) {
        send_many(side, growth->number);
    }
    /* Behind the others. */
    ping_pong(side, BYTES, 1);
    measure(side, growth);
    begin = now();
    for (int i = 0; i < growth->number && side->place.index == 0; i++) {
        wait_for(side, receive_tag(side, side->buffer, OTHERS + (ucp_tag_t)i), "ucp_tag_recv_nbx");
    }
    return (now() - begin) / growth->number;
}

/** This many receives without a message; seconds until one has completed. */
static double grow_posted(struct side *side, const struct growth *growth)
{
    ucs_status_ptr_t *posted = calloc((size_t)growth->number, sizeof(*posted));
    double begin;

    for (int i = 0; i < growth->number && side->place.index == 0; i++) {
        posted[i] = receive_tag(side, side->buffer, OTHERS + (ucp_tag_t)i);
    }
    measure(side, growth);
    begin = now();
    if (side->place.index == 1) {
        send_many(side, growth->number);
    }
    for (int i = 0; i < growth->number && side->place.index == 0; i++) {
        wait_for(side, posted[i], "ucp_tag_recv_nbx");
    }
    free(posted);
    return (now() - begin) / growth->number;
}

static void play(struct place place, void *argument)
{
    const struct growth *growth = argument;
    struct side side;
    double cycle;

    open_side(&side, place, growth->effort, UCP_FEATURE_TAG);
    ping_pong(&side, BYTES, 1);
    if (strcmp(growth->kind, "unexpected") == 0) {
        cycle = grow_unexpected(&side, growth);
    } else if (strcmp(growth->kind, "posted") == 0) {
        cycle = grow_posted(&side, growth);
    } else {
        int peers = strcmp(growth->kind, "peers") == 0;

        cycle = peers ? grow_peers(&side, growth->number) : grow_endpoints(&side, growth->number);
        measure(&side, growth);
    }
    if (place.index == 0) {
        report(growth, "cycle", cycle * 1e6, "us");
    }
    close_side(&side);
}

int run_growth(const struct effort *effort, int argc, char **argv)
{
    static const char *const kinds[] = {"peers", "endpoints", "unexpected", "posted"};
    struct growth growth = {.effort = effort};

    for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        growth.kind = strcmp(argv[1], kinds[i]) == 0 ? kinds[i] : growth.kind;
    }
    if (growth.kind == NULL || (growth.number = atoi(argv[2])) < 10 || growth.number > MOST) {
        die("usage: growth peers|endpoints|unexpected|posted NUMBER (10 to %d)", MOST);
    }
    return start_pair(play, &growth);
}
