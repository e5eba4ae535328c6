/* Signals and completion queues for tests: short ways to say what is wanted. */
#ifndef NOTES_H
#define NOTES_H

#include "exposed.h"

#include <ucp/api/ucpx.h>

/* A signal to a queue of the other's. */
ucpx_signal_t note(uint8_t id, uint64_t value);
/* A signal that changes the flag at `offset` of the exposed memory. */
ucpx_signal_t flag(ucpx_signal_op_t op, size_t offset, uint64_t value, ucp_rkey_h rkey);

/* Puts in front of a signal; NULL and 0: the signal alone. */
ucs_status_ptr_t put_signal(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
                            const ucpx_signal_t *signal);
/* The same, waited for. */
void signalled(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey,
               const ucpx_signal_t *signal);
void flushed(party_t *self);

ucpx_cq_h queue(party_t *self, uint8_t id);
/* The next entry, in time. */
ucpx_cq_entry_t next(ucpx_cq_h cq);
/* The next entry tells of a signal like that. Whether it has come with its data, so that the place of that is not known. */
int next_is(ucpx_cq_h cq, uint64_t value, size_t length, size_t offset);

/* The number of the worker that an address leads to. */
uint64_t uid_of(party_t *self, const void *address);
/* Whether there are queue pairs of messages' own. */
int over_queue_pairs(void);
/* Whether no shared memory leads from one to the other. */
int over_network(void);

#endif
