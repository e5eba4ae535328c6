/* Completion queues: messages that were held back are posted when the user looks, and completions become errors. */
#include "fabric.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct queue_table {
    struct fi_ops_cq  ops;
    struct fi_ops_cq *real;
    struct fi_ops     fid_ops;
    struct fi_ops    *real_fid_ops;
    size_t            entry; /* bytes */
    pthread_mutex_t   lock;
    _Atomic uint64_t  receives, completions;
    int               is_first; /* of this process */
    uint64_t          reads;
    int               is_dead;
    int               has_errors; /* its completions may be errors */
    int               is_full; /* sends find no room */
    int               is_failed; /* `failed` is to be read before anything else */
    struct fi_cq_err_entry failed;
    /* A message that the next one overtakes. */
    int                       has_held, is_overtaken;
    struct fi_cq_tagged_entry held;
    fi_addr_t                 held_from;
};

static struct queue_table *table_of(struct fid_cq *cq)
{
    return OUTER(cq->ops, struct queue_table, ops);
}

_Atomic uint64_t *queue_receives(struct fid_cq *cq)
{
    return &table_of(cq)->receives;
}

int queue_is_dead(struct fid_cq *cq)
{
    struct queue_table *table = table_of(cq);

    return table->is_dead ||
           (table->is_first && rules()->dies_after != 0 && table->completions >= rules()->dies_after);
}

int queue_is_full(struct fid_cq *cq)
{
    return table_of(cq)->is_full;
}

int queue_has_held(struct fid_cq *cq)
{
    return table_of(cq)->has_held;
}

static ssize_t take_held(struct queue_table *table, void *buffer, fi_addr_t *from)
{
    memcpy(buffer, &table->held, table->entry);
    if (from != NULL) {
        *from = table->held_from;
    }
    table->has_held = 0;
    return 1;
}

/* Holds an entry back if it is a message, and one that the rule reorder_nth names. */
static int holds(struct queue_table *table, const void *entry, const fi_addr_t *from)
{
    static _Atomic uint64_t count;
    struct fi_cq_msg_entry  message = {.flags = 0};

    memcpy(&message, entry, table->entry < sizeof(message) ? table->entry : sizeof(message));
    if (!(message.flags & FI_RECV) || !rules_hits(rules()->reorder_nth, &count)) {
        return 0;
    }
    memcpy(&table->held, entry, table->entry);
    table->held_from    = from == NULL ? FI_ADDR_NOTAVAIL : *from;
    table->has_held     = 1;
    table->is_overtaken = 0;
    return 1;
}

/* Reads the entry that overtakes the message that was held back. Behind one that releases the buffer of that message
 * (FI_MULTI_RECV) the user may write the buffer: such an entry waits for the message. */
static ssize_t overtake(struct fid_cq *cq, void *buffer, fi_addr_t *from)
{
    struct queue_table      *table   = table_of(cq);
    struct fi_cq_tagged_entry held   = table->held;
    fi_addr_t                sender  = table->held_from;
    struct fi_cq_msg_entry   message = {.flags = 0};
    ssize_t                  got     = table->real->readfrom(cq, buffer, 1, from);

    if (got == -FI_EAGAIN) {
        return take_held(table, buffer, from);
    }
    table->is_overtaken = got > 0;
    if (got > 0) {
        memcpy(&message, buffer, table->entry < sizeof(message) ? table->entry : sizeof(message));
        if (message.flags & FI_MULTI_RECV && message.op_context == held.op_context) {
            memcpy(&table->held, buffer, table->entry);
            table->held_from = from == NULL ? FI_ADDR_NOTAVAIL : *from;
            memcpy(buffer, &held, table->entry);
            if (from != NULL) {
                *from = sender;
            }
        }
    }
    return got;
}

/* Reads entries, of which one that was held back is overtaken by the next, if there is one. */
static ssize_t read_in_disorder(struct fid_cq *cq, void *buffer, size_t count, fi_addr_t *from)
{
    struct queue_table *table = table_of(cq);
    ssize_t             got;

    if (count == 0) { /* progress */
        return table->real->readfrom(cq, buffer, 0, from);
    }
    if (table->has_held && table->is_overtaken) {
        return take_held(table, buffer, from);
    }
    if (table->has_held) {
        return overtake(cq, buffer, from);
    }
    got = table->real->readfrom(cq, buffer, count, from);
    if (got > 0 && holds(table, (char *)buffer + (size_t)(got - 1) * table->entry,
                         from == NULL ? NULL : from + got - 1)) {
        got--;
    }
    return got == 0 ? read_in_disorder(cq, buffer, count, from) : got;
}

/* Of a completion that fails the operation is known, and that is all. */
static void fail(struct queue_table *table, const struct fi_cq_msg_entry *entry)
{
    table->failed = (struct fi_cq_err_entry){.op_context = entry->op_context,
                                             .flags      = entry->flags,
                                             .err        = (int)rules()->error_code,
                                             .prov_errno = 4711};
    table->is_failed = 1;
}

