/* Signals and completion queues for tests: short functions for the common parameters. */
#ifndef NOTES_H
#define NOTES_H

#include "exposed.h"

#include <ucp/api/ucpx.h>

/* A signal to a queue of the peer. */
ucpx_signal_t note(uint8_t id, uint64_t value);
/* A signal that changes the flag at `offset` of the exposed memory. */
ucpx_signal_t flag(ucpx_signal_op_t op, size_t offset, uint64_t value, ucp_rkey_h rkey);

/* Puts in front of a signal; NULL and 0: the signal alone. */
ucs_status_ptr_t put_signal(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
                            const ucpx_signal_t *signal);
/* A put with signal that is waited for. */
void signalled(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
               const ucpx_signal_t *signal);
void flushed(party_t *self);

ucpx_cq_h queue(party_t *self, uint8_t id);
/* The next entry; fails after a timeout. */
ucpx_cq_entry_t next(ucpx_cq_h cq);
/*
 * Checks that the next entry is of a signal like this one. Returns whether it carried its data, so that the data's
 * address is unknown.
 */
int next_is(ucpx_cq_h cq, uint64_t value, size_t length, size_t offset);

/* The number of the worker with this address. */
uint64_t uid_of(party_t *self, const void *address);
/* Whether messages have queue pairs of their own. */
int over_queue_pairs(void);
/* Whether the two have no shared memory transport. */
int over_network(void);

#endif
