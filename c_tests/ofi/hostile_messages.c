/*
 * A program that calls libfabric itself attacks a worker whose address it knows: packets that no worker sends, requests
 * to connect with a wrong field, packets for connections of others, or of its own that have ended, malformed records.
 * The worker goes on, with a connected peer and with a new one; what the attacker connects fails alone.
 */
#define _GNU_SOURCE
#include "attacker.h"

#include "../conformance/cases/victim.h"
#include "../random.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MS = 5000, TOO_LONG = 50000 };
/* Requests of invented workers, those before them, and by how much the worker's heap may grow meanwhile. */
enum { INVENTED = 600, WARM_UP = 100, INVENTED_BYTES = 200000 };
/* Requests that arrive at once. */
enum { AT_ONCE = 500 };

static uint8_t  packet[LONGEST];
static unsigned state = 4711;

static void open_all(party_t *self)
{
    open_victim(self);
    attacker_open(self->theirs);
}

static void close_all(party_t *self)
{
    attacker_close();
    close_victim(self);
}

static void fill(void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        ((uint8_t *)bytes)[i] = (uint8_t)(next_random(&state) >> 16);
    }
}

/* The worker has sent nothing. */
static void check_silent(party_t *self)
{
    check_answers(self);
    WANT_TRUE(attacker_receive(packet, sizeof(packet), 0) == 0);
}

static void noise(void)
{
    party_t self;

    open_all(&self);
    for (int round = 0; round < 200; round++) {
        size_t length = 1 + next_random(&state) % (round % 2 == 0 ? 32000 : 100);
        fill(packet, length);
        attacker_send(packet, length);
        if (round % 20 == 0) {
            if (attacker_may_send_too_much()) {
                attacker_send(packet, TOO_LONG);
            }
            check_silent(&self);
        }
    }
    close_all(&self);
}

/* Packets of each kind and length for connections that others have, or that do not exist. */
static void headers(void)
{
    party_t self;

    open_all(&self);
    for (uint32_t kind = 0; kind <= KINDS; kind++) {
        for (uint32_t connection = 0; connection < 4; connection++) {
            header_t header = {.connection = connection, .kind = kind};
            fill(packet, 200);
            fill(&header.key, sizeof(header.key));
            memcpy(packet, &header, sizeof(header));
            for (size_t length = 1; length < 200; length += length < 24 ? 1 : 44) {
                attacker_send(packet, length);
            }
        }
        check_silent(&self);
    }
    close_all(&self);
}

static void hellos(void)
{
    party_t self;

    open_all(&self);
    hello_t hello = attacker_hello(12345);
    size_t  whole = attacker_hello_length();
    for (size_t length = 1; length < whole + 9; length++) {
        if (length != whole) {
            attacker_send(&hello, length);
        }
    }
    check_silent(&self);
    /* Magic, version, the receiver's uid and secret, and the fabric. */
    for (size_t at = offsetof(hello_t, magic); at < offsetof(hello_t, section.secret); at++) {
        int is_checked = at < offsetof(hello_t, from) || at >= offsetof(hello_t, section) ||
                         (at >= offsetof(hello_t, to) && at < offsetof(hello_t, connection));
        if (is_checked) {
            hello_t wrong = hello;
            ((uint8_t *)&wrong)[at] ^= 0x10;
            attacker_send(&wrong, whole);
        }
    }
    hello.secret = 0;
    attacker_send(&hello, whole);
    hello.from = 0;
    attacker_send(&hello, whole);
    check_silent(&self);
    close_all(&self);
}

/* Connects as the worker `from`; returns what the worker has granted. */
static accept_t attach(party_t *self, uint64_t from)
{
    hello_t  hello  = attacker_hello(from);
    accept_t accept = {.key = 0};

    attacker_send(&hello, attacker_hello_length());
    for (long long end = now() + ANSWER_MS; accept.header.kind != ACCEPT && now() < end;) {
        check_answers(self);
        attacker_receive(&accept, sizeof(accept), 0);
    }
    WANT_TRUE(accept.header.kind == ACCEPT && accept.header.connection == 7 && accept.header.key == 4711);
    return accept;
}

static void send_packet(const accept_t *to, uint32_t kind, uint32_t number, size_t length)
{
    header_t header = {.key = to->key, .connection = to->connection, .number = number, .kind = kind};

    memcpy(packet, &header, sizeof(header));
    attacker_send(packet, sizeof(header) + length);
}

