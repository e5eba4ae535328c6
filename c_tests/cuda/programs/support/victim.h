/* A peer that is killed: endpoints that notice it, the child that is killed, and what the survivor does then. */
#ifndef VICTIM_H
#define VICTIM_H

#include "gpu.h"

/* Calls of the error handler of connect_guarded()'s endpoints, with a failure. */
extern volatile int failures;

/* An endpoint with error handling. */
ucp_ep_h connect_guarded(const side_t *side, const void *address);
/*
 * In the process of B, before it has a context: returns in a child, which is the bed's B from now on, so that it may
 * end in any way. The process itself waits for the child, wants that it was killed, and exits.
 */
void victim_begin(const bed_t *bed);
/* A message of A to itself, from GPU 0 to `to`. */
void message_to_itself(bed_t *bed, size_t length, place_t to);

#endif
