/* The tables of an endpoint. */
#ifndef OFI_ENDPOINT_H
#define OFI_ENDPOINT_H

#include "fabric.h"

enum { MAX_PIECES = 16, MAX_INJECT = 4096 };

struct ep_table {
    struct fi_ops         fid_ops, *real_fid_ops;
    struct fi_ops_cm      cm, *real_cm;
    struct fi_ops_msg     msg, *real_msg;
    struct fi_ops_rma     rma, *real_rma;
    struct fi_ops_atomic  atomic, *real_atomic;
    uint64_t              tx_flags, rx_flags; /* of posts that have none */
    struct fid_cq        *queue;              /* of receives */
};

static inline struct ep_table *table_of(struct fid_ep *ep)
{
    return OUTER(ep->msg, struct ep_table, msg);
}

/* A post of one piece, as the provider gets it. */
struct post {
    enum { SEND, WRITE } call;
    int         is_inject, has_data;
    uint64_t    data;
    const void *buffer;
    size_t      length;
    void       *desc;
    fi_addr_t   to;
    uint64_t    address, key; /* of a write */
    void       *context;
};

/* The error of a post that is one of those that the rule eagain_nth refuses, or to an endpoint whose queue is dead. */
ssize_t refusal(struct fid_ep *ep);
void check_length(const char *call, size_t length, int is_inject);
/* The descriptors of these pieces for the provider; the sum of their bytes. */
size_t real_descriptors(void **real, void **shown, const struct iovec *iov, size_t count, const char *call);

/* held.c: posts it, or holds it back until the next one has overtaken it. */
ssize_t hold_or_post(struct fid_ep *ep, const struct post *post);
void    drop_held(struct fid_ep *ep);

/* rma.c: forgets the reads of an endpoint that is closed. */
void drop_pending(struct fid_ep *ep);

/* rma.c, atomic.c */
void restrict_rma(struct fid_ep *ep, struct ep_table *table);
void restrict_atomics(struct fid_ep *ep, struct ep_table *table);

#endif
