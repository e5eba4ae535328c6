/* The writes of an attacker, and their addresses. */
#include "attacks.h"

#include <string.h>

void garbage_at_listener(const target_t *target, uint32_t n)
{
    uint32_t seed   = n;
    uint8_t  bytes[4 * TICKET_SLOT_BYTES];
    size_t   length = n % 3 == 0 ? 4 * TICKET_SLOT_BYTES : 1 + next_random(&seed) % TICKET_SLOT_BYTES;
    size_t   at     = TICKET_SLOTS_AT + next_random(&seed) % (TICKET_QUEUE_BYTES - TICKET_SLOTS_AT - length);

    randomize(bytes, length, &seed);
    raw_put(target, target->ticket_queue + at, bytes, length, 1);
}

/* Connect requests with one wrong field, each of those that validate a request. */
void wrong_ring_requests(const target_t *target, uint32_t n)
{
    ring_request_t request = ring_request_to(target, 0x1000 + n, take_ticket(target));

    switch (n % 4) {
    case 0: request.secret ^= UINT64_C(1) << n / 4 % 64; break;
    case 1: request.to++; break;
    case 2: request.magic += UINT64_C(1) << 56; break; /* another version */
    default: request.ticket += TICKET_SLOTS << n / 4 % 20; break;
    }
    send_ring_request(target, &request);
}

/* From peers that still exist, and from some that cannot be replied to any more. */
void replay_ring_requests(const target_t *target, uint32_t n)
{
    static ring_request_t kept[TICKET_SLOTS];

    if (n < TICKET_SLOTS) {
        kept[n] = ring_request_to(target, 0x2000 + n, take_ticket(target));
        kept[n].ctrl_word += n % 2 << 20;
    }
    send_ring_request(target, &kept[n % TICKET_SLOTS]);
}

/* Reads the listener's memory, and writes the same bytes there again. */
void echo_ring_requests(const target_t *target, uint32_t n)
{
    static uint8_t ticket_queue[TICKET_QUEUE_BYTES];

    if (n % BATCH == 0) {
        raw_get(target, target->ticket_queue, ticket_queue, TICKET_QUEUE_BYTES, 0);
    }
    raw_put(target, target->ticket_queue + slot_at(n), ticket_queue + slot_at(n), TICKET_SLOT_BYTES, 1);
}

/* The word that tickets are taken from. Every client with the address may add to it. */
void unclaimed_tickets(const target_t *target, uint32_t n)
{
    static const uint64_t much[] = {1 << 30, UINT64_C(5) << 32, 0xFFFFFFF080000000};
    uint32_t seed = n;
    uint64_t word;

    if (n % 4 < 3) {
        raw_add(target, target->ticket_queue, much[n % 3], n % 2);
    } else {
        randomize(&word, sizeof(word), &seed);
        raw_put(target, target->ticket_queue, &word, sizeof(word), n % 2);
    }
}

/* Operations with unexpected notices, of no ring. */
void unexpected_notices(const target_t *target, uint32_t n)
{
    uint8_t bytes[64] = {0};

    switch (n % 3) {
    case 0: raw_get(target, target->ticket_queue + n % TICKET_QUEUE_BYTES / 2, bytes, 1 + n % 64, 1); break;
    case 1: raw_add(target, target->ticket_queue + TICKET_SLOTS_AT - 8, n, 1); break;
    default: /* some of 0 bytes */
        raw_put(target, target->ticket_queue + TICKET_SLOTS_AT - 32, bytes, n % 32, 1);
        break;
    }
}

static void write_frame(const target_t *target, const grant_t *grant, uint32_t at, uint32_t length,
                        uint32_t kind_and_more, const void *body, size_t bytes)
{
    uint8_t frame[1024] = {0};

    memcpy(frame, &length, sizeof(length));
    memcpy(frame + 4, &kind_and_more, sizeof(kind_and_more)); /* kind, aux, number */
    memcpy(frame + HEAD, body, bytes);
    raw_put(target, grant->ring + at, frame, HEAD + bytes, 1);
}

