/* A peer that is killed: endpoints that notice it, the child that is killed, and what the survivor does then. */
#ifndef VICTIM_H
#define VICTIM_H

#include "gpu.h"

#include <sys/types.h>

/* Calls of the error handler of connect_guarded()'s endpoints, with a failure. */
extern volatile int failures;

/* An endpoint with error handling. */
ucp_ep_h connect_guarded(const side_t *side, const void *address);
/*
 * In the process of B, before it has a context: returns in a child, which is the bed's B from now on, so that it may
 * end in any way. The process itself waits for the child, wants that it was killed, and exits.
 */
void victim_begin(const bed_t *bed);
/* victim_begin() for B, then opens the unconnected bed and exchanges addresses. Returns B's process. */
pid_t victim_open(bed_t *bed, const bed_params_t *params, char *to_b, char *to_a);
/* B sends from a device with tag 1, and progresses until it is killed. */
void victim_send(bed_t *bed, place_t from, size_t length);
/* Kills the victim, and wants that a receive of A had not ended. */
void kill_under_way(const bed_t *bed, pid_t victim, ucs_status_ptr_t received);
/*
 * A receives what victim_send() sends, and kills the victim while it copies from its memory. It wants that the receive
 * fails, or that all bytes are there.
 */
void receive_from_killed(bed_t *bed, pid_t victim, area_t *target, size_t length);
/* The victim is gone: A wants one failure of its endpoint, and closes it by force. */
void survivor_close(bed_t *bed);
/* A ends, after a message to itself, from GPU 0 to `to`. */
void survivor_end(bed_t *bed, size_t length, place_t to);

#endif
