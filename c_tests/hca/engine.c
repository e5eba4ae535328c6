/* The engine: one thread of the process, started on demand, for requests that could not be executed at once. */
#include "../soft/thread.h"
#include "hca.h"

static struct soft_thread engine = SOFT_THREAD_INITIALIZER;
static pthread_cond_t engine_idle = PTHREAD_COND_INITIALIZER;
static struct soft_qp *engine_list; /* QPs with pending requests */
static struct soft_qp *engine_inside; /* the one that the thread works on without engine.lock */

/* The pending requests are the parent's, which executes them; a thread of the parent may have held the lock. */
static void in_child(void)
{
    engine = (struct soft_thread)SOFT_THREAD_INITIALIZER;
    engine_idle = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    engine_list = engine_inside = NULL;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* engine.lock held. */
static void engine_unlist(struct soft_qp *qp)
{
    for (struct soft_qp **at = &engine_list; *at != NULL; at = &(*at)->engine_next)
        if (*at == qp) {
            *at = qp->engine_next;
            break;
        }
    qp->engine_listed = false;
}

static void *engine_run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&engine.lock);
    for (;;) {
        struct soft_qp *first = engine_list;
        uint64_t due;

        for (struct soft_qp *qp = engine_list; qp != NULL; qp = qp->engine_next)
            if (qp->engine_due < first->engine_due)
                first = qp;
        if (first == NULL || first->engine_due > now_ns()) {
            soft_thread_wait(&engine, first == NULL ? UINT64_MAX : first->engine_due);
            continue;
        }
        engine_unlist(first);
        engine_inside = first;
        pthread_mutex_unlock(&engine.lock);
        pthread_mutex_lock(&first->sq_lock);
        due = send_progress(first);
        pthread_mutex_unlock(&first->sq_lock);
        if (due != 0)
            engine_watch(first, due);
        pthread_mutex_lock(&engine.lock);
        engine_inside = NULL;
        pthread_cond_broadcast(&engine_idle);
    }
    return NULL;
}

void engine_watch(struct soft_qp *qp, uint64_t due)
{
    pthread_mutex_lock(&engine.lock);
    soft_thread_start(&engine, engine_run);
    if (!qp->engine_listed) {
        qp->engine_listed = true;
        qp->engine_due = due;
        qp->engine_next = engine_list;
        engine_list = qp;
    } else if (due < qp->engine_due)
        qp->engine_due = due;
    pthread_cond_signal(&engine.work);
    pthread_mutex_unlock(&engine.lock);
}

void engine_forget(struct soft_qp *qp)
{
    pthread_mutex_lock(&engine.lock);
    while (engine_inside == qp)
        pthread_cond_wait(&engine_idle, &engine.lock);
    engine_unlist(qp);
    pthread_mutex_unlock(&engine.lock);
}
