/* Two workers with several queues each, an endpoint from one to the other, memory of both, and what each interface has carried. */
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
extern unsigned char *theirs, *own; /* SIZE bytes each; what is theirs is mapped */
extern unsigned       failures;     /* of the endpoint */

/* The programs are linked to a library of UCX's own, which does not have them. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(RTLD_DEFAULT, #name))

void         open_all(void);
/* All but the endpoint and its key, and all. */
void         close_rest(void);
void         close_all(void);
/* Begins to close it by force. */
ucs_status_ptr_t close_ep(void);
void         progress(void);
ucs_status_t settle(ucs_status_ptr_t request);
ucs_status_t flush(void);
/* SIZE bytes. */
unsigned char *fresh(int value);
void         pattern(unsigned char *bytes, size_t size, unsigned seed);
/* Of a worker. */
unsigned     queues(void);
/* Interfaces that share so many bytes. */
unsigned     interfaces_of(size_t size);
void         carried(unsigned long bytes[MOST]);
/* So many interfaces have carried so much each, give or take what is said besides, and the others none. */
void         want_carried(const char *what, const unsigned long before[MOST], unsigned interfaces, size_t each);

#endif
