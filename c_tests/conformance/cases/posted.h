/*
 * Operations of every kind in flight, each with a count of the calls of its callback, and the check of their ends. One
 * program includes this.
 */
#ifndef POSTED_H
#define POSTED_H

#include "party.h"

enum { SHORT = 8, LONG = 1 << 20, MOST = 64, STREAM = 3000, MANY = 12 };
enum { TAG = 1, TAG_LONG = 2, AM = 5 };

/* Memory of the other process, which this process has mapped, too. */
static unsigned char *window;

/* --- the posted requests --- */

typedef struct {
    const char      *what;
    ucs_status_ptr_t request;
    int              calls;
    ucs_status_t     status; /* of the callback */
} posted_t;

static posted_t posted[MOST];
static int      count;

static inline void on_sent(void *request, ucs_status_t status, void *user_data)
{
    posted_t *one = user_data;

    (void)request;
    one->calls++;
    one->status = status;
}

/* Parameters of the next request. */
static inline const ucp_request_param_t *next(void)
{
    static ucp_request_param_t param;

    param = (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb           = {.send = on_sent},
        .user_data    = &posted[count],
    };
    return &param;
}

static inline void note(const char *what, ucs_status_ptr_t request)
{
    posted[count].what    = what;
    posted[count].request = request;
    count++;
}

static inline void post_messages(party_t *self, const void *data)
{
    for (int i = 0; i < MANY; i++) {
        note("tag, short", ucp_tag_send_nbx(self->ep, data, SHORT, TAG, next()));
    }
    note("tag, long", ucp_tag_send_nbx(self->ep, data, LONG, TAG_LONG, next()));
    note("tag, synchronous", ucp_tag_send_sync_nbx(self->ep, data, SHORT, TAG_LONG, next()));
    note("active message, short", ucp_am_send_nbx(self->ep, AM, data, SHORT, data, SHORT, next()));
    note("active message, long", ucp_am_send_nbx(self->ep, AM, data, SHORT, data, LONG, next()));
    note("stream", ucp_stream_send_nbx(self->ep, data, STREAM, next()));
}

static inline void post_accesses(party_t *self, ucp_rkey_h rkey, void *data, void *into)
{
    static uint64_t     one   = 1, before;
    uint64_t            there = (uintptr_t)window;
    ucp_request_param_t param;

    note("put, short", ucp_put_nbx(self->ep, data, SHORT, there + SHORT, rkey, next()));
    note("put, long", ucp_put_nbx(self->ep, data, LONG, there + LONG, rkey, next()));
    note("get, short", ucp_get_nbx(self->ep, into, SHORT, there, rkey, next()));
    note("get, long", ucp_get_nbx(self->ep, into, LONG, there, rkey, next()));
    param = *next();
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_contig(8);
    note("add", ucp_atomic_op_nbx(self->ep, UCP_ATOMIC_OP_ADD, &one, 1, there, rkey, &param));
    param = *next();
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    param.datatype     = ucp_dt_make_contig(8);
    param.reply_buffer = &before;
    note("fetch and add", ucp_atomic_op_nbx(self->ep, UCP_ATOMIC_OP_ADD, &one, 1, there, rkey, &param));
}

static inline void post_flushes(party_t *self)
{
    note("flush of the endpoint", ucp_ep_flush_nbx(self->ep, next()));
    note("flush of the worker", ucp_worker_flush_nbx(self->worker, next()));
}

/* Each request completes with one of the statuses that `may` accepts, and its callback is called once. */
static inline void check_posted(party_t *self, int (*may)(ucs_status_t))
{
    for (int i = 0; i < count; i++) {
        int          pending = UCS_PTR_IS_PTR(posted[i].request);
        ucs_status_t status  = finish(self, posted[i].request);
        if (status == UCS_INPROGRESS || !may(status)) {
            check(__FILE__, __LINE__, posted[i].what, 0, status_text(status));
        }
        if (pending && (posted[i].calls != 1 || posted[i].status != status)) {
            check(__FILE__, __LINE__, posted[i].what, 0, "another number of calls than 1, or another status");
        }
    }
    for (int i = 0; i < 2000; i++) {
        ucp_worker_progress(self->worker);
    }
    for (int i = 0; i < count; i++) {
        WANT_TRUE(posted[i].calls <= 1);
    }
    WANT_TRUE(count > 0);
}

/* A flush waits for the peer's worker, whose loss ends it without an error if nothing of it was lost. */
static inline int may_be_lost(ucs_status_t status)
{
    return status == UCS_OK || is_loss_or_canceled(status) || status == UCS_ERR_UNREACHABLE;
}

static inline int may_be_canceled(ucs_status_t status)
{
    return status == UCS_OK || status == UCS_ERR_CANCELED;
}

static inline int must_be_ok(ucs_status_t status)
{
    return status == UCS_OK;
}

#endif
