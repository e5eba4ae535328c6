/*
 * Two workers with several VCQs each, an endpoint from one to the other, memory of both, and counters of each
 * interface.
 */
#ifndef TRANSPORT_SEVERAL_H
#define TRANSPORT_SEVERAL_H

#include "check.h"

#include "../../../../include/ucp/api/ucpx.h"

#include <dlfcn.h>

#define SIZE ((size_t)8 << 20)

enum { SECONDS = 20, MOST = 6, LONG = 1 << 20, LINE = 256 };

static const ucp_request_param_t none = {.op_attr_mask = 0};

extern ucp_context_h  context;
extern ucp_worker_h   worker, peer;
extern ucpx_cq_h      queue;
extern ucp_ep_h       ep;
extern ucp_rkey_h     rkey;
extern ucp_mem_h      theirs_h;
extern unsigned char *theirs, *own; /* SIZE bytes each; that of the peer is mapped */
extern unsigned       failures;     /* of the endpoint */

/* The programs are linked to UCX's library, which does not have these functions. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_DEFAULT, #name))

void         open_all(void);
/* Closes all but the endpoint and its rkey, and all. */
void         close_rest(void);
void         close_all(void);
/* Starts a forced close. */
ucs_status_ptr_t close_ep(void);
void         progress(void);
ucs_status_t settle(ucs_status_ptr_t request);
ucs_status_t flush(void);
/* SIZE bytes. */
unsigned char *fresh(int value);
void         pattern(unsigned char *bytes, size_t size, unsigned seed);
/* Of a worker. */
unsigned     queues(void);
/* Number of interfaces that share this many bytes. */
unsigned     interfaces_of(size_t size);
void         carried(unsigned long bytes[MOST]);
/*
 * Checks that this many interfaces have carried this much each, within a tolerance for control messages, and the others
 * none.
 */
void         want_carried(const char *what, const unsigned long before[MOST], unsigned interfaces, size_t each);

#endif
