/* The engine: one thread of the process, started on demand, for requests that could not be executed at once. */
#include <time.h>
#include <unistd.h>

#include "../soft/thread.h"
#include "hca.h"

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t engine_work, engine_idle = PTHREAD_COND_INITIALIZER;
static struct soft_qp *engine_list; /* QPs with pending requests */
static struct soft_qp *engine_inside; /* the one that the thread works on without engine_lock */
static pid_t engine_process;          /* where the thread runs: a child of fork has none */

/* engine_lock held. */
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
    pthread_mutex_lock(&engine_lock);
    for (;;) {
        struct soft_qp *first = engine_list;
        uint64_t due;

        for (struct soft_qp *qp = engine_list; qp != NULL; qp = qp->engine_next)
            if (qp->engine_due < first->engine_due)
                first = qp;
        if (first == NULL) {
            pthread_cond_wait(&engine_work, &engine_lock);
            continue;
        }
        if (first->engine_due > now_ns()) {
            struct timespec until = {first->engine_due / 1000000000, first->engine_due % 1000000000};

            pthread_cond_timedwait(&engine_work, &engine_lock, &until);
            continue;
        }
        engine_unlist(first);
        engine_inside = first;
        pthread_mutex_unlock(&engine_lock);
        pthread_mutex_lock(&first->sq_lock);
        due = send_progress(first);
        pthread_mutex_unlock(&first->sq_lock);
        if (due != 0)
            engine_watch(first, due);
        pthread_mutex_lock(&engine_lock);
        engine_inside = NULL;
        pthread_cond_broadcast(&engine_idle);
    }
    return NULL;
}

/* engine_lock held. */
static void engine_start(void)
{
    if (engine_process == getpid())
        return;
    engine_process = getpid();
    soft_thread(engine_run, &engine_work);
}

void engine_watch(struct soft_qp *qp, uint64_t due)
{
    pthread_mutex_lock(&engine_lock);
    engine_start();
    if (!qp->engine_listed) {
        qp->engine_listed = true;
        qp->engine_due = due;
        qp->engine_next = engine_list;
        engine_list = qp;
    } else if (due < qp->engine_due)
        qp->engine_due = due;
    pthread_cond_signal(&engine_work);
    pthread_mutex_unlock(&engine_lock);
}

void engine_forget(struct soft_qp *qp)
{
    pthread_mutex_lock(&engine_lock);
    while (engine_inside == qp)
        pthread_cond_wait(&engine_idle, &engine_lock);
    engine_unlist(qp);
    pthread_mutex_unlock(&engine_lock);
}
