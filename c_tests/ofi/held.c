/* Writes that are held back, so that the next one to the same endpoint overtakes them. */
#include "endpoint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct held {
    struct held   *next;
    struct fid_ep *ep;
    struct post    post;
    unsigned char  injected[MAX_INJECT];
};

static struct held    *list;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t post_send(struct ep_table *table, struct fid_ep *ep, const struct post *p)
{
    const struct fi_ops_msg *msg = table->real_msg;

    if (p->is_inject) {
        return p->has_data ? msg->injectdata(ep, p->buffer, p->length, p->data, p->to)
                           : msg->inject(ep, p->buffer, p->length, p->to);
    }
    return p->has_data ? msg->senddata(ep, p->buffer, p->length, p->desc, p->data, p->to, p->context)
                       : msg->send(ep, p->buffer, p->length, p->desc, p->to, p->context);
}

static ssize_t post_write(struct ep_table *table, struct fid_ep *ep, const struct post *p)
{
    const struct fi_ops_rma *rma = table->real_rma;

    if (p->is_inject) {
        return p->has_data ? rma->injectdata(ep, p->buffer, p->length, p->data, p->to, p->address, p->key)
                           : rma->inject(ep, p->buffer, p->length, p->to, p->address, p->key);
    }
    return p->has_data ? rma->writedata(ep, p->buffer, p->length, p->desc, p->data, p->to, p->address, p->key,
                                        p->context)
                       : rma->write(ep, p->buffer, p->length, p->desc, p->to, p->address, p->key, p->context);
}

static ssize_t post_now(struct fid_ep *ep, const struct post *post)
{
    struct ep_table *table = table_of(ep);

    return post->call == SEND ? post_send(table, ep, post) : post_write(table, ep, post);
}

static struct held **find(struct fid_ep *ep)
{
    struct held **at = &list;

    while (*at != NULL && (*at)->ep != ep) {
        at = &(*at)->next;
    }
    return at;
}

/* Posts what is held at `at`; a refusal leaves it there. */
static int release(struct held **at)
{
    struct held *held  = *at;
    ssize_t      error = post_now(held->ep, &held->post);

    if (error == -FI_EAGAIN) {
        return 0;
    }
    if (error != 0) {
        rules_broken("a post that was held back fails: %s", fi_strerror((int)-error));
    }
    *at = held->next;
    free(held);
    return 1;
}

static void hold(struct fid_ep *ep, const struct post *post)
{
    struct held *held = calloc(1, sizeof(*held));

    *held = (struct held){.next = list, .ep = ep, .post = *post};
    if (post->is_inject) {
        memcpy(held->injected, post->buffer, post->length);
        held->post.buffer = held->injected;
    }
    list = held;
}

ssize_t hold_or_post(struct fid_ep *ep, const struct post *post)
{
    static _Atomic uint64_t count;
    ssize_t                 error = 0;

    if (rules()->reorder_nth == 0) {
        return post_now(ep, post);
    }
    pthread_mutex_lock(&lock);
    /* Messages overtake each other in the queue of the receiver, whatever their sender does. */
    if (post->call == WRITE && *find(ep) == NULL && post->length <= MAX_INJECT &&
        rules_hits(rules()->reorder_nth, &count)) {
        hold(ep, post);
    } else {
        error = post_now(ep, post);
        if (error == 0 && *find(ep) != NULL) {
            release(find(ep));
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

void post_held(void)
{
    if (rules()->reorder_nth == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    for (struct held **at = &list; *at != NULL;) {
        if (!release(at)) {
            at = &(*at)->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void drop_held(struct fid_ep *ep)
{
    pthread_mutex_lock(&lock);
    for (struct held **at = find(ep); *at != NULL; at = find(ep)) {
        struct held *held = *at;
        *at               = held->next;
        free(held);
    }
    pthread_mutex_unlock(&lock);
}
