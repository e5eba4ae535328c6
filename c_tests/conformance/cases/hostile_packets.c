/*
 * A program attacks the socket of a worker that uses the transport shmtest: packets that no worker sends, hellos with a
 * wrong field, malformed records behind a right hello, many connections that say nothing. Each is closed; the worker
 * goes on, with a connected peer and with a new one, and keeps no descriptor of the attackers. The formats are those of
 * src/tl/shmtest: address.rs, hello.rs, and src/wire/frame.rs.
 */
#define _GNU_SOURCE
#include "victim_socket.h"

#include "../../random.h"

#include <stddef.h>
#include <sys/time.h>
#include <sys/un.h>

enum { LONGEST = 60000, SECTION = 255, HEAD = 16 };

typedef struct __attribute__((packed)) {
    uint64_t host;
    uint32_t net_ns;
    uint64_t name, secret;
} locator_t;

typedef struct __attribute__((packed)) {
    uint64_t magic;
    uint32_t version;
    uint64_t from, to, secret, back_name, back_secret;
} hello_t;

static locator_t locator;

/* Takes the worker's section of the transport from its address. */
static void find_locator(const unsigned char *blob)
{
    uint32_t prefix;

    memcpy(&prefix, blob, sizeof(prefix));
    size_t end = (prefix >> 12 & 0x3ff) - 4, at = 12;
    while (at + 2 <= end && blob[at] != SECTION) {
        at += 2 + (size_t)blob[at + 1];
    }
    WANT_TRUE(at + 2 + sizeof(locator) <= end);
    memcpy(&locator, blob + at + 2, sizeof(locator));
}

static void open_victim_and_find(party_t *self)
{
    open_victim(self);
    find_locator((const unsigned char *)self->theirs);
}

static int connect_to_victim(void)
{
    struct timeval     limit = {SECONDS, 0};
    struct sockaddr_un to    = {.sun_family = AF_UNIX};
    int                fd    = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int                name  = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "rucp-shmtest-%016llx",
                                        (unsigned long long)locator.name);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    WANT_TRUE(connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) +
                                                      (socklen_t)name) == 0);
    return fd;
}

/* Sends packets, the second only if it has a length, on a connection, which is closed for it. */
static void send_packets(const void *first, size_t first_length, const void *second, size_t second_length)
{
    int fd = connect_to_victim();

    WANT_TRUE(send(fd, first, first_length, MSG_NOSIGNAL) == (ssize_t)first_length);
    if (second_length > 0) {
        send(fd, second, second_length, MSG_NOSIGNAL);
    }
    WANT_TRUE(is_closed(fd));
    close(fd);
}

static hello_t right_hello(const party_t *self)
{
    ucp_worker_address_attr_t attr  = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    hello_t                   hello = {.version = 1, .from = 12345, .back_name = 1, .back_secret = 2};

    memcpy(&hello.magic, "rucpsmt", 8);
    WANT(UCS_OK, ucp_worker_address_query((ucp_address_t *)(uintptr_t)self->theirs, &attr));
    hello.to     = attr.worker_uid;
    hello.secret = locator.secret;
    return hello;
}

static void noise(void)
{
    static unsigned char bytes[LONGEST];
    unsigned             state = 4711;
    party_t              self;

    open_victim_and_find(&self);
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (unsigned char)(next_random(&state) >> 16);
        }
        send_packets(bytes, 1 + next_random(&state) % (round % 2 == 0 ? LONGEST : 100), NULL, 0);
        if (round % 20 == 0) {
            check_answers(&self);
        }
    }
    close_victim(&self);
}

static void hellos(void)
{
    party_t self;

    open_victim_and_find(&self);
    hello_t hello = right_hello(&self);
    for (size_t length = 1; length < sizeof(hello); length++) {
        send_packets(&hello, length, NULL, 0);
    }
    check_answers(&self);
    /* Magic, version, the receiver's uid and secret. */
    for (size_t at = 0; at < offsetof(hello_t, back_name); at++) {
        if (at < offsetof(hello_t, from) || at >= offsetof(hello_t, to)) {
            hello_t wrong = hello;
            ((unsigned char *)&wrong)[at] ^= 0x10;
            send_packets(&wrong, sizeof(wrong), NULL, 0);
        }
    }
    check_answers(&self);
    hello.back_name = 0;
    send_packets(&hello, sizeof(hello), NULL, 0);
    hello.from = 0;
    send_packets(&hello, sizeof(hello), NULL, 0);
    close_victim(&self);
}

/* A peer that knows the secret fails alone. */
static void records(void)
{
    static unsigned char packet[LONGEST];
    unsigned             state = 4711;
    party_t              self;

    open_victim_and_find(&self);
    hello_t hello = right_hello(&self);
    for (unsigned round = 0; round < 300; round++) {
        uint32_t length = round < 100 ? 1 + round : 1 + next_random(&state) % (LONGEST - HEAD);

        for (size_t i = 0; i < HEAD + length; i++) {
            packet[i] = (unsigned char)(next_random(&state) >> 16);
        }
        if (round % 2 == 0) {
            /* A right length of an unknown kind, or a wrong length of a known one. */
            uint32_t claimed = length + round % 4 / 2;
            memcpy(packet, &claimed, sizeof(claimed));
            packet[4] = round % 4 == 0 ? 200 : 1;
            memset(packet + 6, 0, 2);
        }
        hello.from = 20000 + round;
        send_packets(&hello, sizeof(hello), packet, HEAD + length);
        if (round % 30 == 0) {
            check_answers(&self);
        }
    }
    close_victim(&self);
}

static int connect_nth(int n)
{
    (void)n;
    return connect_to_victim();
}

static void silence(void)
{
    party_t self;

    open_victim_and_find(&self);
    check_silence(&self, connect_nth, NULL, 0);
    close_victim(&self);
}

static const case_t cases[] = {
    {"hostile_packets: noise", noise},
    {"hostile_packets: hellos with a wrong field", hellos},
    {"hostile_packets: malformed records", records},
    {"hostile_packets: silence", silence},
};

CHECK_MAIN(cases)
