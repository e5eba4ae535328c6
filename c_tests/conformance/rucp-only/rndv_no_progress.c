/*
 * Rendezvous whose sender does not progress: the receiver requests middle-sized messages (RTR), and copies them with
 * CMA when no reply comes. By either path the message arrives once and whole.
 */
#define _GNU_SOURCE
#include "party.h"
#include "../../pattern.h"
#include "../../random.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, MESSAGES = 48, ROUNDS = 3000 };

/* On both sides of every length at which the rendezvous protocol changes. */
static const size_t sizes[] = {24577, 32767, 32768, 65536, 65537, 100000, 131072, 131073, 262144, 262145, LARGEST};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Sends one message of each size, and does not progress until the receiver has all of them. */
static void send_without_progress(party_t *self)
{
    unsigned char   *data[SIZES];
    ucs_status_ptr_t sent[SIZES];

    for (int i = 0; i < SIZES; i++) {
        data[i] = malloc(sizes[i]);
        fill(data[i], sizes[i], (unsigned)i);
        sent[i] = send_tag(self, data[i], sizes[i]);
    }
    notify_peer(self);
    wait_notified_blocking(self);
    for (int i = 0; i < SIZES; i++) {
        WANT(UCS_OK, finish(self, sent[i]));
        free(data[i]);
    }
    notify_peer(self);
}

static void from_stalled_sender(int posted_first)
{
    party_t          self;
    unsigned char   *data[SIZES];
    ucs_status_ptr_t received[SIZES];

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_without_progress);
    if (!posted_first) {
        wait_notified_blocking(&self);
    }
    for (int i = 0; i < SIZES; i++) {
        data[i] = calloc(1, LARGEST);
        received[i] = receive_tag(&self, data[i], LARGEST, 1);
    }
    if (posted_first) {
        wait_notified_blocking(&self);
    }
    for (int i = SIZES; i-- > 0;) {
        WANT(UCS_OK, finish(&self, received[i]));
        WANT_TRUE(first_wrong(data[i], sizes[i], (unsigned)i) == sizes[i]);
        free(data[i]);
    }
    notify_peer(&self);
    kill_and_check(&self);
}

static void found(void)
{
    from_stalled_sender(0);
}

static void awaited(void)
{
    from_stalled_sender(1);
}

/* The sender progresses sometimes in time and sometimes late: it and the receiver handle the same messages at once. */
static void progress_irregularly(party_t *self)
{
    static unsigned char data[LARGEST];
    unsigned             random = 1;

    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t size = 24577 + next_random(&random) % 120000;

        fill(data, size, i);
        ucs_status_ptr_t sent = send_tag(self, data, size);
        for (volatile unsigned pause = next_random(&random) % 8192; pause > 0; pause--) {
        }
        WANT(UCS_OK, finish(self, sent));
    }
    notify_peer(self);
}

static void race(void)
{
    party_t        self;
    unsigned       random = 1;
    unsigned char *data = malloc(LARGEST);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, progress_irregularly);
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t size = 24577 + next_random(&random) % 120000;

        next_random(&random);
        memset(data, 0, size);
        WANT(UCS_OK, finish(&self, receive_tag(&self, data, LARGEST, 1)));
        WANT_TRUE(first_wrong(data, size, i) == size);
    }
    kill_and_check(&self);
    free(data);
}

/* More messages in flight than a ring has chunks. */
static void send_many(party_t *self)
{
    unsigned char   *data[MESSAGES];
    ucs_status_ptr_t sent[MESSAGES];

    for (unsigned i = 0; i < MESSAGES; i++) {
        data[i] = malloc(LARGEST);
        fill(data[i], sizes[i % SIZES], i);
        sent[i] = send_tag(self, data[i], sizes[i % SIZES]);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        WANT(UCS_OK, finish(self, sent[i]));
        free(data[i]);
    }
    notify_peer(self);
}

static void many(void)
{
    party_t          self;
    unsigned char   *data[MESSAGES];
    ucs_status_ptr_t received[MESSAGES];

    start(&self, UCP_ERR_HANDLING_MODE_PEER, send_many);
    for (unsigned i = 0; i < MESSAGES; i++) {
        data[i] = calloc(1, LARGEST);
        received[i] = receive_tag(&self, data[i], LARGEST, 1);
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        WANT(UCS_OK, finish(&self, received[i]));
        WANT_TRUE(first_wrong(data[i], sizes[i % SIZES], i) == sizes[i % SIZES]);
        free(data[i]);
    }
    kill_and_check(&self);
}

/* Killed without having progressed: the messages it announced are lost with it. */
static void announce(party_t *self)
{
    static unsigned char data[65536];

    send_tag(self, data, sizeof(data));
    notify_peer(self);
    wait_notified_blocking(self);
}

static void from_dead_sender(void)
{
    party_t              self;
    static unsigned char data[65536];

    start(&self, UCP_ERR_HANDLING_MODE_PEER, announce);
    wait_notified_blocking(&self);
    kill_other(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, receive_tag(&self, data, sizeof(data), 1))));
    check_failure(&self);
    check_after_failure(&self);
}

static const case_t cases[] = {
    {"rndv_no_progress: sent before the receive", found},
    {"rndv_no_progress: sent after the receive", awaited},
    {"rndv_no_progress: progress at times", race},
    {"rndv_no_progress: many at once", many},
    {"rndv_no_progress: killed", from_dead_sender},
};

CHECK_MAIN(cases)
