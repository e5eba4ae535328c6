/* Attacks of a program that calls uTofu directly on a worker whose address it knows. */
#ifndef TRANSPORT_ATTACKS_H
#define TRANSPORT_ATTACKS_H

#include "raw_client.h"

enum { BATCH = 1000, FORMER_RINGS = 16 };

/* Step `n` of an attack. */
typedef void attack_t(const target_t *target, uint32_t n);

attack_t garbage_at_listener, wrong_ring_requests, replay_ring_requests, echo_ring_requests, unclaimed_tickets,
    unexpected_notices, nonsense_in_a_ring, garbage_everywhere, late_puts;

#endif
