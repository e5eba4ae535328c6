/* Endpoints: posts obey the bounds, have registered buffers, are refused now and then, and may overtake each other. */
#include "endpoint.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

ssize_t refusal(struct fid_ep *ep)
{
    static _Atomic uint64_t count;
    struct fid_cq          *queue = table_of(ep)->queue;

    if (queue != NULL && queue_is_dead(queue)) {
        return -(ssize_t)rules()->error_code;
    }
    return rules_hits(rules()->eagain_nth, &count) ? -FI_EAGAIN : 0;
}

static _Atomic uint64_t refused_sends;

/* The error of a send. */
static ssize_t send_refusal(struct fid_ep *ep)
{
    struct fid_cq *queue = table_of(ep)->queue;

    if (queue != NULL && queue_is_full(queue)) {
        refused_sends++;
        return -FI_EAGAIN;
    }
    return refusal(ep);
}

uint64_t soft_ofi_refused_sends(void)
{
    return refused_sends;
}

void check_length(const char *call, size_t length, int is_inject)
{
    if (length > rules()->max_msg) {
        rules_broken("%s: %zu bytes, at most %llu are allowed (max_msg)", call, length,
                     (unsigned long long)rules()->max_msg);
    }
    if (is_inject && length > rules()->inject) {
        rules_broken("%s: %zu bytes injected, at most %llu are allowed (inject)", call, length,
                     (unsigned long long)rules()->inject);
    }
}

size_t real_descriptors(void **real, void **shown, const struct iovec *iov, size_t count, const char *call)
{
    size_t length = 0;

    if (count > MAX_PIECES || count > rules()->iov) {
        rules_broken("%s: %zu pieces (iov)", call, count);
    }
    for (size_t i = 0; i < count; i++) {
        real[i] = real_descriptor(shown == NULL ? NULL : shown[i], iov[i].iov_base, iov[i].iov_len, call);
        length += iov[i].iov_len;
    }
    return length;
}

/* --- receives --- */

static int has_entry(struct ep_table *table)
{
    _Atomic uint64_t *posted = table->queue == NULL ? NULL : queue_receives(table->queue);

    if (posted == NULL) {
        return 1;
    }
    if (*posted >= rules()->rx_entries) {
        return 0;
    }
    ++*posted;
    return 1;
}

static ssize_t counted(struct ep_table *table, ssize_t result)
{
    if (table->queue != NULL && result != 0) {
        --*queue_receives(table->queue);
    }
    return result;
}

static ssize_t post_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    void         *real[MAX_PIECES];
    struct fi_msg translated = *msg;

    real_descriptors(real, msg->desc, msg->msg_iov, msg->iov_count, "fi_recvmsg");
    translated.desc = real;
    if (flags & FI_MULTI_RECV && rules()->no_multi_recv) {
        rules_broken("fi_recvmsg: FI_MULTI_RECV (no_multi_recv)");
    }
    ssize_t refused = refusal(ep);
    if (refused != 0 || !has_entry(table_of(ep))) {
        return refused != 0 ? refused : -FI_EAGAIN;
    }
    return counted(table_of(ep), table_of(ep)->real_msg->recvmsg(ep, &translated, flags));
}

static ssize_t post_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from,
                          void *context)
{
    const struct fi_msg msg = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = from, .context = context};

    return post_recvmsg(ep, &msg, table_of(ep)->rx_flags);
}

static ssize_t post_recv(struct fid_ep *ep, void *buffer, size_t length, void *desc, fi_addr_t from, void *context)
{
    const struct iovec iov = {buffer, length};

    return post_recvv(ep, &iov, &desc, 1, from, context);
}

/* --- sends --- */

/* Posts a message that is another one when it arrives. */
static ssize_t post_damaged(struct fid_ep *ep, const struct post *post)
{
    unsigned char copy[MAX_INJECT], *bytes = copy;
    struct post   damaged = *post;
    ssize_t       result;

    if (!post->is_inject) {
        bytes = (unsigned char *)post->buffer; /* the provider's until the completion */
    } else if (post->length <= sizeof(copy)) {
        memcpy(copy, post->buffer, post->length);
        damaged.buffer = copy;
    } else {
        return hold_or_post(ep, post);
    }
    bytes[rules()->damage_at] ^= (unsigned char)rules()->damage_by;
    result = hold_or_post(ep, &damaged);
    if (result != 0) {
        bytes[rules()->damage_at] ^= (unsigned char)rules()->damage_by;
    }
    return result;
}

static ssize_t post_send(struct fid_ep *ep, const struct post *post)
{
    static _Atomic uint64_t sends, injects;

    check_length("fi_send", post->length, post->is_inject);
    ssize_t refused = send_refusal(ep);
    if (refused != 0 || (post->is_inject && rules_hits(rules()->lose_nth, &injects))) {
        return refused;
    }
    if (post->length > rules()->damage_at && rules_hits(rules()->damage_nth, &sends)) {
        return post_damaged(ep, post);
    }
    return hold_or_post(ep, post);
}

