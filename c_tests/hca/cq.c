/* Completion queues and completion channels. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hca.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct soft_channel *soft = calloc(1, sizeof(*soft));
    int ends[2], room = 1 << 20;

    if (soft == NULL || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        free(soft);
        return NULL;
    }
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    soft->channel.context = context;
    soft->channel.fd = ends[0];
    soft->write_fd = ends[1];
    soft->tag = wire_tag();
    return &soft->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    if (__atomic_load_n(&channel->refcnt, __ATOMIC_RELAXED) != 0)
        return EBUSY;
    close(channel->fd);
    close(((struct soft_channel *)channel)->write_fd);
    free(channel);
    return 0;
}

static struct ibv_cq *cq_create(struct ibv_context *context, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
    struct soft_cq *soft;
    uint32_t page, pages, size = 1;

    if (cqe < 1 || cqe > MAX_CQE || vector < 0 || vector >= context->num_comp_vectors) {
        errno = EINVAL;
        return NULL;
    }
    while (size < (uint32_t)cqe)
        size *= 2;
    soft = calloc(1, sizeof(*soft));
    if (soft == NULL || wire_pages(hca_id(context), size * sizeof(struct wire_cqe), &page, &pages) != 0) {
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    soft->shared = wire_new_cq(hca_id(context));
    if (soft->shared == NULL) {
        wire_pages_free(page, pages);
        free(soft);
        errno = ENOMEM;
        return NULL;
    }
    soft->shared->slot.self = soft;
    soft->shared->size = size;
    soft->shared->page = page;
    soft->shared->pages = pages;
    soft->cq.context = context;
    soft->cq.channel = channel;
    soft->cq.cq_context = cq_context;
    soft->cq.handle = soft->shared->slot.id;
    soft->cq.cqe = size;
    pthread_mutex_init(&soft->cq.mutex, NULL);
    pthread_cond_init(&soft->cq.cond, NULL);
    if (channel != NULL) {
        soft->shared->channel_fd = ((struct soft_channel *)channel)->write_fd;
        soft->shared->channel_tag = ((struct soft_channel *)channel)->tag;
        __atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_RELAXED);
    }
    return (struct ibv_cq *)&soft->cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
                             int vector)
{
    return cq_create(context, cqe, cq_context, channel, vector);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
    return cqe <= cq->cqe ? 0 : EOPNOTSUPP; /* the buffer is large enough, or the device does not support resizing */
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct soft_cq *soft = (struct soft_cq *)cq;
    uint32_t page = soft->shared->page, pages = soft->shared->pages; /* the slot may be reused as soon as it is free */

    if (__atomic_load_n(&soft->users, __ATOMIC_RELAXED) != 0)
        return EBUSY;
    wire_free(&soft->shared->slot);
    wire_pages_free(page, pages);
    event_wait_acked(&cq->mutex, &cq->cond, &cq->comp_events_completed, &soft->events);
    event_wait_acked(&cq->mutex, &cq->cond, &cq->async_events_completed, &soft->async_events);
    if (cq->channel != NULL)
        __atomic_sub_fetch(&cq->channel->refcnt, 1, __ATOMIC_RELAXED);
    free(soft);
    return 0;
}

void cq_push(uint32_t id, const struct ibv_wc *wc, bool solicited, void *sender, uint64_t send_done)
{
    struct wire_cq *cq = wire_cq_lock(id);
    struct wire_hca *signal = NULL;
    struct wire_cqe *ring;
    uint32_t hca, tag;
    bool overrun = false;
    int fd;

    if (cq == NULL)
        return;
    ring = wire_page(cq->page);
    hca = cq->slot.hca;
    fd = cq->channel_fd;
    tag = cq->channel_tag;
    if (cq->head - cq->tail == cq->size) {
        overrun = !cq->overrun;
        cq->overrun = true;
    } else {
        ring[cq->head % cq->size] =
            (struct wire_cqe){*wc, sender, send_done, solicited || wc->status != IBV_WC_SUCCESS};
        __atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELEASE);
        if (cq->armed == WIRE_ARMED_ALL
            || (cq->armed == WIRE_ARMED_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
            cq->armed = WIRE_DISARMED;
            signal = tag == 0 ? NULL : wire_hca(hca);
        }
    }
    /* Under the lock: after ibv_destroy_cq no event of it may come. */
    if (signal != NULL)
        peer_signal(signal, fd, tag, &id, sizeof(id));
    wire_unlock(&cq->slot.lock);
    if (overrun)
        event_async(hca, IBV_EVENT_CQ_ERR, id);
}

int soft_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
    struct wire_cq *shared = ((struct soft_cq *)cq)->shared;
    struct wire_cqe *ring = wire_page(shared->page);
    int polled = 0;

    if (__atomic_load_n(&shared->head, __ATOMIC_ACQUIRE) == __atomic_load_n(&shared->tail, __ATOMIC_RELAXED))
        return 0;
    wire_lock(&shared->slot.lock);
    while (polled < count && shared->tail != shared->head) {
        struct wire_cqe *cqe = &ring[shared->tail % shared->size];
        struct soft_qp *sender = cqe->sender; /* exists: destroying a QP takes its completions out of the CQ */

        wc[polled++] = cqe->wc;
        if (sender != NULL)
            __atomic_store_n(&sender->sq_free, cqe->send_done, __ATOMIC_RELEASE);
        __atomic_store_n(&shared->tail, shared->tail + 1, __ATOMIC_RELAXED);
    }
    wire_unlock(&shared->slot.lock);
    return polled;
}