/* A peer that knows the secret fails alone. */
static void records(void)
{
    party_t self;

    open_all(&self);
    for (unsigned round = 0; round < 120; round++) {
        uint32_t length = round < 60 ? 1 + round : 1 + next_random(&state) % 30000;
        accept_t to     = attach(&self, 20000 + round);

        fill(packet, sizeof(header_t) + FRAME + length);
        if (round % 2 == 0) {
            /* A right length of an unknown kind, or a wrong length of a known one. */
            uint32_t claimed = length + round % 4 / 2;
            memcpy(packet + sizeof(header_t), &claimed, sizeof(claimed));
            packet[sizeof(header_t) + 4] = round % 4 == 0 ? 200 : 1;
            memset(packet + sizeof(header_t) + 6, 0, 2);
        }
        send_packet(&to, RECORD, 0, FRAME + length);
        /* Behind it, ahead of a gap, and much too far ahead. */
        send_packet(&to, RECORD, 1, FRAME + length);
        send_packet(&to, RECORD, 3, FRAME + length);
        send_packet(&to, RECORD, 1 << 30, 0);
        if (round % 10 == 0) {
            check_answers(&self);
        }
    }
    close_all(&self);
}

/* Whether a packet of this kind has arrived; others are not looked at. */
static int arrives(party_t *self, uint32_t kind)
{
    header_t header;

    for (int i = 0; i < 200; i++) {
        check_answers(self);
        while (attacker_receive(&header, sizeof(header), 0) != 0) {
            if (header.kind == kind) {
                return 1;
            }
        }
    }
    return 0;
}

/* Connections that have ended take nothing more; what was said twice is said once. */
static void ended(void)
{
    static const uint32_t ends[] = {BYE, RESET};
    party_t               self;

    open_all(&self);
    for (unsigned round = 0; round < 40; round++) {
        uint64_t uid = 30000 + round / 2;
        accept_t to  = attach(&self, uid);

        /* Requests and answers once more. */
        hello_t hello = attacker_hello(uid);
        attacker_send(&hello, attacker_hello_length());
        WANT_TRUE(arrives(&self, ACCEPT));
        fill(packet, 100);
        send_packet(&to, ACCEPT, 0, 12);
        send_packet(&to, ACCEPT, 0, 3);
        send_packet(&to, PROBE, 0, 50);
        send_packet(&to, SENT, 1000, 12);
        send_packet(&to, CHECK, 0, 7);
        send_packet(&to, CHECK, 0, 8);
        WANT_TRUE(arrives(&self, SENT));
        send_packet(&to, ends[round % 2], 0, 0);
        WANT_TRUE(arrives(&self, BYE_ACK));
        /* Of the former connection. */
        for (uint32_t kind = ACCEPT; kind < KINDS; kind++) {
            send_packet(&to, kind, 1, 40);
        }
        send_packet(&to, RECORD, 0, 40);
        check_answers(&self);
    }
    close_all(&self);
}

/* Requests of many workers that are not expected. */
static void strangers(void)
{
    party_t self;

    open_all(&self);
    for (unsigned round = 0; round < 500; round++) {
        accept_t to = attach(&self, 40000 + round);
        if (round % 2 == 0) {
            send_packet(&to, BYE, 0, 0);
        }
    }
    close_all(&self);
}

/* Waits for a packet of this kind. */
static void receive_kind(party_t *self, uint32_t kind, void *into, size_t room)
{
    header_t *header = into;

    header->kind = 0;
    for (long long end = now() + ANSWER_MS; header->kind != kind && now() < end;) {
        check_answers(self);
        attacker_receive(into, room, 0);
    }
    WANT_TRUE(header->kind == kind);
}

