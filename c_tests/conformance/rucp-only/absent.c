/*
 * Rendezvous whose sender is elsewhere: the receiver asks for middle-sized messages, and copies them by itself when
 * nobody answers. Whoever moves a message, it arrives once and whole.
 */
#define _GNU_SOURCE
#include "party.h"
#include "../../pattern.h"
#include "../../random.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, MESSAGES = 48, ROUNDS = 3000 };

/* On both sides of every length at which a rendezvous begins to travel in another way. */
static const size_t sizes[] = {24577, 32767, 32768, 65536, 65537, 100000, 131072, 131073, 262144, 262145, LARGEST};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Offers one message of each size, and makes no progress until the other side has them all. */
static void offer_and_leave(party_t *self)
{
    unsigned char   *data[SIZES];
    ucs_status_ptr_t sent[SIZES];

    for (int i = 0; i < SIZES; i++) {
        data[i] = malloc(sizes[i]);
        fill(data[i], sizes[i], (unsigned)i);
        sent[i] = send_tag(self, data[i], sizes[i]);
    }
    tell(self);
    heard_asleep(self);
    for (int i = 0; i < SIZES; i++) {
        WANT(UCS_OK, finish(self, sent[i]));
        free(data[i]);
    }
    tell(self);
}

static void from_who_is_absent(int posted_first)
{
    party_t          self;
    unsigned char   *data[SIZES];
    ucs_status_ptr_t received[SIZES];

    start(&self, UCP_ERR_HANDLING_MODE_PEER, offer_and_leave);
    if (!posted_first) {
        heard_asleep(&self);
    }
    for (int i = 0; i < SIZES; i++) {
        data[i] = calloc(1, LARGEST);
        received[i] = receive_tag(&self, data[i], LARGEST, 1);
    }
    if (posted_first) {
        heard_asleep(&self);
    }
    for (int i = SIZES; i-- > 0;) {
        WANT(UCS_OK, finish(&self, received[i]));
        WANT_TRUE(first_wrong(data[i], sizes[i], (unsigned)i) == sizes[i]);
        free(data[i]);
    }
    tell(&self);
    outlive(&self);
}

static void found(void)
{
    from_who_is_absent(0);
}

static void awaited(void)
{
    from_who_is_absent(1);
}

/* Comes sometimes in time and sometimes late: both ends are after the same messages. */
static void come_and_go(party_t *self)
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
    tell(self);
}

static void race(void)
{
    party_t        self;
    unsigned       random = 1;
    unsigned char *data = malloc(LARGEST);

    start(&self, UCP_ERR_HANDLING_MODE_PEER, come_and_go);
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t size = 24577 + next_random(&random) % 120000;

        next_random(&random);
        memset(data, 0, size);
        WANT(UCS_OK, finish(&self, receive_tag(&self, data, LARGEST, 1)));
        WANT_TRUE(first_wrong(data, size, i) == size);
    }
    outlive(&self);
    free(data);
}

/* More messages than a ring has shares, under way at once. */
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
    tell(self);
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
    outlive(&self);
}

/* Killed before it could answer, and without having made progress: what it offered is gone with it. */
static void offer(party_t *self)
{
    static unsigned char data[65536];

    send_tag(self, data, sizeof(data));
    tell(self);
    heard_asleep(self);
}

static void from_who_is_dead(void)
{
    party_t              self;
    static unsigned char data[65536];

    start(&self, UCP_ERR_HANDLING_MODE_PEER, offer);
    heard_asleep(&self);
    kill_other(&self);
    WANT_TRUE(is_loss_or_canceled(finish(&self, receive_tag(&self, data, sizeof(data), 1))));
    failure_seen(&self);
    aftermath(&self);
}

static const case_t cases[] = {
    {"absent: what it has left is found", found},
    {"absent: what it leaves is awaited", awaited},
    {"absent: coming and going", race},
    {"absent: many at once", many},
    {"absent: for ever", from_who_is_dead},
};

CHECK_MAIN(cases)