void cq_forget(struct ibv_cq *cq, uint32_t qpn)
{
    struct wire_cq *shared;
    struct wire_cqe *ring;
    uint64_t to;

    if (cq == NULL)
        return;
    shared = ((struct soft_cq *)cq)->shared;
    ring = wire_page(shared->page);
    wire_lock(&shared->slot.lock);
    to = shared->tail;
    for (uint64_t from = shared->tail; from != shared->head; from++)
        if (ring[from % shared->size].wc.qp_num != qpn)
            ring[to++ % shared->size] = ring[from % shared->size];
    __atomic_store_n(&shared->head, to, __ATOMIC_RELEASE);
    wire_unlock(&shared->slot.lock);
}

int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    struct wire_cq *shared = ((struct soft_cq *)cq)->shared;

    struct wire_cqe *ring = wire_page(shared->page);
    bool fires = false;
    uint32_t id = cq->handle;

    /*
     * Completions already in the queue raise no event, unless a fault is set: the program has to poll once more after
     * arming.
     */
    wire_lock(&shared->slot.lock);
    if (!solicited_only)
        shared->armed = WIRE_ARMED_ALL;
    else if (shared->armed == WIRE_DISARMED)
        shared->armed = WIRE_ARMED_SOLICITED;
    if (__atomic_load_n(&wire->faults.arm_fires, __ATOMIC_RELAXED) != 0)
        for (uint64_t i = shared->tail; i != shared->head; i++)
            fires |= shared->armed == WIRE_ARMED_ALL || ring[i % shared->size].solicited;
    if (fires) {
        shared->armed = WIRE_DISARMED;
        if (shared->channel_tag != 0)
            peer_signal(soft_context(cq->context)->hca, shared->channel_fd, shared->channel_tag, &id, sizeof(id));
    }
    wire_unlock(&shared->slot.lock);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    for (;;) {
        uint32_t id;
        ssize_t got = recv(channel->fd, &id, sizeof(id), 0);
        struct wire_cq *shared;

        if (got != sizeof(id)) {
            if (got >= 0)
                errno = EIO;
            return -1;
        }
        shared = wire_cq_lock(id);
        if (shared == NULL)
            continue; /* destroyed meanwhile */
        *cq = shared->slot.self;
        *cq_context = (*cq)->cq_context;
        __atomic_add_fetch(&((struct soft_cq *)*cq)->events, 1, __ATOMIC_RELAXED);
        wire_unlock(&shared->slot.lock);
        return 0;
    }
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += count;
    pthread_cond_broadcast(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

/* ---- the interface of start_poll: one completion at a time in `current` ---- */

static int soft_next_poll(struct ibv_cq_ex *cq)
{
    struct soft_cq *soft = (struct soft_cq *)cq;

    if (soft_poll_cq((struct ibv_cq *)cq, 1, &soft->current) == 0)
        return ENOENT;
    cq->wr_id = soft->current.wr_id;
    cq->status = soft->current.status;
    return 0;
}

static int soft_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
    return attr->comp_mask != 0 ? EINVAL : soft_next_poll(cq);
}

static void soft_end_poll(struct ibv_cq_ex *cq)
{
    (void)cq;
}

#define READ(name, type, field)                              \
    static type soft_read_##name(struct ibv_cq_ex *cq)       \
    {                                                        \
        return ((struct soft_cq *)cq)->current.field;        \
    }
READ(opcode, enum ibv_wc_opcode, opcode)
READ(vendor_err, uint32_t, vendor_err)
READ(byte_len, uint32_t, byte_len)
READ(imm_data, __be32, imm_data)
READ(qp_num, uint32_t, qp_num)
READ(src_qp, uint32_t, src_qp)
READ(wc_flags, unsigned int, wc_flags)
READ(slid, uint32_t, slid)
READ(sl, uint8_t, sl)
READ(dlid_path_bits, uint8_t, dlid_path_bits)

struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
    struct ibv_cq_ex *cq;

    if ((attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) != 0
        || (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) != 0) {
        errno = EOPNOTSUPP; /* no time stamps */
        return NULL;
    }
    cq = (struct ibv_cq_ex *)cq_create(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
    if (cq == NULL)
        return NULL;
    cq->start_poll = soft_start_poll;
    cq->next_poll = soft_next_poll;
    cq->end_poll = soft_end_poll;
    cq->read_opcode = soft_read_opcode;
    cq->read_vendor_err = soft_read_vendor_err;
    cq->read_byte_len = soft_read_byte_len;
    cq->read_imm_data = soft_read_imm_data;
    cq->read_qp_num = soft_read_qp_num;
    cq->read_src_qp = soft_read_src_qp;
    cq->read_wc_flags = soft_read_wc_flags;
    cq->read_slid = soft_read_slid;
    cq->read_sl = soft_read_sl;
    cq->read_dlid_path_bits = soft_read_dlid_path_bits;
    return cq;
}
