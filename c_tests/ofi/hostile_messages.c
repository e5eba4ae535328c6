/*
 * A program that calls libfabric itself attacks a worker whose address it knows: packets that no worker sends, requests
 * to connect with a wrong field, packets for connections of others, or of its own that have ended, malformed records.
 * The worker goes on, with a connected peer and with a new one; what the attacker connects fails alone.
 */
#define _GNU_SOURCE
#include "attacker.h"

#include "../conformance/cases/victim.h"
#include "../random.h"

#include <stddef.h>

enum { ANSWER_MS = 5000, TOO_LONG = 50000 };

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

static const case_t cases[] = {
    {"hostile_messages: noise", noise},
    {"hostile_messages: headers", headers},
    {"hostile_messages: requests with a wrong field", hellos},
    {"hostile_messages: malformed records", records},
    {"hostile_messages: ended connections", ended},
    {"hostile_messages: many strangers", strangers},
};

CHECK_MAIN(cases)