/* A client that has got a ring, as every client with the address can, and writes invalid frames there. */
void nonsense_in_a_ring(const target_t *target, uint32_t n)
{
    enum { MORE = 0xFF, BYE = 0xFD, KIND = 1, RTS = 3, NUMBER = 1 << 16 };
    grant_t  grant     = connect_raw(target, 0x3000 + n);
    uint32_t seed      = n;
    uint8_t  body[512] = {0};

    randomize(body, sizeof(body), &seed);
    switch (n % 11) {
    case 0: write_frame(target, &grant, 0, 8, KIND | 7 * NUMBER, body, 8); break;               /* not the first */
    case 1:
        write_frame(target, &grant, 0, 0x7FFFFFFF, KIND, body, 8);
        break; /* longer than all rings */
    case 2:
        write_frame(target, &grant, 0, 100, MORE, body, 100);
        break; /* continues a record that has not begun */
    case 3: write_frame(target, &grant, 0, 0xFFFFFFF0, MORE, body, 8); break;                   /* wraps */
    case 4: /* another record inside of a record */
        write_frame(target, &grant, 0, 30000, KIND, body, 500);
        write_frame(target, &grant, grant.packet, 8, KIND | NUMBER, body, 8);
        break;
    case 5: /* more notices than frames, more than the window */
        for (uint32_t i = 0; i < 2 * grant.window && i < 1000; i++) {
            raw_put(target, grant.ring + i % 64, body, 0, 1);
        }
        break;
    case 6: /* behind the frames, where a counter lies, and at the last byte */
        raw_put(target, grant.ring + grant.size - 256, body, 256, 1);
        raw_put(target, grant.ring + grant.size - 1, body, 1, 1);
        break;
    case 7: /* goes, and goes on */
        write_frame(target, &grant, 0, 0, BYE, body, 0);
        write_frame(target, &grant, 32, 8, KIND | NUMBER, body, 8);
        break;
    case 8: /* an RTS with rails; the following words are no rails, or are addresses of nothing */
        body[32] = (uint8_t)(n / 11 * 2 + 1), body[33] = body[34] = body[35] = 0;
        write_frame(target, &grant, 0, 76, RTS | n / 5 % 12 << 8, body, 76);
        break;
    default:
        write_frame(target, &grant, 0, n % 500, n / 11 % 256 | next_random(&seed) % 256 << 8, body, n % 500);
        break;
    }
}

/* Every guessable address: rings, control words, buffers, with and without notices. */
void garbage_everywhere(const target_t *target, uint32_t n)
{
    enum { STAG = 44, GENERATION = 36, STAGS = 32, RESERVED = 256 };
    uint32_t seed  = n;
    uint64_t queue = target->ticket_queue & ~((UINT64_C(1) << 57) - 1);
    uint64_t stag  = RESERVED + next_random(&seed) % STAGS;
    uint64_t stadd = queue | stag << STAG | (target->ticket_queue & UINT64_C(0xFF) << GENERATION);
    uint8_t  bytes[1024];
    size_t   length = 1 + next_random(&seed) % sizeof(bytes);

    randomize(bytes, length, &seed);
    raw_put(target, stadd + next_random(&seed) % 8192, bytes, length, n % 2);
}

/*
 * Puts of a client whose connections were failed and whose process goes on: first it gets this many rings, then it
 * writes anywhere in them. Their memory is then that of other peers' rings, or of none.
 */
void late_puts(const target_t *target, uint32_t n)
{
    enum { KIND = 1, NUMBER = 1 << 16 };
    static grant_t had[FORMER_RINGS];
    static uint8_t bytes[2048];
    uint32_t       seed = n;
    grant_t       *ring = &had[next_random(&seed) % FORMER_RINGS];

    randomize(bytes, sizeof(bytes), &seed);
    if (n < FORMER_RINGS) {
        had[n] = connect_raw(target, 0x5000 + n);
        /* An invalid first frame: the worker fails it. */
        write_frame(target, &had[n], 0, 8, KIND | 7 * NUMBER, bytes, 8);
        return;
    }
    raw_put(target, ring->ring + next_random(&seed) % (ring->size - sizeof(bytes)), bytes, sizeof(bytes), n % 2);
}
