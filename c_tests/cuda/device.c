/* The devices and their attributes. */
#include <stdio.h>
#include <string.h>

#include "soft.h"

bool device_valid(CUdevice device)
{
    return device >= 0 && device < settings.devices;
}

CUresult cuInit(unsigned flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CALL_BEFORE_INIT(cuInit, false)

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, settings_read);
    if (settings.devices == 0)
        return CUDA_ERROR_NO_DEVICE;
    call_initialized();
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    CALL_BEFORE_INIT(cuDriverGetVersion, false)
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CALL(cuDeviceGet)
    if (!device_valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    CALL(cuDeviceGetCount)
    *count = settings.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CALL(cuDeviceGetName)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)length, "Software GPU %d", device);
    return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device)
{
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "soft-cuda-gpu--", 15);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CALL(cuDeviceGetUuid)
    return uuid_of(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CALL(cuDeviceGetUuid_v2)
    return uuid_of(uuid, device);
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    CALL(cuDeviceGetPCIBusId)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)length, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

static int attribute_of(CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return device + 1;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 1024;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: return 1;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: return settings.concurrent;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: return 1; /* by the host */
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: return settings.unordered ? 0 : 100;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: return settings.dmabuf;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
        return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (settings.fabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0);
    default: return 0; /* what the device lacks */
    }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CALL(cuDeviceGetAttribute)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute_of(attribute, device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CALL(cuDeviceTotalMem_v2)
    if (!device_valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = settings.memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CALL(cuDeviceCanAccessPeer)
    if (!device_valid(device) || !device_valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = settings.peers && device != peer;
    return CUDA_SUCCESS;
}

/* Devices that are farther apart by number have slower links, if the settings say so. */
CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
    CALL(cuDeviceGetP2PAttribute)
    if (!device_valid(from) || !device_valid(to) || from == to)
        return CUDA_ERROR_INVALID_DEVICE;
    if (value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = settings.ranks ? (from < to ? to - from : from - to) - 1 : 0;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = settings.peers; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}
