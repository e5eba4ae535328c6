/* What is known of an address. */
#include <string.h>

#include "soft.h"

static CUresult put(void *data, const void *value, size_t bytes)
{
    memcpy(data, value, bytes);
    return CUDA_SUCCESS;
}

static CUresult put_int(void *data, int value)
{
    return put(data, &value, sizeof(value));
}

static CUresult put_bool(void *data, bool value)
{
    return put(data, &value, sizeof(value));
}

static CUresult put_word(void *data, uint64_t value)
{
    return put(data, &value, sizeof(value));
}

/*
 * The id of the allocation as the program sees it: of memory of cuMemMap that is the reservation, in which other memory
 * may be mapped later. The documentation does not say more.
 */
static uint64_t buffer_id(const struct range *range)
{
    const struct range *reserved = range->kind == RANGE_VMM ? range_reserved_locked(range->start) : NULL;

    return reserved != NULL ? reserved->id : range->id;
}

/* The range of addresses as the program sees it: of memory of cuMemMap the reservation, whatever is mapped in it. */
static const struct range *addresses_of(const struct range *range)
{
    const struct range *reserved = range->kind == RANGE_VMM ? range_reserved_locked(range->start) : NULL;

    return reserved != NULL ? reserved : range;
}

/* What the device of the current context may do. */
static int access_flags(const struct range *range)
{
    CUcontext current = context_current();

    if (range->kind != RANGE_VMM && range->kind != RANGE_POOL)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return current != NULL ? (int)range->access[current->device] : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* An attribute that both kinds of unknown memory and known ranges have; `range` is not NULL. */
static CUresult attribute_of(void *data, CUpointer_attribute attribute, const struct range *range, CUdeviceptr pointer)
{
    bool managed = range->kind == RANGE_MANAGED, device = range_is_device(range);

    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        /* Memory of cuMemMap and of pools belongs to no context. */
        return put_word(data, range->kind == RANGE_VMM || range->kind == RANGE_POOL ? 0 : (uintptr_t)range->context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return put_int(data, device || managed ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put_word(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return device ? CUDA_ERROR_INVALID_VALUE : put_word(data, pointer);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put_bool(data, range->sync_memops);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put_word(data, buffer_id(range));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put_bool(data, managed);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put_int(data, range->device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put_bool(data, range->kind == RANGE_DEVICE);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put_word(data, addresses_of(range)->start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put_word(data, addresses_of(range)->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: return put_word(data, range->start);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE: return put_word(data, range->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED: return put_bool(data, true);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return put_word(data, device ? (uint64_t)range->memory->handle_types : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return put_bool(data, false);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return put_int(data, access_flags(range));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return put_word(data, range->kind == RANGE_POOL ? (uintptr_t)range->pool : 0);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: return put_word(data, device ? range->memory->id : range->id);
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

static size_t size_of(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: return sizeof(int);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: return sizeof(bool);
    default: return sizeof(uint64_t);
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    CALL(cuPointerGetAttribute)
    struct range *range;
    CUresult result;

    if (data == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    range  = range_find_locked(pointer);
    result = range != NULL ? attribute_of(data, attribute, range, pointer) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    return result;
}

/* Succeeds for memory that the library does not know, too: its attributes are 0, its device ordinal is -2. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)
{
    CALL(cuPointerGetAttributes)
    struct range *range;

    if (attributes == NULL || data == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    for (unsigned i = 0; i < count; i++)
        if (range == NULL || attribute_of(data[i], attributes[i], range, pointer) != CUDA_SUCCESS) {
            memset(data[i], 0, size_of(attributes[i]));
            if (range == NULL && attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
                put_int(data[i], CU_DEVICE_INVALID);
        }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    CALL(cuPointerSetAttribute)
    struct range *range;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (value == NULL || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return result;
    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range != NULL && (range->kind == RANGE_VMM || range->kind == RANGE_POOL))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (range != NULL && range_is_device(range)) {
        range->sync_memops = *(const unsigned *)value != 0;
        result             = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    CALL(cuMemGetAddressRange_v2)
    struct range *range;

    pthread_mutex_lock(&lock);
    range = range_find_locked(pointer);
    if (range != NULL && base != NULL)
        *base = range->start;
    if (range != NULL && bytes != NULL)
        *bytes = range->bytes;
    pthread_mutex_unlock(&lock);
    return range != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr pointer,
                                size_t count)
{
    CALL(cuMemRangeGetAttribute)
    struct range *range;
    bool managed;

    pthread_mutex_lock(&lock);
    range   = range_find_locked(pointer);
    managed = range != NULL && range->kind == RANGE_MANAGED && count <= range->start + range->bytes - pointer;
    pthread_mutex_unlock(&lock);
    if (!managed || data == NULL || size < sizeof(int))
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: return put_int(data, 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: return put_int(data, CU_DEVICE_INVALID);
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}