/* Whether a completion is to be an error. */
static int is_error(const struct queue_table *table, const struct fi_cq_msg_entry *entry)
{
    static _Atomic uint64_t passed, completions;

    if (entry->flags & FI_READ && read_fails(entry->op_context)) {
        return 1;
    }
    return table->has_errors && passed++ >= rules()->error_after && rules_hits(rules()->error_nth, &completions);
}

static ssize_t readfrom(struct fid_cq *cq, void *buffer, size_t count, fi_addr_t *from)
{
    static _Atomic uint64_t hidden;
    struct queue_table     *table = table_of(cq);
    struct fi_cq_msg_entry  entry = {.flags = 0};
    ssize_t                 got;

    if (queue_is_dead(cq)) {
        return -(ssize_t)rules()->error_code;
    }
    post_held();
    write_late();
    pthread_mutex_lock(&table->lock);
    /* One at a time where one may be an error. */
    if (table->is_failed) {
        got = -FI_EAVAIL;
    } else {
        int is_one = rules()->error_nth != 0 || rules()->fail_read_nth != 0 || rules()->dies_at_read != 0 ||
                     rules()->hide_read_nth != 0;
        got        = read_in_disorder(cq, buffer, is_one && count > 1 ? 1 : count, from);
    }
    for (ssize_t i = 0; i < got; i++) {
        memcpy(&entry, (char *)buffer + (size_t)i * table->entry,
               table->entry < sizeof(entry) ? table->entry : sizeof(entry));
        table->completions++;
        if (entry.flags & FI_RECV && rules()->rx_entries != (uint64_t)-1) {
            table->receives--;
        }
        if (entry.flags & FI_READ && table->is_first && ++table->reads == rules()->dies_at_read) {
            /* Its descriptor reports nothing any more. */
            while (table->real->readfrom(cq, buffer, 1, from) > 0) {
            }
            table->is_dead = 1;
            got            = -(ssize_t)rules()->error_code;
            break;
        }
        if (entry.flags & FI_READ && rules()->dies_at_read != 0) {
            read_completed(entry.op_context);
        }
        if (entry.flags & FI_READ && rules_hits(rules()->hide_read_nth, &hidden)) {
            got = -FI_EAGAIN;
        } else if (is_error(table, &entry)) {
            fail(table, &entry);
            got = -FI_EAVAIL;
        }
    }
    pthread_mutex_unlock(&table->lock);
    return got;
}

static ssize_t read_queue(struct fid_cq *cq, void *buffer, size_t count)
{
    return readfrom(cq, buffer, count, NULL);
}

static ssize_t readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    struct queue_table *table = table_of(cq);
    ssize_t             got   = 1;

    pthread_mutex_lock(&table->lock);
    if (table->is_failed) {
        table->is_failed = 0;
        /* Users of an older interface have a shorter structure. */
        memcpy(entry, &table->failed, offsetof(struct fi_cq_err_entry, err_data));
    } else {
        got = table->real->readerr(cq, entry, flags);
    }
    pthread_mutex_unlock(&table->lock);
    return got;
}

static const char *queue_strerror(struct fid_cq *cq, int code, const void *data, char *text, size_t length)
{
    return code == 4711 ? "an error that the restricted fabric has made"
                        : table_of(cq)->real->strerror(cq, code, data, text, length);
}

static int close_queue(struct fid *fid)
{
    struct queue_table *table = OUTER(fid->ops, struct queue_table, fid_ops);
    int                 error = table->real_fid_ops->close(fid);

    if (error == 0) {
        pthread_mutex_destroy(&table->lock);
        free(table);
    }
    return error;
}

void restrict_queue(struct fid_cq *cq, enum fi_cq_format format)
{
    static _Atomic int  count;
    struct queue_table *table = calloc(1, sizeof(*table));

    int number = count++;
    table->is_first   = number == 0;
    table->has_errors = number >= 64 || rules()->error_queues >> number & 1;
    table->is_full    = number < 64 && rules()->full_queues >> number & 1;
    pthread_mutex_init(&table->lock, NULL);
    COPY_TABLE(table->ops, cq->ops);
    COPY_TABLE(table->fid_ops, cq->fid.ops);
    table->real          = cq->ops;
    table->real_fid_ops  = cq->fid.ops;
    table->entry         = format == FI_CQ_FORMAT_TAGGED ? sizeof(struct fi_cq_tagged_entry)
                           : format == FI_CQ_FORMAT_DATA ? sizeof(struct fi_cq_data_entry)
                           : format == FI_CQ_FORMAT_MSG  ? sizeof(struct fi_cq_msg_entry)
                                                         : sizeof(struct fi_cq_entry);
    table->ops.read      = read_queue;
    table->ops.readfrom  = readfrom;
    table->ops.readerr   = readerr;
    table->ops.strerror  = queue_strerror;
    table->fid_ops.close = close_queue;
    cq->ops              = &table->ops;
    cq->fid.ops          = &table->fid_ops;
}
