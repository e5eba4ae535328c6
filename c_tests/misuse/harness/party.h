/* One of two processes with an endpoint to the other that handles errors, and the error handler's record. */
#ifndef PARTY_H
#define PARTY_H

#include "check.h"

#include <stdint.h>
#include <sys/types.h>

typedef struct {
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      ep;
    int           link;
    pid_t         other; /* not 0 at the parent */
    unsigned      failures;
    ucs_status_t  failure;
    char          theirs[1024]; /* the other's address */
} party_t;

int is_loss_or_canceled(ucs_status_t status);

/* Settings of contexts; to be changed before start(). */
extern uint64_t          party_features;
extern ucs_thread_mode_t party_thread_mode;
extern ucp_request_init_callback_t party_request_init; /* NULL: none */

/*
 * Starts the other process, which runs `act` and then waits to be killed; both are connected. If PARTY_SIBLINGS is
 * is set both go on in process id namespaces of their own.
 */
void start(party_t *self, ucp_err_handling_mode_t mode, void (*act)(party_t *));
void party_connect(party_t *self, const void *address, ucp_err_handling_mode_t mode);
/* Exchanges one message in each direction. */
void meet(party_t *self, int first);
/* Once; the process has ended when this returns. */
void kill_other(party_t *self);
void wait_other(party_t *self);

void notify_peer(party_t *self);
/* Waits, progressing, for the other's notification. 0 on timeout. */
int wait_notified(party_t *self);
/* Waits for it without progressing. */
void wait_notified_blocking(party_t *self);
/* Of the other process: does not return. */
void progress_until_killed(party_t *self);

ucs_status_t     finish(party_t *self, ucs_status_ptr_t request);
ucs_status_ptr_t send_tag(party_t *self, const void *data, size_t size);
ucs_status_ptr_t receive_tag(party_t *self, void *data, size_t size, ucp_tag_t tag);

/* The error handler is called in time, and once. */
void check_failure(party_t *self);
/* Later sends fail; the endpoint can be closed; the process can go on. Destroys worker and context. */
void check_after_failure(party_t *self);
/* Waits for the other's notification, kills it, and runs both checks. */
void kill_and_check(party_t *self);

#endif
