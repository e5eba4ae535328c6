/* RMA: keys of the provider's choice, registered buffers, bounds. */
#include "endpoint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FAILING = 256, SCRATCH = 1 << 20, LATE_BYTE = 0xEE };

/* The contexts of reads that will fail, by the rule fail_read_nth. */
static struct {
    pthread_mutex_t lock;
    const void     *contexts[MAX_FAILING];
    size_t          count;
} failing = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Reads that have not completed, where the rule dies_at_read is set: a dead provider writes their memory. */
static struct {
    pthread_mutex_t lock;
    struct pending {
        struct fid_ep *ep;
        const void    *context;
        size_t         count;
        struct iovec   iov[MAX_PIECES];
    } reads[MAX_FAILING];
    size_t count;
} pending = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t post_write(struct fid_ep *ep, const struct post *post)
{
    check_length("fi_write", post->length, post->is_inject);
    ssize_t refused = refusal(ep);
    return refused != 0 ? refused : hold_or_post(ep, post);
}

static ssize_t write_buffer(struct fid_ep *ep, const void *buffer, size_t length, void *desc, fi_addr_t to,
                            uint64_t address, uint64_t key, void *context)
{
    const struct post post = {.call    = WRITE,
                              .buffer  = buffer,
                              .length  = length,
                              .desc    = real_descriptor(desc, buffer, length, "fi_write"),
                              .to      = to,
                              .address = address,
                              .key     = key_real(key),
                              .context = context};

    return post_write(ep, &post);
}

static ssize_t writedata(struct fid_ep *ep, const void *buffer, size_t length, void *desc, uint64_t data,
                         fi_addr_t to, uint64_t address, uint64_t key, void *context)
{
    const struct post post = {.call     = WRITE,
                              .has_data = 1,
                              .data     = data,
                              .buffer   = buffer,
                              .length   = length,
                              .desc     = real_descriptor(desc, buffer, length, "fi_writedata"),
                              .to       = to,
                              .address  = address,
                              .key      = key_real(key),
                              .context  = context};

    return post_write(ep, &post);
}

static ssize_t inject(struct fid_ep *ep, const void *buffer, size_t length, fi_addr_t to, uint64_t address,
                      uint64_t key)
{
    const struct post post = {.call      = WRITE,
                              .is_inject = 1,
                              .buffer    = buffer,
                              .length    = length,
                              .to        = to,
                              .address   = address,
                              .key       = key_real(key)};

    return post_write(ep, &post);
}

static ssize_t injectdata(struct fid_ep *ep, const void *buffer, size_t length, uint64_t data, fi_addr_t to,
                          uint64_t address, uint64_t key)
{
    const struct post post = {.call      = WRITE,
                              .is_inject = 1,
                              .has_data  = 1,
                              .data      = data,
                              .buffer    = buffer,
                              .length    = length,
                              .to        = to,
                              .address   = address,
                              .key       = key_real(key)};

    return post_write(ep, &post);
}

typedef ssize_t (*post_msg_t)(struct fid_ep *, const struct fi_msg_rma *, uint64_t);

static ssize_t post_msg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags, post_msg_t post,
                        const char *call)
{
    void              *descriptors[MAX_PIECES] = {NULL};
    struct fi_rma_iov  remote[MAX_PIECES];
    struct fi_msg_rma  translated = *msg;
    size_t             length     = 0;

    if (msg->rma_iov_count > MAX_PIECES) {
        rules_broken("%s: %zu remote pieces", call, msg->rma_iov_count);
    }
    for (size_t i = 0; i < msg->rma_iov_count; i++) {
        remote[i]     = msg->rma_iov[i];
        remote[i].key = key_real(remote[i].key);
        length += remote[i].len;
    }
    if (!(flags & FI_INJECT)) {
        real_descriptors(descriptors, msg->desc, msg->msg_iov, msg->iov_count, call);
    }
    if (flags & FI_FENCE && rules()->no_fence) {
        rules_broken("%s: FI_FENCE (no_fence)", call);
    }
    check_length(call, length, (flags & FI_INJECT) != 0);
    translated.desc    = descriptors;
    translated.rma_iov = remote;
    ssize_t refused = refusal(ep);
    return refused != 0 ? refused : post(ep, &translated, flags);
}

static ssize_t writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    return post_msg(ep, msg, flags, table_of(ep)->real_rma->writemsg, "fi_writemsg");
}

int read_fails(const void *context)
{
    int found = 0;

    pthread_mutex_lock(&failing.lock);
    for (size_t i = 0; i < failing.count && !found; i++) {
        found = failing.contexts[i] == context;
        if (found) {
            failing.contexts[i] = failing.contexts[--failing.count];
        }
    }
    pthread_mutex_unlock(&failing.lock);
    return found;
}

