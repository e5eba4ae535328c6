/*
 * A program that calls uTofu itself and knows the contents of a worker's address, or less: it can write anything
 * anywhere.
 */
#ifndef TRANSPORT_RAW_CLIENT_H
#define TRANSPORT_RAW_CLIENT_H

#include <stddef.h>
#include <stdint.h>

/* Fields of a worker's address. */
typedef struct {
    uint64_t uid, secret, vcq, ticket_queue;
} target_t;

/* A worker's request for a ring, word for word (src/wire/tofu_msg.rs). */
typedef struct {
    uint64_t magic, from, to, secret, back, vcq, ticket_queue, ctrl_word;
    uint32_t proof, losses, ticket, packet, number;
    uint64_t rails[5];
} __attribute__((packed)) ring_request_t;

/* The answer. */
typedef struct {
    uint64_t ring;
    uint32_t proof, size, packet, window, flags;
    int32_t  refusal;
} grant_t;

enum {
    TICKET_SLOTS       = 64,
    TICKET_SLOT_BYTES  = 256,
    TICKET_SLOTS_AT    = 256,
    TICKET_QUEUE_BYTES = TICKET_SLOTS_AT + TICKET_SLOTS * TICKET_SLOT_BYTES,
    GRANT_AT           = 32,
    HEAD               = 16
};

/* Where the slot of a ticket is in the memory of a ticket queue. */
static inline size_t slot_at(uint32_t ticket)
{
    return TICKET_SLOTS_AT + ticket % TICKET_SLOTS * (size_t)TICKET_SLOT_BYTES;
}

/* Once in a process. */
void raw_open(void);
void raw_close(void);
/* Reads the fields of an address; checks that there is a listener. */
target_t find(const uint8_t *address, size_t length, uint64_t uid);

/* Each returns on completion, with the adapter's code. With a notice to the target if `notice`. */
int raw_put(const target_t *to, uint64_t stadd, const void *data, size_t length, int notice);
int raw_get(const target_t *from, uint64_t stadd, void *data, size_t length, int notice);
/* Returns the previous value. */
uint64_t raw_add(const target_t *to, uint64_t stadd, uint64_t value, int notice);

/* A ticket of the listener; for clients that follow the protocol. */
uint32_t       take_ticket(const target_t *to);
ring_request_t ring_request_to(const target_t *to, uint64_t from, uint32_t ticket);
void           send_ring_request(const target_t *to, const ring_request_t *request);
/* Connects as a peer does. Ends the process if no ring is granted. */
grant_t connect_raw(const target_t *to, uint64_t from);

/* The same sequence for the same seed. */
uint32_t next_random(uint32_t *seed);
void     randomize(void *data, size_t length, uint32_t *seed);

#endif
