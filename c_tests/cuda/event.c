/* Events: an event has been reached when the operations before it have ended. */
#include <stdlib.h>

#include "soft.h"

struct CUevent_st {
    CUcontext context;
    CUstream stream; /* of the last record, held; NULL: never recorded */
    uint64_t number; /* of the last record in the stream */
    uint64_t recorded, reached; /* how often */
    unsigned pending;           /* records that the stream has not reached */
    bool destroyed, untimed;
    double time; /* of the last record that was reached, ns */
    struct CUevent_st *next;
};

static CUevent events;

static bool alive_locked(CUevent event)
{
    for (CUevent one = events; one != NULL; one = one->next)
        if (one == event)
            return true;
    return false;
}

static bool alive(CUevent event)
{
    bool is;

    pthread_mutex_lock(&lock);
    is = alive_locked(event);
    pthread_mutex_unlock(&lock);
    return is;
}

void event_reached(CUevent event, uint64_t generation, double time)
{
    bool last;

    pthread_mutex_lock(&lock);
    if (generation > event->reached)
        event->reached = generation, event->time = time;
    last = --event->pending == 0 && event->destroyed;
    pthread_mutex_unlock(&lock);
    if (last)
        free(event);
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CALL_CURRENT(cuEventCreate, current)
    if (event == NULL || flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    *event            = calloc(1, sizeof(**event));
    (*event)->context = current;
    (*event)->untimed = (flags & CU_EVENT_DISABLE_TIMING) != 0;
    pthread_mutex_lock(&lock);
    (*event)->next = events;
    events         = *event;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    CALL(cuEventDestroy_v2)
    CUstream stream;
    bool unused;

    pthread_mutex_lock(&lock);
    if (!alive_locked(event)) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (CUevent *at = &events; *at != NULL; at = &(*at)->next)
        if (*at == event) {
            *at = event->next;
            break;
        }
    event->destroyed = true;
    stream           = event->stream;
    unused           = event->pending == 0;
    pthread_mutex_unlock(&lock);
    if (stream != NULL)
        stream_drop(stream);
    if (unused)
        free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CALL_CURRENT(cuEventRecord, current)
    struct operation operation = {.kind = OP_EVENT, .event = event};
    CUstream own = stream_of(stream, current), before;
    uint64_t number;

    if (own == NULL || !alive(event))
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream_context(own) != current || event->context != current)
        return call_wrong_context(&call_);
    stream_hold(own);
    pthread_mutex_lock(&lock);
    before           = event->stream;
    event->stream    = own;
    operation.number = ++event->recorded;
    event->pending++;
    pthread_mutex_unlock(&lock);
    if (before != NULL)
        stream_drop(before);
    number = stream_post(own, operation);
    pthread_mutex_lock(&lock);
    event->number = number;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    CALL(cuEventQuery)
    CUresult result;

    pthread_mutex_lock(&lock);
    if (!alive_locked(event))
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (event->reached < event->recorded)
        result = CUDA_ERROR_NOT_READY;
    else
        result = (CUresult)atomic_load(&event->context->sticky);
    pthread_mutex_unlock(&lock);
    /* An error that is not sticky: the first call that learns of it returns it. */
    if (result == CUDA_SUCCESS && event->stream != NULL)
        result = stream_wait(event->stream, 0);
    return result;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    CALL(cuEventElapsedTime)
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    if (milliseconds == NULL || !alive_locked(start) || !alive_locked(end) || start->untimed || end->untimed ||
        start->recorded == 0 || end->recorded == 0)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (start->reached < start->recorded || end->reached < end->recorded)
        result = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)((end->time - start->time) / 1e6);
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuEventSynchronize(CUevent event)
{
    CALL(cuEventSynchronize)
    CUstream stream;

    if (!alive(event))
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&lock);
    stream = event->stream;
    pthread_mutex_unlock(&lock);
    return stream != NULL ? stream_wait(stream, event->number) : CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CALL(cuStreamWaitEvent)
    CUstream own = stream_of(stream, context_current());
    struct operation wait = {.kind = OP_WAIT};

    if (own == NULL || flags != 0 || !alive(event))
        return flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    if (event->stream == NULL || event->stream == own)
        return CUDA_SUCCESS;
    wait.after  = event->stream;
    wait.number = event->number;
    stream_hold(event->stream);
    stream_post(own, wait);
    return CUDA_SUCCESS;
}