/* Posts a read whose completion will be an error, and that does not write the user's memory. */
static ssize_t post_failing_read(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    static char       scratch[SCRATCH];
    struct iovec      iov    = {scratch, msg->rma_iov[0].len};
    struct fi_msg_rma lost   = *msg;
    ssize_t           posted = -FI_EAGAIN;

    lost.msg_iov   = &iov;
    lost.iov_count = 1;
    pthread_mutex_lock(&failing.lock);
    if (failing.count < MAX_FAILING) {
        posted = table_of(ep)->real_rma->readmsg(ep, &lost, flags);
    }
    if (posted == 0) {
        failing.contexts[failing.count++] = msg->context;
    }
    pthread_mutex_unlock(&failing.lock);
    return posted;
}

static ssize_t post_pending_read(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    ssize_t posted = -FI_EAGAIN;

    pthread_mutex_lock(&pending.lock);
    if (pending.count < MAX_FAILING) {
        posted = table_of(ep)->real_rma->readmsg(ep, msg, flags);
    }
    if (posted == 0) {
        struct pending *read = &pending.reads[pending.count++];

        *read = (struct pending){.ep = ep, .context = msg->context, .count = msg->iov_count};
        memcpy(read->iov, msg->msg_iov, msg->iov_count * sizeof(*read->iov));
    }
    pthread_mutex_unlock(&pending.lock);
    return posted;
}

void read_completed(const void *context)
{
    pthread_mutex_lock(&pending.lock);
    for (size_t i = 0; i < pending.count; i++) {
        if (pending.reads[i].context == context) {
            pending.reads[i] = pending.reads[--pending.count];
            break;
        }
    }
    pthread_mutex_unlock(&pending.lock);
}

void write_late(void)
{
    pthread_mutex_lock(&pending.lock);
    for (size_t i = 0; i < pending.count; i++) {
        const struct pending *read  = &pending.reads[i];
        struct fid_cq        *queue = table_of(read->ep)->queue;

        for (size_t n = 0; queue != NULL && queue_is_dead(queue) && n < read->count; n++) {
            memset(read->iov[n].iov_base, LATE_BYTE, read->iov[n].iov_len);
        }
    }
    pthread_mutex_unlock(&pending.lock);
}

void drop_pending(struct fid_ep *ep)
{
    pthread_mutex_lock(&pending.lock);
    for (size_t i = 0; i < pending.count;) {
        if (pending.reads[i].ep == ep) {
            pending.reads[i] = pending.reads[--pending.count];
        } else {
            i++;
        }
    }
    pthread_mutex_unlock(&pending.lock);
}

static ssize_t readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    static _Atomic uint64_t count;
    int                     fails = msg->rma_iov_count == 1 && msg->rma_iov[0].len <= SCRATCH &&
                rules_hits(rules()->fail_read_nth, &count);

    post_msg_t post = fails                     ? post_failing_read
                      : rules()->dies_at_read != 0 ? post_pending_read
                                                   : table_of(ep)->real_rma->readmsg;

    return post_msg(ep, msg, flags, post, "fi_readmsg");
}

static size_t sum_of(const struct iovec *iov, size_t count)
{
    size_t length = 0;

    for (size_t i = 0; i < count; i++) {
        length += iov[i].iov_len;
    }
    return length;
}

static ssize_t writev_pieces(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to,
                             uint64_t address, uint64_t key, void *context)
{
    const struct fi_rma_iov remote = {.addr = address, .len = sum_of(iov, count), .key = key};
    const struct fi_msg_rma msg    = {iov, desc, count, to, &remote, 1, context, 0};

    return writemsg(ep, &msg, table_of(ep)->tx_flags);
}

static ssize_t readv_pieces(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t from,
                            uint64_t address, uint64_t key, void *context)
{
    const struct fi_rma_iov remote = {.addr = address, .len = sum_of(iov, count), .key = key};
    const struct fi_msg_rma msg    = {iov, desc, count, from, &remote, 1, context, 0};

    return readmsg(ep, &msg, table_of(ep)->tx_flags);
}

static ssize_t read_buffer(struct fid_ep *ep, void *buffer, size_t length, void *desc, fi_addr_t from,
                           uint64_t address, uint64_t key, void *context)
{
    const struct iovec iov = {buffer, length};

    return readv_pieces(ep, &iov, &desc, 1, from, address, key, context);
}

void restrict_rma(struct fid_ep *ep, struct ep_table *table)
{
    if (ep->rma == NULL) {
        return;
    }
    COPY_TABLE(table->rma, ep->rma);
    table->real_rma       = ep->rma;
    table->rma.read       = read_buffer;
    table->rma.readv      = readv_pieces;
    table->rma.readmsg    = readmsg;
    table->rma.write      = write_buffer;
    table->rma.writev     = writev_pieces;
    table->rma.writemsg   = writemsg;
    table->rma.inject     = inject;
    table->rma.writedata  = writedata;
    table->rma.injectdata = injectdata;
    ep->rma               = &table->rma;
}
