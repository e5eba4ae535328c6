/*
 * A program that speaks to the adapter itself and knows what a worker's address says, or less: it can write whatever it likes
 * to wherever it likes.
 */
#ifndef TRANSPORT_STRANGER_H
#define TRANSPORT_STRANGER_H

#include <stddef.h>
#include <stdint.h>

/* What an address says of a worker. */
typedef struct {
    uint64_t uid, secret, vcq, hall;
} target_t;

/* How a worker asks for a ring, word for word (src/wire/tofu.rs). */
typedef struct {
    uint64_t magic, from, to, secret, back, vcq, hall, cell;
    uint32_t proof, losses, ticket, packet, number;
    uint64_t rails[5];
} __attribute__((packed)) greeting_t;

/* The answer. */
typedef struct {
    uint64_t ring;
    uint32_t proof, size, packet, window, flags;
    int32_t  refusal;
} grant_t;

enum { PLACES = 64, PLACE = 256, PLACES_AT = 256, HALL = PLACES_AT + PLACES * PLACE, GRANT_AT = 32, HEAD = 16 };

/* Once in a process. */
void stranger_open(void);
void stranger_close(void);
/* Finds what the address says; it is tried whether a hall is there. */
target_t find(const uint8_t *address, size_t length, uint64_t uid);

/* Each returns when all is over, with what the adapter has said. With a notice to the target if `notice`. */
int stranger_put(const target_t *to, uint64_t stadd, const void *data, size_t length, int notice);
int stranger_get(const target_t *from, uint64_t stadd, void *data, size_t length, int notice);
/* What was there before. */
uint64_t stranger_add(const target_t *to, uint64_t stadd, uint64_t value, int notice);

/* A ticket of the hall; for those who do as everybody does. */
uint32_t   take_ticket(const target_t *to);
greeting_t greeting_of(const target_t *to, uint64_t from, uint32_t ticket);
void       greet(const target_t *to, const greeting_t *greeting);
/* Connects as a peer does. Ends the process if no ring comes. */
grant_t join(const target_t *to, uint64_t from);

/* The same numbers for the same seed. */
uint32_t next_random(uint32_t *seed);
void     randomize(void *data, size_t length, uint32_t *seed);

#endif