static ssize_t send_buffer(struct fid_ep *ep, const void *buffer, size_t length, void *desc, fi_addr_t to,
                           void *context)
{
    const struct post post = {.call    = SEND,
                              .buffer  = buffer,
                              .length  = length,
                              .desc    = real_descriptor(desc, buffer, length, "fi_send"),
                              .to      = to,
                              .context = context};

    return post_send(ep, &post);
}

static ssize_t senddata(struct fid_ep *ep, const void *buffer, size_t length, void *desc, uint64_t data, fi_addr_t to,
                        void *context)
{
    const struct post post = {.call    = SEND,
                              .has_data = 1,
                              .data    = data,
                              .buffer  = buffer,
                              .length  = length,
                              .desc    = real_descriptor(desc, buffer, length, "fi_senddata"),
                              .to      = to,
                              .context = context};

    return post_send(ep, &post);
}

static ssize_t inject(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t to)
{
    const struct post post = {.call = SEND, .is_inject = 1, .buffer = buffer, .length = length, .to = to};

    return post_send(ep, &post);
}

static ssize_t injectdata(struct fid_ep *ep, const void *buffer, size_t length, uint64_t data, fi_addr_t to)
{
    const struct post post = {
        .call = SEND, .is_inject = 1, .has_data = 1, .data = data, .buffer = buffer, .length = length, .to = to};

    return post_send(ep, &post);
}

static ssize_t sendmsg_pieces(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
    void         *real[MAX_PIECES] = {NULL};
    struct fi_msg translated       = *msg;
    size_t        length           = 0;

    if (flags & FI_INJECT) {
        for (size_t i = 0; i < msg->iov_count; i++) {
            length += msg->msg_iov[i].iov_len;
        }
    } else {
        length = real_descriptors(real, msg->desc, msg->msg_iov, msg->iov_count, "fi_sendmsg");
    }
    check_length("fi_sendmsg", length, (flags & FI_INJECT) != 0);
    translated.desc = real;
    ssize_t refused = send_refusal(ep);
    return refused != 0 ? refused : table_of(ep)->real_msg->sendmsg(ep, &translated, flags);
}

static ssize_t sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
                     void *context)
{
    const struct fi_msg msg = {.msg_iov = iov, .desc = desc, .iov_count = count, .addr = to, .context = context};

    return sendmsg_pieces(ep, &msg, table_of(ep)->tx_flags);
}

/* --- the endpoint --- */

static int getname(fid_t fid, void *address, size_t *length)
{
    struct ep_table   *table = table_of((struct fid_ep *)fid);
    struct sockaddr_in real;
    size_t             real_length = sizeof(real), room = *length;
    int                error;

    if (!rules()->address8) {
        return table->real_cm->getname(fid, address, length);
    }
    error   = table->real_cm->getname(fid, &real, &real_length);
    *length = SHORT_ADDRESS;
    if (error != 0 || room < SHORT_ADDRESS) {
        return error != 0 ? error : -FI_ETOOSMALL;
    }
    shorten_address(address, &real);
    return 0;
}

static int close_endpoint(struct fid *fid)
{
    static _Atomic uint64_t refused;
    struct ep_table        *table = OUTER(fid->ops, struct ep_table, fid_ops);
    int                     error;

    if (table->queue != NULL && queue_is_dead(table->queue) && refused++ < rules()->busy_closes) {
        return -FI_EBUSY;
    }
    drop_held((struct fid_ep *)fid);
    drop_pending((struct fid_ep *)fid);
    error = table->real_fid_ops->close(fid);
    if (error == 0) {
        free(table);
    }
    return error;
}

static int bind_endpoint(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct ep_table *table = OUTER(fid->ops, struct ep_table, fid_ops);

    if (other->fclass == FI_CLASS_CQ && flags & FI_RECV) {
        table->queue = (struct fid_cq *)other;
    }
    return table->real_fid_ops->bind(fid, other, flags);
}

void restrict_endpoint(struct fid_ep *ep, const struct fi_info *info)
{
    struct ep_table *table = calloc(1, sizeof(*table));

    COPY_TABLE(table->fid_ops, ep->fid.ops);
    COPY_TABLE(table->cm, ep->cm);
    COPY_TABLE(table->msg, ep->msg);
    table->real_fid_ops   = ep->fid.ops;
    table->real_cm        = ep->cm;
    table->real_msg       = ep->msg;
    table->tx_flags       = info->tx_attr->op_flags;
    table->rx_flags       = info->rx_attr->op_flags;
    table->fid_ops.close  = close_endpoint;
    table->fid_ops.bind   = bind_endpoint;
    table->cm.getname     = getname;
    table->msg.recv       = post_recv;
    table->msg.recvv      = post_recvv;
    table->msg.recvmsg    = post_recvmsg;
    table->msg.send       = send_buffer;
    table->msg.sendv      = sendv;
    table->msg.sendmsg    = sendmsg_pieces;
    table->msg.inject     = inject;
    table->msg.senddata   = senddata;
    table->msg.injectdata = injectdata;
    restrict_rma(ep, table);
    restrict_atomics(ep, table);
    ep->fid.ops = &table->fid_ops;
    ep->cm      = &table->cm;
    ep->msg     = &table->msg;
}