/* Requests to move a connection: one without its key moves nothing, and a late one does not either. */
static void moves(void)
{
    party_t  self;
    accept_t to;
    moved_t  moved;
    header_t ack;

    open_all(&self);
    size_t length = attacker_hello_failover(50000, packet);
    for (size_t cut = offsetof(hello_t, section); cut < length; cut += 7) {
        attacker_send(packet, cut);
    }
    check_silent(&self);
    length = attacker_hello_failover(50000, packet);
    attacker_send(packet, length);
    receive_kind(&self, ACCEPT, &to, sizeof(to));
    WANT_TRUE(to.flags == FAILS_OVER);
    attacker_move(50000, to.key ^ 1, 1, 0);
    attacker_move(50001, to.key, 1, 0);
    attacker_move(50000, to.key, 0, 0);
    attacker_move(50000, to.key, UINT32_MAX, 0);
    check_silent(&self);
    /* Acknowledgements of what was not sent, and an answer to no request. */
    send_packet(&to, ACK, 1 << 20, 0);
    send_packet(&to, MOVED, 0, 16);
    send_packet(&to, PROBE, 0, 0);
    receive_kind(&self, ACK, &ack, sizeof(ack));
    WANT_TRUE(ack.number == 0 && ack.connection == 7);
    attacker_move(50000, to.key, 5, 0);
    receive_kind(&self, MOVED, &moved, sizeof(moved));
    WANT_TRUE(moved.header.connection == 8 && moved.header.key == 4712 && moved.next == 0);
    /* By the former connection, whose packets are dropped once the new one is used. */
    accept_t moved_to = {.connection = moved.connection, .key = moved.key};
    send_packet(&moved_to, PROBE, 0, 0);
    receive_kind(&self, ACK, &ack, sizeof(ack));
    for (uint32_t kind = ACCEPT; kind < KINDS; kind++) {
        send_packet(&to, kind, 0, 40);
    }
    attacker_move(50000, to.key, 4, 0);
    check_silent(&self);
    /* Once more, and the next one. */
    attacker_move(50000, to.key, 5, 0);
    receive_kind(&self, MOVED, &moved, sizeof(moved));
    WANT_TRUE(moved.header.connection == 8);
    attacker_move(50000, to.key, 6, 77);
    receive_kind(&self, MOVED, &moved, sizeof(moved));
    /* A reset by the connection that was used last ends it: the answer may be lost. */
    send_packet(&moved_to, RESET, 0, 0);
    receive_kind(&self, RESET, &ack, sizeof(ack));
    attacker_move(50000, to.key, 7, 0);
    check_silent(&self);
    close_all(&self);
}

/* A request to connect that follows one whose answer was lost, as its session says: the connection that the worker has
 * opened moves to it, until the worker knows that an answer has arrived. */
static void following_hellos(void)
{
    static uint8_t request[LONGEST];
    hello_t       *hello = (hello_t *)request;
    party_t        self;
    accept_t       first, second;
    header_t       ack;

    open_all(&self);
    size_t length = attacker_hello_failover(51000, request);
    attacker_send(request, length);
    receive_kind(&self, ACCEPT, &first, sizeof(first));
    hello->connection = 9;
    hello->key        = 4713;
    attacker_send(request, length);
    receive_kind(&self, ACCEPT, &second, sizeof(second));
    WANT_TRUE(second.header.connection == 9 && second.header.key == 4713 && second.flags == FAILS_OVER);
    WANT_TRUE(second.key != first.key && second.session == first.session && second.generation == 0);
    send_packet(&second, PROBE, 0, 0);
    receive_kind(&self, ACK, &ack, sizeof(ack));
    WANT_TRUE(ack.connection == 9);
    /* A request to move names no connection: it would count as lost. */
    for (uint32_t kind = ACCEPT; kind < MOVE; kind++) {
        send_packet(&first, kind, 0, 40);
    }
    hello->connection = 10;
    attacker_send(request, length);
    check_silent(&self);
    close_all(&self);
}

/* A request to connect that goes on with a connection which the worker has ended is reset: packets would be counted
 * from 0 again. One that expects the first packet begins another one. */
static void ended_sessions(void)
{
    static uint8_t request[LONGEST];
    hello_t       *hello = (hello_t *)request;
    party_t        self;
    accept_t       first, second;
    header_t       answer;

    open_all(&self);
    size_t length = attacker_hello_failover(52000, request);
    attacker_send(request, length);
    receive_kind(&self, ACCEPT, &first, sizeof(first));
    send_packet(&first, RESET, 0, 0);
    receive_kind(&self, BYE_ACK, &answer, sizeof(answer));
    for (uint32_t i = 0; i < 10; i++) {
        hello->connection = 9 + i;
        hello->key        = 4713 + i;
        hello->next       = 3;
        attacker_send(request, length);
        receive_kind(&self, RESET, &answer, sizeof(answer));
        WANT_TRUE(answer.connection == 9 + i && answer.key == 4713 + i);
    }
    check_silent(&self);
    hello->connection = 30;
    hello->next       = 0;
    attacker_send(request, length);
    receive_kind(&self, ACCEPT, &second, sizeof(second));
    WANT_TRUE(second.header.connection == 30 && second.session != first.session);
    close_all(&self);
}

