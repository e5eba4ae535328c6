//! The first messages of a pair: latency and rate by the number of the message, from the first one to the 100,000th.
//!
//! A library connects, maps memory and populates it while the first messages are in flight; a benchmark that warms up
//! and takes a median does not show that. Here each size has a new pair of workers, nothing is repeated, and each
//! figure is the mean of all messages since the one before it.
#include "pair.h"

#include <stdio.h>

enum { TAG = 1, WINDOW = 64 };

static const size_t sizes[] = {8, 192, 512, 2048};
/* Last message of each mean. Windows end at multiples of 64. */
static const long marks[] = {64, 640, 1984, 4992, 9984, 19968, 49984, 99968};

static void send_one(struct side *side, size_t size)
{
    wait_for(side, ucp_tag_send_nbx(side->ep, side->buffer, size, TAG, &plain), "send");
}

static void receive_one(struct side *side, size_t size)
{
    wait_for(side, ucp_tag_recv_nbx(side->worker, side->buffer, size, TAG, (ucp_tag_t)-1, &plain), "receive");
}

static void ping_pong(struct side *side, size_t size)
{
    if (side->place.index == 0) {
        send_one(side, size);
    }
    receive_one(side, size);
    if (side->place.index == 1) {
        send_one(side, size);
    }
}

/** A window of messages, and an acknowledgement. */
static void window(struct side *side, size_t size)
{
    ucs_status_ptr_t requests[WINDOW];

    for (int i = 0; i < WINDOW; i++) {
        requests[i] = side->place.index == 0
                          ? ucp_tag_send_nbx(side->ep, side->buffer, size, TAG, &plain)
                          : ucp_tag_recv_nbx(side->worker, side->buffer, size, TAG, (ucp_tag_t)-1, &plain);
    }
    for (int i = 0; i < WINDOW; i++) {
        wait_for(side, requests[i], "window");
    }
    if (side->place.index == 0) {
        receive_one(side, 1);
    } else {
        send_one(side, 1);
    }
}

/** Exchanges messages of this size up to each mark in turn, one by one or in windows. */
static void measure(struct place place, const struct effort *effort, size_t size, int is_rate)
{
    long number = is_rate ? WINDOW : 1, sent = 0;
    struct side side;
    char name[64];

    open_side(&side, place, effort, UCP_FEATURE_TAG);
    meet_other(&side);
    snprintf(name, sizeof(name), "first_%s_%zu", is_rate ? "rate" : "latency", size);
    for (size_t i = 0; i < sizeof(marks) / sizeof(*marks) && (!effort->quick || marks[i] < 20000); i++) {
        long before = sent;
        double begin = now(), each;

        for (; sent < marks[i]; sent += number) {
            is_rate ? window(&side, size) : ping_pong(&side, size);
        }
        each = (now() - begin) / (double)(sent - before);
        if (place.index == 0) {
            figure(name, marks[i], is_rate ? 1e-6 / each : each / 2 * 1e6, is_rate ? "M/s" : "us");
        }
    }
    close_side(&side);
}

static void play(struct place place, void *effort)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        measure(place, effort, sizes[i], 0);
        measure(place, effort, sizes[i], 1);
    }
}

int run_first(const struct effort *effort, int argc, char **argv)
{
    (void)argc, (void)argv;
    return start_pair(play, (void *)effort);
}
