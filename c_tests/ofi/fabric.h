/*
 * The restricted fabric: objects of a real provider whose tables of functions are copies, in which some functions
 * impose a rule first. The copies lie in a structure of the object's own, which is found by the address of its table.
 */
#ifndef OFI_FABRIC_H
#define OFI_FABRIC_H

#include "rules.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stddef.h>

#define OUTER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* Copies a table of the provider, which may be shorter than that of these headers. */
#define COPY_TABLE(to, from) copy_table(&(to), sizeof(to), (from), (from)->size)
void copy_table(void *to, size_t room, const void *from, size_t size);

/* Length of the addresses that the rule address8 shows. */
enum { SHORT_ADDRESS = 8 };

/* A symbol of the real library, SOFT_OFI_LIBRARY or the system's libfabric.so.1. */
void *real_symbol(const char *name);

/* info.c: the real description behind one that was shown, to be freed by the real fi_freeinfo. */
struct fi_info *real_info(const struct fi_info *shown);
void            shorten_address(void *to, const void *socket_address);

/* domain.c */
void restrict_domain(struct fid_domain *domain);

/* A registered region. The user has `descriptor` for its own buffers, and `shown` for keys. */
struct region {
    struct fi_ops  ops;
    struct fi_ops *real_ops;
    struct fid_mr *mr;
    uint64_t       real_key;
    void          *real_descriptor;
    struct iovec   memory;
    int            bound, enabled;
    uint64_t       magic;
};

uint64_t key_shown(uint64_t real);
uint64_t key_real(uint64_t shown);
/* The provider's descriptor for a buffer of the user's; without the region that the rules want the program ends. */
void *real_descriptor(void *shown, const void *buffer, size_t length, const char *call);

/* endpoint.c */
void restrict_endpoint(struct fid_ep *ep, const struct fi_info *info);
/* For tests: sends that were refused by the rule full_queues. */
uint64_t soft_ofi_refused_sends(void);
/* Posts the messages that were held back. */
void post_held(void);

/* queue.c */
void restrict_queue(struct fid_cq *cq, enum fi_cq_format format);
/* The receives that are posted and will complete in this queue. */
_Atomic uint64_t *queue_receives(struct fid_cq *cq);
/* Whether a message is held back, so that no thread may sleep. */
int queue_has_held(struct fid_cq *cq);
/* Whether sends by the endpoint of this queue find no room, by the rule full_queues. */
int queue_is_full(struct fid_cq *cq);
/* Whether the queue has died by the rules dies_after and dies_at_read. */
int queue_is_dead(struct fid_cq *cq);

/* rma.c: whether the read with this context, which has completed, is one that the rule fail_read_nth names. */
int read_fails(const void *context);
/* rma.c: the read with this context has completed. */
void read_completed(const void *context);
/* rma.c: writes the memory of the reads of dead queues that have not completed, by the rule dies_at_read. */
void write_late(void);

#endif