/* Bytes of a process's heap; the buffers of providers are elsewhere. */
static long heap_of(pid_t pid)
{
    char path[64], line[256];
    long from, to, length = 0;

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "[heap]") != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2) {
            length = to - from;
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    WANT_TRUE(length > 0);
    return length;
}

/* Waits until so many resets have arrived. No message is sent meanwhile: the worker makes progress by itself. */
static void await_resets(unsigned count)
{
    for (long long end = now() + ANSWER_MS; attacker_arrived[RESET] < count && now() < end;) {
        attacker_receive(packet, sizeof(packet), 1);
    }
    WANT_TRUE(attacker_arrived[RESET] == count);
}

/* Makes the sender's address in a request with failover one at which nothing listens. False: it has no port. */
static int move_address(uint8_t *request, uint16_t port)
{
    size_t   section = offsetof(hello_t, section);
    uint16_t length, family, in_order = htons(port);

    for (int i = 0; i < 2; i++) {
        memcpy(&length, request + section, sizeof(length));
        section += sizeof(length);
        uint8_t *name = request + section + offsetof(section_t, name);
        memcpy(&family, name, sizeof(family));
        if (family != AF_INET) {
            return 0;
        }
        memcpy(name + offsetof(struct sockaddr_in, sin_port), &in_order, sizeof(in_order));
        section += length;
    }
    return 1;
}

/* Many requests to connect, each as another worker, that go on with connections which the worker does not know: it
 * answers each by a reset, and keeps nothing of them, nor of those whose resets find no room. */
static void invented_uids(void)
{
    static uint8_t request[LONGEST], elsewhere[LONGEST];
    hello_t       *hello = (hello_t *)request;
    party_t        self;
    long           before = 0;

    setenv("UCX_OFI_TIMEOUT", "2s", 1); /* the resets that find no room are given up */
    open_all(&self);
    size_t length = attacker_hello_failover(60000, request);
    for (uint32_t i = 0; i < WARM_UP + INVENTED && !check_failed(); i++) {
        if (i == WARM_UP) {
            before = heap_of(self.other);
        }
        hello->from       = 60000 + i;
        hello->connection = 9 + i;
        hello->key        = 4713 + i;
        hello->next       = 3;
        memcpy(elsewhere, request, length);
        if (i % 7 == 0 && move_address(elsewhere, (uint16_t)(1 + i))) {
            attacker_send(elsewhere, length);
        }
        attacker_send(request, length);
        if (i % 10 == 9) {
            await_resets(i + 1);
        }
    }
    WANT_TRUE(heap_of(self.other) - before < INVENTED_BYTES);
    check_silent(&self);
    close_all(&self);
}

/* Many requests that go on with connections which the worker does not know, at once: each is answered, although no
 * request is repeated. */
static void many_at_once(void)
{
    static uint8_t request[LONGEST];
    hello_t       *hello = (hello_t *)request;
    party_t        self;

    open_all(&self);
    size_t length = attacker_hello_failover(70000, request);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        hello->from       = 70000 + i;
        hello->connection = 9 + i;
        hello->key        = 4713 + i;
        hello->next       = 3;
        attacker_send(request, length);
    }
    await_resets(AT_ONCE);
    close_all(&self);
}

static const case_t cases[] = {
    {"hostile_messages: noise", noise},
    {"hostile_messages: headers", headers},
    {"hostile_messages: requests with a wrong field", hellos},
    {"hostile_messages: malformed records", records},
    {"hostile_messages: ended connections", ended},
    {"hostile_messages: many strangers", strangers},
    {"hostile_messages: requests to move", moves},
    {"hostile_messages: requests that follow others", following_hellos},
    {"hostile_messages: requests that follow ended ones", ended_sessions},
    {"hostile_messages: requests that follow ended ones, of invented workers", invented_uids},
    {"hostile_messages: many requests that follow ended ones", many_at_once},
};

CHECK_MAIN(cases)
