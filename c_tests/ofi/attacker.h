/* An endpoint of libfabric that no worker has, and what a worker's packets look like (src/tl/ofi/packet.rs). */
#ifndef OFI_ATTACKER_H
#define OFI_ATTACKER_H

#include <stddef.h>
#include <stdint.h>

enum { HELLO = 1, ACCEPT, RECORD, BYE, BYE_ACK, RESET, PROBE, FLUSH, FLUSHED, CHECK, SENT, KEPT, ACK,
       MOVE, MOVED, KINDS };
enum { NAME = 128, LONGEST = 60000, FRAME = 16, VERSION = 5 };

typedef struct __attribute__((packed)) {
    uint64_t key;
    uint32_t connection, number, kind;
} header_t;

typedef struct __attribute__((packed)) {
    uint64_t fabric, secret, host;
    uint32_t locks;
    uint64_t lock;
    uint16_t number;
    uint8_t  name[NAME];
} section_t;

typedef struct __attribute__((packed)) {
    header_t header;
    uint64_t magic;
    uint32_t version;
    uint64_t from, to, secret;
    uint32_t connection;
    uint64_t key;
    uint32_t flags;
    uint64_t session;
    uint32_t next;
    section_t section; /* of the sender; as much of its name as the address has */
} hello_t;

typedef struct __attribute__((packed)) {
    header_t header;
    uint32_t connection;
    uint64_t key;
    uint32_t flags;
    uint64_t session;
    uint32_t generation;
} accept_t;

/* Of a request to connect, and its answer: the connection fails over. */
enum { FAILS_OVER = 1 };

typedef struct __attribute__((packed)) {
    header_t header;
    uint64_t magic;
    uint32_t version;
    uint64_t from, to, secret;
    uint32_t connection;
    uint64_t key, session;
    uint32_t generation, next;
    section_t section;
} move_t;

typedef struct __attribute__((packed)) {
    header_t header;
    uint32_t connection;
    uint64_t key;
    uint32_t next;
} moved_t;

/* The endpoint, which knows the worker of this address. Once in a process. */
void attacker_open(const void *address);
void attacker_close(void);

/* The worker's section of its address, and its uid. */
extern section_t victim;
extern uint64_t  victim_uid;

/* How many packets of each kind have arrived, those included that arrived during a send. */
extern unsigned attacker_arrived[KINDS];

/* A right request to connect, of the worker `from`, and its length. */
hello_t attacker_hello(uint64_t from);
size_t  attacker_hello_length(void);
/* The same with failover, into `packet`; returns its length. */
size_t attacker_hello_failover(uint64_t from, uint8_t *packet);
/* Sends a right request to move the connection that the worker has granted so first. */
void attacker_move(uint64_t from, uint64_t session, uint32_t generation, uint32_t next);

/* Milliseconds of a clock that only goes on. */
long long now(void);
/* Sends a packet to the worker, and waits until it has left. */
void attacker_send(const void *packet, size_t length);
/* Whether the provider reports sends that are too long for the receiver: libfabric's shm 1.17 does not. */
int attacker_may_send_too_much(void);
/* The next packet that has arrived within this many milliseconds; its length, 0 if there is none. */
size_t attacker_receive(void *packet, size_t room, int milliseconds);

#endif
