/*
 * On-demand paging (SOFT_HCA_ODP=implicit): memory is unmapped and mapped again between transfers, none of it is
 * registered, and each transfer carries the contents of that time.
 *
 * HCACTL names the program that shows what the software HCA has counted.
 */
#define _GNU_SOURCE
#include "exposed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE ((size_t)4 << 20)
/* RLIMIT_MEMLOCK of the second case: less than one message, more than the library's own buffers. */
#define LITTLE "1048576"
enum { ROUNDS = 6 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

static long counter(const char *name)
{
    char  line[128];
    long  value = -1;
    FILE *pipe  = popen(getenv("HCACTL"), "r");

    WANT_TRUE(pipe != NULL);
    while (fgets(line, sizeof(line), pipe) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == '=') {
            value = atol(line + strlen(name) + 1);
        }
    }
    WANT_TRUE(pclose(pipe) == 0 && value >= 0);
    return value;
}

/* Maps new memory at the same address each time. */
static unsigned char *memory(int value)
{
    static unsigned char *place;
    int                   fixed = place != NULL ? MAP_FIXED : 0;

    place = mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    WANT_TRUE(place != MAP_FAILED);
    memset(place, value, SIZE);
    return place;
}

static int all_are(const unsigned char *bytes, int value)
{
    for (size_t i = 0; i < SIZE; i++) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* The messages of all rounds, each into newly mapped memory. */
static void receives(party_t *self)
{
    for (int round = 1; round <= ROUNDS; round++) {
        unsigned char *bytes = memory(0);

        WANT(UCS_OK, finish(self, receive_tag(self, bytes, SIZE, 1)));
        WANT_TRUE(all_are(bytes, round));
        WANT_TRUE(munmap(bytes, SIZE) == 0);
        notify_peer(self);
    }
}

static void registers_and_receives(party_t *self)
{
    register_memory(self);
    notify_peer(self);
    receives(self);
}

static void send_round(party_t *self, int round)
{
    unsigned char *bytes = memory(round);

    WANT(UCS_OK, finish(self, send_tag(self, bytes, SIZE)));
    WANT_TRUE(munmap(bytes, SIZE) == 0);
    WANT_TRUE(wait_notified(self));
}

static void put_and_get(party_t *self, ucp_rkey_h rkey, int round)
{
    unsigned char *bytes = memory(round);

    WANT(UCS_OK, finish(self, put(self, bytes, SIZE, 0, rkey)));
    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &none)));
    WANT_TRUE(munmap(bytes, SIZE) == 0);
    WANT_TRUE(all_are(there, round));
    bytes = memory(0);
    WANT(UCS_OK, finish(self, get(self, bytes, SIZE, 0, rkey)));
    WANT_TRUE(all_are(bytes, round));
    WANT_TRUE(munmap(bytes, SIZE) == 0);
}

/* From the second round on nothing is registered at either end, and the devices carry all payload. */
static void nothing_registered(void)
{
    party_t    self;
    ucp_rkey_h rkey = open_memory(&self, SIZE, registers_and_receives);
    long       registered, words = counter("words");

    WANT_TRUE(wait_notified(&self));
    put_and_get(&self, rkey, 1);
    send_round(&self, 1);
    registered = counter("registered");
    for (int round = 2; round <= ROUNDS; round++) {
        put_and_get(&self, rkey, round);
        send_round(&self, round);
    }
    WANT_TRUE(counter("registered") == registered);
    WANT_TRUE(counter("words") == words + ROUNDS);
    ucp_rkey_destroy(rkey);
    kill_and_check(&self);
}

static void little_and_receives(party_t *self)
{
    setenv("SOFT_HCA_MR_LONGEST", LITTLE, 1);
    register_memory(self);
    notify_peer(self);
    wait_notified_blocking(self);
    receives(self);
}

/*
 * Default order of registration methods: memory that cannot be pinned uses ODP. The peer does not progress meanwhile.
 */
static void cannot_be_pinned(void)
{
    party_t    self;
    long       words = counter("words");
    ucp_rkey_h rkey  = open_memory(&self, SIZE, little_and_receives);

    WANT_TRUE(wait_notified(&self));
    setenv("SOFT_HCA_MR_LONGEST", LITTLE, 1);
    put_and_get(&self, rkey, 1);
    notify_peer(&self);
    for (int round = 1; round <= ROUNDS; round++) {
        send_round(&self, round);
    }
    WANT_TRUE(counter("words") == words + ROUNDS);
    ucp_rkey_destroy(rkey);
    kill_and_check(&self);
}

static const case_t cases[] = {
    {"odp: nothing registered", nothing_registered},
    {"odp: cannot be pinned", cannot_be_pinned},
};

CHECK_MAIN(cases)
