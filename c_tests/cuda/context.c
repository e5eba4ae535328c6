/* Contexts: one primary context of each device, others, and each thread's stack of current ones. */
#include <stdlib.h>

#include "soft.h"

enum { MAX_STACK = 64 };

static struct CUctx_st primary[MAX_DEVICES];
static CUcontext others; /* those of cuCtxCreate */
static unsigned long long ids;
static __thread CUcontext stack[MAX_STACK];
static __thread int depth;

CUcontext context_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUcontext context_primary(CUdevice device)
{
    return &primary[device];
}

static bool alive_locked(CUcontext context)
{
    for (int d = 0; d < settings.devices; d++)
        if (context == &primary[d])
            return primary[d].retained > 0;
    for (CUcontext one = others; one != NULL; one = one->next)
        if (one == context)
            return true;
    return false;
}

bool context_alive(CUcontext context)
{
    bool alive;

    pthread_mutex_lock(&lock);
    alive = alive_locked(context);
    pthread_mutex_unlock(&lock);
    return alive;
}

static void start_locked(CUcontext context, CUdevice device, bool is_primary)
{
    context->device  = device;
    context->id      = ++ids;
    context->primary = is_primary;
    atomic_store(&context->sticky, CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CALL(cuDevicePrimaryCtxRetain)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    if (primary[device].retained++ == 0)
        start_locked(&primary[device], device, true);
    pthread_mutex_unlock(&lock);
    *context = &primary[device];
    return CUDA_SUCCESS;
}

static CUresult end_primary(CUdevice device, bool reset)
{
    bool ends;

    pthread_mutex_lock(&lock);
    if (primary[device].retained == 0 && !reset) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    ends = primary[device].retained == 1 || reset;
    pthread_mutex_unlock(&lock);
    if (ends) {
        streams_end(&primary[device]);
        ranges_forget_context(&primary[device]);
    }
    pthread_mutex_lock(&lock);
    primary[device].retained -= !reset;
    if (reset)
        atomic_store(&primary[device].sticky, CUDA_SUCCESS);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CALL(cuDevicePrimaryCtxRelease_v2)
    return device_valid(device) ? end_primary(device, false) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CALL(cuDevicePrimaryCtxReset_v2)
    return device_valid(device) ? end_primary(device, true) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    CALL(cuDevicePrimaryCtxGetState)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags  = 0;
    *active = context_alive(&primary[device]);
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    if (context == NULL || depth == MAX_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context_alive(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    CALL(cuCtxCreate_v2)
    (void)flags;
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *context = calloc(1, sizeof(**context));
    pthread_mutex_lock(&lock);
    start_locked(*context, device, false);
    (*context)->next = others;
    others           = *context;
    pthread_mutex_unlock(&lock);
    return push(*context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    CALL(cuCtxDestroy_v2)
    if (context == NULL || !context_alive(context) || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    streams_end(context);
    ranges_forget_context(context);
    pthread_mutex_lock(&lock);
    for (CUcontext *at = &others; *at != NULL; at = &(*at)->next)
        if (*at == context) {
            *at = context->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (context_current() == context)
        depth--;
    return CUDA_SUCCESS; /* the structure stays: other threads' stacks may name it */
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CALL(cuCtxGetCurrent)
    *context = context_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CALL(cuCtxSetCurrent)
    if (context != NULL && !context_alive(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth > 0)
        depth--;
    return context != NULL ? push(context) : CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CALL(cuCtxPushCurrent_v2)
    return push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CALL(cuCtxPopCurrent_v2)
    if (depth == 0)
        return call_wrong_context(&call_);
    depth--;
    if (context != NULL)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CALL(cuCtxGetDevice)
    if (context_current() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT; /* programs ask this to learn whether there is one: no abort */
    *device = context_current()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    CALL(cuCtxGetId)
    if (context == NULL)
        context = context_current();
    if (context == NULL)
        return call_wrong_context(&call_);
    if (!context_alive(context))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags)
{
    CALL_CURRENT(cuCtxSetFlags, current)
    current->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned *flags)
{
    CALL_CURRENT(cuCtxGetFlags, current)
    *flags = current->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    CALL_CURRENT(cuCtxEnablePeerAccess, current)
    if (flags != 0 || peer == NULL || !context_alive(peer))
        return flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    return settings.peers && peer->device != current->device ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}
