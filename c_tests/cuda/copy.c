/* Copies between all kinds of memory, and the entries for them. */
#include <string.h>

#include "soft.h"

/* A piece of memory as this library reaches it. */
struct piece {
    char *bytes;
    size_t length;
    struct memory *held; /* or NULL */
};

static bool may(const struct range *range, CUcontext context, bool writes)
{
    CUmemAccess_flags needed = writes ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;

    if (range->kind != RANGE_VMM && range->kind != RANGE_POOL)
        return true; /* devices without peer access copy through the host */
    return (range->access[context->device] & needed) == needed;
}

static bool resolve(CUcontext context, uintptr_t address, size_t bytes, bool writes, struct piece *piece)
{
    struct range *range;
    size_t skip;
    bool good = true;

    *piece = (struct piece){.bytes = (char *)address, .length = bytes};
    pthread_mutex_lock(&lock);
    range = range_find_locked(address);
    if (range == NULL) {
        good = !range_in_space(address); /* pageable memory */
    } else {
        skip = address - range->start;
        if (piece->length > range->bytes - skip)
            piece->length = range->bytes - skip;
        good = may(range, context, writes);
        if (range->memory != NULL && good) {
            piece->bytes = range->memory->second + range->offset + skip;
            piece->held  = range->memory;
            memory_hold_locked(range->memory);
        }
    }
    pthread_mutex_unlock(&lock);
    return good;
}

static void let_go(struct piece *piece)
{
    if (piece->held != NULL)
        memory_drop(piece->held);
}

CUresult copy_bytes(CUcontext context, uintptr_t to, uintptr_t from, size_t bytes)
{
    while (bytes > 0) {
        struct piece source, target;
        size_t length;

        if (!resolve(context, from, bytes, false, &source))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        if (!resolve(context, to, bytes, true, &target)) {
            let_go(&source);
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        length = source.length < target.length ? source.length : target.length;
        memmove(target.bytes, source.bytes, length);
        let_go(&source);
        let_go(&target);
        to += length;
        from += length;
        bytes -= length;
    }
    return CUDA_SUCCESS;
}

CUresult copy_set(CUcontext context, uintptr_t to, unsigned char value, size_t bytes)
{
    while (bytes > 0) {
        struct piece target;

        if (!resolve(context, to, bytes, true, &target))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        memset(target.bytes, value, target.length);
        let_go(&target);
        to += target.length;
        bytes -= target.length;
    }
    return CUDA_SUCCESS;
}

enum place { PLACE_KNOWN, PLACE_PAGEABLE, PLACE_WRONG };

/* Where these bytes lie when a copy is asked for. */
static enum place place_of(uintptr_t address, size_t bytes)
{
    enum place place = PLACE_KNOWN;
    struct range *range;

    pthread_mutex_lock(&lock);
    while (bytes > 0 && place == PLACE_KNOWN) {
        range = range_find_locked(address);
        if (range == NULL) {
            place = range_in_space(address) ? PLACE_WRONG : PLACE_PAGEABLE;
        } else {
            size_t here = range->start + range->bytes - address;

            if (here >= bytes)
                break;
            address += here;
            bytes -= here;
            /* Only ranges of cuMemMap and registered ones continue in the next one. */
            if (range->kind != RANGE_VMM && range->kind != RANGE_REGISTERED)
                place = PLACE_WRONG;
        }
    }
    pthread_mutex_unlock(&lock);
    return place;
}

/* Copies of pageable memory have ended when the call returns, as the documentation says. */
static CUresult post_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes, bool wait)
{
    struct operation operation = {.kind = OP_COPY, .to = to, .from = from, .bytes = bytes};
    enum place target = place_of(to, bytes), source = place_of(from, bytes);
    uint64_t number;

    if (bytes == 0)
        return CUDA_SUCCESS;
    if (target == PLACE_WRONG || source == PLACE_WRONG)
        return CUDA_ERROR_INVALID_VALUE;
    number = stream_post(stream, operation);
    return wait || target == PLACE_PAGEABLE || source == PLACE_PAGEABLE ? stream_wait(stream, number) : CUDA_SUCCESS;
}

/* The stream of a handle, which must be of the current context. */
#define STREAM(variable, handle)                            \
    CUstream variable = stream_of(handle, current);         \
    if (variable == NULL)                                   \
        return CUDA_ERROR_INVALID_HANDLE;                   \
    if (stream_context(variable) != current)                \
        return call_wrong_context(&call_);

#define SYNCHRONOUS(entry, to_type, from_type)                                         \
    CUresult entry(to_type to, from_type from, size_t bytes)                           \
    {                                                                                  \
        CALL_CURRENT(entry, current)                                                   \
        STREAM(own, NULL)                                                              \
        return post_copy(own, (CUdeviceptr)to, (CUdeviceptr)from, bytes, true);        \
    }
#define ASYNCHRONOUS(entry, to_type, from_type)                                        \
    CUresult entry(to_type to, from_type from, size_t bytes, CUstream stream)          \
    {                                                                                  \
        CALL_CURRENT(entry, current)                                                   \
        STREAM(own, stream)                                                            \
        return post_copy(own, (CUdeviceptr)to, (CUdeviceptr)from, bytes, false);       \
    }

SYNCHRONOUS(cuMemcpy, CUdeviceptr, CUdeviceptr)
SYNCHRONOUS(cuMemcpyHtoD_v2, CUdeviceptr, const void *)
SYNCHRONOUS(cuMemcpyDtoH_v2, void *, CUdeviceptr)
SYNCHRONOUS(cuMemcpyDtoD_v2, CUdeviceptr, CUdeviceptr)
ASYNCHRONOUS(cuMemcpyAsync, CUdeviceptr, CUdeviceptr)
ASYNCHRONOUS(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)
ASYNCHRONOUS(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
ASYNCHRONOUS(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr)

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                           CUstream stream)
{
    CALL_CURRENT(cuMemcpyPeerAsync, current)
    STREAM(own, stream)
    if (!context_alive(to_context) || !context_alive(from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    return post_copy(own, to, from, bytes, false);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, size_t *failed,
                            CUstream stream)
{
    CALL_CURRENT(cuMemcpyBatchAsync, current)
    STREAM(own, stream)
    CUresult result = CUDA_SUCCESS;

    /* The documentation excludes the default stream. */
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || count == 0 ||
        attributes == NULL || indices == NULL || attribute_count == 0 || attribute_count > count || indices[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = sizes[i] != 0 ? post_copy(own, to[i], from[i], sizes[i], false) : CUDA_ERROR_INVALID_VALUE;
        if (result != CUDA_SUCCESS && failed != NULL)
            *failed = i;
    }
    return result;
}

static CUresult post_set(CUstream stream, CUdeviceptr to, unsigned char value, size_t bytes, bool wait)
{
    struct operation operation = {.kind = OP_SET, .to = to, .bytes = bytes, .value = value};
    uint64_t number;

    if (place_of(to, bytes) != PLACE_KNOWN)
        return CUDA_ERROR_INVALID_VALUE;
    number = stream_post(stream, operation);
    return wait ? stream_wait(stream, number) : CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes)
{
    CALL_CURRENT(cuMemsetD8_v2, current)
    STREAM(own, NULL)
    return post_set(own, to, value, bytes, true);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    CALL_CURRENT(cuMemsetD8Async, current)
    STREAM(own, stream)
    return post_set(own, to, value, bytes, false);
}
