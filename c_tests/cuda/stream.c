/* Streams: queues of operations, each with a thread that executes them in order. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "soft.h"

struct CUstream_st {
    CUcontext context;
    unsigned flags;
    bool legacy, stopping, running;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct operation *first, **last;
    uint64_t posted, ended;
    double ended_at; /* the last operation, by the model of time, ns; the stream's thread's own */
    CUresult error; /* of an operation, until a call returns it */
    unsigned refs;
    struct CUstream_st *next;
};

static CUstream streams; /* those with a handle that is valid */

CUstream stream_make(CUcontext context, unsigned flags, bool legacy)
{
    CUstream stream = calloc(1, sizeof(*stream));

    stream->context = context;
    stream->flags   = flags;
    stream->legacy  = legacy;
    stream->refs    = 1;
    stream->last    = &stream->first;
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->changed, NULL);
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams      = stream;
    pthread_mutex_unlock(&lock);
    return stream;
}

static CUstream legacy_of(CUcontext context)
{
    CUstream found;

    if (context == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    found = context->legacy;
    pthread_mutex_unlock(&lock);
    if (found != NULL)
        return found;
    found = stream_make(context, CU_STREAM_DEFAULT, true);
    pthread_mutex_lock(&lock);
    if (context->legacy == NULL)
        context->legacy = found;
    found = context->legacy; /* another thread's, perhaps: then this one stays idle */
    pthread_mutex_unlock(&lock);
    return found;
}

CUstream stream_of(CUstream handle, CUcontext current)
{
    CUstream found;

    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return legacy_of(current);
    pthread_mutex_lock(&lock);
    for (found = streams; found != NULL && found != handle; found = found->next) {
    }
    pthread_mutex_unlock(&lock);
    return found;
}

CUcontext stream_context(CUstream stream)
{
    return stream->context;
}

void stream_hold(CUstream stream)
{
    pthread_mutex_lock(&stream->mutex);
    stream->refs++;
    pthread_mutex_unlock(&stream->mutex);
}

void stream_drop(CUstream stream)
{
    bool last;

    pthread_mutex_lock(&stream->mutex);
    last = --stream->refs == 0;
    pthread_mutex_unlock(&stream->mutex);
    if (last)
        free(stream);
}

/* ---- execution ---- */

static void pause_ns(double ns)
{
    struct timespec time = {(time_t)(ns / 1e9), (long)ns % 1000000000};

    nanosleep(&time, NULL);
}

static bool is_sticky(CUresult result)
{
    return result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_ILLEGAL_ADDRESS ||
           result == CUDA_ERROR_LAUNCH_TIMEOUT ||
           (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

static CUresult move(CUstream stream, const struct operation *operation)
{
    if (fault_counts_down(FAULT_FAIL_NTH)) {
        CUresult code = (CUresult)fault_value(FAULT_FAIL_CODE);

        return code != CUDA_SUCCESS ? code : CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (settings.gbps > 0)
        pace_copy(stream->context->device, operation, &stream->ended_at);
    if (operation->kind == OP_SET)
        return copy_set(stream->context, operation->to, operation->value, operation->bytes);
    return copy_bytes(stream->context, operation->to, operation->from, operation->bytes);
}

static void free_range(uintptr_t start)
{
    struct range *range;

    pthread_mutex_lock(&lock);
    range = range_find_locked(start);
    if (range != NULL && range->start == start) {
        memory_drop_locked(range->memory);
        range_remove_locked(range);
    }
    pthread_mutex_unlock(&lock);
}

/* Waits without taking the error, which is for a call of the program. */
static void reach(CUstream stream, uint64_t number)
{
    pthread_mutex_lock(&stream->mutex);
    while (stream->ended < number)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    pthread_mutex_unlock(&stream->mutex);
}

static CUresult execute(CUstream stream, struct operation *operation)
{
    CUresult result = (CUresult)atomic_load(&stream->context->sticky);

    switch (operation->kind) {
    case OP_COPY:
    case OP_SET: return result == CUDA_SUCCESS ? move(stream, operation) : result;
    case OP_HOST:
        call_within = true;
        if (result == CUDA_SUCCESS)
            operation->host(operation->data);
        call_within = false;
        return result;
    case OP_CALLBACK:
        call_within = true;
        operation->callback(stream->legacy ? NULL : stream, result, operation->data);
        call_within = false;
        return result;
    case OP_WAIT:
        reach(operation->after, operation->number);
        stream_drop(operation->after);
        return result;
    case OP_FREE: free_range(operation->to); return result;
    case OP_EVENT: return result;
    }
    return result;
}

/* How late an operation that begins now will end, in microseconds. */
static uint64_t lateness(const struct operation *operation)
{
    uint64_t us = fault_value(FAULT_LATE_US);

    if (us == 0 || (operation->kind != OP_COPY && operation->kind != OP_SET) || !fault_every(FAULT_LATE_NTH))
        return 0;
    return us;
}

/*
 * When a stream came to an event, ns. By the model of time: when what was before it had ended, or when it was posted,
 * however late this thread runs.
 */
static double time_of_event(CUstream stream, const struct operation *event)
{
    if (settings.gbps <= 0)
        return pace_now();
    return event->posted > stream->ended_at ? event->posted : stream->ended_at;
}

static void *run(void *argument)
{
    CUstream stream = argument;

    pthread_mutex_lock(&stream->mutex);
    for (;;) {
        struct operation *operation = stream->first;
        CUresult result;
        uint64_t late_us;

        if (operation == NULL) {
            if (stream->stopping)
                break;
            pthread_cond_wait(&stream->changed, &stream->mutex);
            continue;
        }
        pthread_mutex_unlock(&stream->mutex);
        late_us = lateness(operation);
        result  = execute(stream, operation);
        if (late_us != 0)
            pause_ns((double)late_us * 1000);
        /* What takes time by itself delays what follows. */
        if (late_us != 0 || operation->kind == OP_WAIT || operation->kind == OP_HOST || operation->kind == OP_CALLBACK)
            stream->ended_at = pace_now();
        if (is_sticky(result))
            atomic_store(&stream->context->sticky, result);
        if (operation->kind == OP_EVENT)
            event_reached(operation->event, operation->number, time_of_event(stream, operation));
        pthread_mutex_lock(&stream->mutex);
        if (result != CUDA_SUCCESS)
            stream->error = result;
        stream->first = operation->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        free(operation);
        stream->ended++;
        pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->mutex);
    stream_drop(stream);
    return NULL;
}

/* stream->mutex is held. */
static void start_thread(CUstream stream)
{
    sigset_t all, before;
    pthread_t thread;

    stream->running = true;
    stream->refs++;
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, run, stream) != 0)
        abort();
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static uint64_t append(CUstream stream, struct operation operation)
{
    struct operation *one = malloc(sizeof(*one));
    uint64_t number;

    *one        = operation;
    one->next   = NULL;
    one->posted = pace_now();
    pthread_mutex_lock(&stream->mutex);
    if (!stream->running)
        start_thread(stream);
    *stream->last = one;
    stream->last  = &one->next;
    number        = ++stream->posted;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
    return number;
}

/* ---- for the other parts ---- */

bool stream_ended(CUstream stream, uint64_t number)
{
    bool ended;

    pthread_mutex_lock(&stream->mutex);
    ended = stream->ended >= number;
    pthread_mutex_unlock(&stream->mutex);
    return ended;
}

static uint64_t posted_of(CUstream stream)
{
    uint64_t number;

    pthread_mutex_lock(&stream->mutex);
    number = stream->posted;
    pthread_mutex_unlock(&stream->mutex);
    return number;
}

static void wait_for(CUstream stream, CUstream other)
{
    struct operation wait = {.kind = OP_WAIT, .after = other, .number = posted_of(other)};

    if (stream_ended(other, wait.number))
        return;
    stream_hold(other);
    append(stream, wait);
}

/* The blocking streams of a context and its default stream wait for each other. */
static void order(CUstream stream)
{
    CUstream waits[64];
    int count = 0;

    pthread_mutex_lock(&lock);
    for (CUstream one = streams; one != NULL && count < 64; one = one->next)
        if (one != stream && one->context == stream->context && (one->flags & CU_STREAM_NON_BLOCKING) == 0 &&
            (stream->legacy || one->legacy))
            waits[count++] = one;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++)
        wait_for(stream, waits[i]);
}

uint64_t stream_post(CUstream stream, struct operation operation)
{
    if ((stream->flags & CU_STREAM_NON_BLOCKING) == 0)
        order(stream);
    return append(stream, operation);
}

CUresult stream_wait(CUstream stream, uint64_t number)
{
    CUresult result;

    pthread_mutex_lock(&stream->mutex);
    while (stream->ended < number)
        pthread_cond_wait(&stream->changed, &stream->mutex);
    result = stream->error;
    if (!is_sticky(result))
        stream->error = CUDA_SUCCESS;
    pthread_mutex_unlock(&stream->mutex);
    return result != CUDA_SUCCESS ? result : (CUresult)atomic_load(&stream->context->sticky);
}

/* A stream of this device, or of this context, that has not ended; held. */
static CUstream next_busy(CUdevice device, CUcontext context)
{
    CUstream found = NULL;

    pthread_mutex_lock(&lock);
    for (CUstream one = streams; one != NULL && found == NULL; one = one->next)
        if ((context != NULL ? one->context == context : one->context->device == device) &&
            !stream_ended(one, posted_of(one)))
            found = one;
    if (found != NULL)
        stream_hold(found);
    pthread_mutex_unlock(&lock);
    return found;
}

static void drain_all(CUdevice device, CUcontext context)
{
    CUstream stream;

    while ((stream = next_busy(device, context)) != NULL) {
        reach(stream, posted_of(stream));
        stream_drop(stream);
    }
}

void streams_synchronize(CUdevice device)
{
    drain_all(device, NULL);
}

static void end(CUstream stream)
{
    pthread_mutex_lock(&lock);
    for (CUstream *at = &streams; *at != NULL; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    if (stream->context->legacy == stream)
        stream->context->legacy = NULL;
    pthread_mutex_unlock(&lock);
    pthread_mutex_lock(&stream->mutex);
    stream->stopping = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->mutex);
    stream_drop(stream);
}

void streams_end(CUcontext context)
{
    CUstream stream;

    drain_all(CU_DEVICE_INVALID, context);
    do {
        pthread_mutex_lock(&lock);
        for (stream = streams; stream != NULL && stream->context != context; stream = stream->next) {
        }
        pthread_mutex_unlock(&lock);
        if (stream != NULL)
            end(stream);
    } while (stream != NULL);
}

/* ---- entries ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CALL_CURRENT(cuStreamCreate, current)
    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = stream_make(current, flags, false);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    CALL_CURRENT(cuStreamCreateWithPriority, current)
    (void)priority; /* all are the same */
    if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = stream_make(current, flags, false);
    return CUDA_SUCCESS;
}

#define STREAM(variable, handle)                                    \
    CUstream variable = stream_of(handle, context_current());       \
    if (variable == NULL)                                           \
        return handle == NULL ? call_wrong_context(&call_) : CUDA_ERROR_INVALID_HANDLE;

CUresult cuStreamDestroy_v2(CUstream stream)
{
    CALL(cuStreamDestroy_v2)
    STREAM(own, stream)
    if (own->legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    end(own); /* what was posted is executed nevertheless */
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CALL(cuStreamSynchronize)
    STREAM(own, stream)
    if (own->legacy)
        order(own);
    return stream_wait(own, posted_of(own));
}

CUresult cuStreamQuery(CUstream stream)
{
    CALL(cuStreamQuery)
    STREAM(own, stream)
    if (!stream_ended(own, posted_of(own)))
        return CUDA_ERROR_NOT_READY;
    return stream_wait(own, 0);
}

CUresult cuCtxSynchronize(void)
{
    CALL_CURRENT(cuCtxSynchronize, current)
    drain_all(CU_DEVICE_INVALID, current);
    return (CUresult)atomic_load(&current->sticky);
}

static CUresult sticky_of(CUstream stream)
{
    return (CUresult)atomic_load(&stream->context->sticky);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags)
{
    CALL(cuStreamAddCallback)
    STREAM(own, stream)
    struct operation operation = {.kind = OP_CALLBACK, .callback = callback, .data = data};

    if (callback == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sticky_of(own) == CUDA_SUCCESS)
        stream_post(own, operation);
    return sticky_of(own);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    CALL(cuLaunchHostFunc)
    STREAM(own, stream)
    struct operation operation = {.kind = OP_HOST, .host = function, .data = data};

    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sticky_of(own) == CUDA_SUCCESS)
        stream_post(own, operation);
    return sticky_of(own);
}
