/* Asynchronous events: sent as datagrams to the context of the HCA concerned, by the process that causes them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hca.h"

void event_async(uint32_t id, enum ibv_event_type type, uint32_t element)
{
    struct wire_hca *hca = wire_hca(id);
    uint32_t message[2] = {type, element};

    if (hca != NULL)
        peer_signal(hca, hca->async_fd, hca->async_tag, message, sizeof(message));
}

static bool event_is_cq(enum ibv_event_type type)
{
    return type == IBV_EVENT_CQ_ERR;
}

static bool event_is_srq(enum ibv_event_type type)
{
    return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

static bool event_is_port(enum ibv_event_type type)
{
    return (type >= IBV_EVENT_DEVICE_FATAL && type <= IBV_EVENT_SM_CHANGE) || type == IBV_EVENT_CLIENT_REREGISTER
           || type == IBV_EVENT_GID_CHANGE;
}

static void *unlock_self(struct wire_slot *slot)
{
    void *self = slot == NULL ? NULL : slot->self;

    if (slot != NULL)
        wire_unlock(&slot->lock);
    return self;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    uint32_t message[2];
    void *self;

    for (;;) {
        ssize_t got = recv(context->async_fd, message, sizeof(message), 0);

        if (got != sizeof(message)) {
            if (got >= 0)
                errno = EIO;
            return -1;
        }
        memset(event, 0, sizeof(*event));
        event->event_type = message[0];
        if (event_is_port(message[0])) {
            event->element.port_num = 1;
            return 0;
        }
        /* An object that was destroyed meanwhile has no more events. */
        if (event_is_cq(message[0])) {
            self = unlock_self((struct wire_slot *)wire_cq_lock(message[1]));
            event->element.cq = self;
            if (self != NULL)
                __atomic_add_fetch(&((struct soft_cq *)self)->async_events, 1, __ATOMIC_RELAXED);
        } else if (event_is_srq(message[0])) {
            self = unlock_self((struct wire_slot *)wire_srq_lock(message[1]));
            event->element.srq = self;
            if (self != NULL)
                __atomic_add_fetch(&((struct soft_srq *)self)->events, 1, __ATOMIC_RELAXED);
        } else {
            self = unlock_self((struct wire_slot *)wire_qp_lock(message[1]));
            event->element.qp = self;
            if (self != NULL)
                __atomic_add_fetch(&((struct soft_qp *)self)->events, 1, __ATOMIC_RELAXED);
        }
        if (self != NULL)
            return 0;
    }
}

static void ack(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acked)
{
    pthread_mutex_lock(mutex);
    ++*acked;
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    if (event_is_port(event->event_type))
        return;
    if (event_is_cq(event->event_type))
        ack(&event->element.cq->mutex, &event->element.cq->cond, &event->element.cq->async_events_completed);
    else if (event_is_srq(event->event_type))
        ack(&event->element.srq->mutex, &event->element.srq->cond, &event->element.srq->events_completed);
    else
        ack(&event->element.qp->mutex, &event->element.qp->cond, &event->element.qp->events_completed);
}

void event_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *acked, uint32_t *events)
{
    pthread_mutex_lock(mutex);
    while (*acked != __atomic_load_n(events, __ATOMIC_RELAXED))
        pthread_cond_wait(cond, mutex);
    pthread_mutex_unlock(mutex);
}
