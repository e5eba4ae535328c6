/* cuGetProcAddress: an entry by its name without the suffix of its version, as the documentation has it. */
#include <string.h>

#include "soft.h"

static const struct {
    const char *name;
    void *entry;
    int since; /* the first version of CUDA that has it, as far as it matters to anything */
} entries[] = {
    {"cuInit", (void *)cuInit, 0},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion, 0},
    {"cuGetErrorString", (void *)cuGetErrorString, 0},
    {"cuGetErrorName", (void *)cuGetErrorName, 0},
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2, 0},
    {"cuDeviceGet", (void *)cuDeviceGet, 0},
    {"cuDeviceGetCount", (void *)cuDeviceGetCount, 0},
    {"cuDeviceGetName", (void *)cuDeviceGetName, 0},
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2, 0},
    {"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute, 0},
    {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2, 0},
    {"cuDeviceCanAccessPeer", (void *)cuDeviceCanAccessPeer, 0},
    {"cuDeviceGetP2PAttribute", (void *)cuDeviceGetP2PAttribute, 0},
    {"cuFlushGPUDirectRDMAWrites", (void *)cuFlushGPUDirectRDMAWrites, 0},
    {"cuDeviceGetPCIBusId", (void *)cuDeviceGetPCIBusId, 0},
    {"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain, 0},
    {"cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease_v2, 0},
    {"cuDevicePrimaryCtxReset", (void *)cuDevicePrimaryCtxReset_v2, 0},
    {"cuDevicePrimaryCtxGetState", (void *)cuDevicePrimaryCtxGetState, 0},
    {"cuCtxCreate", (void *)cuCtxCreate_v2, 0},
    {"cuCtxDestroy", (void *)cuCtxDestroy_v2, 0},
    {"cuCtxGetCurrent", (void *)cuCtxGetCurrent, 0},
    {"cuCtxSetCurrent", (void *)cuCtxSetCurrent, 0},
    {"cuCtxPushCurrent", (void *)cuCtxPushCurrent_v2, 0},
    {"cuCtxPopCurrent", (void *)cuCtxPopCurrent_v2, 0},
    {"cuCtxGetDevice", (void *)cuCtxGetDevice, 0},
    {"cuCtxGetId", (void *)cuCtxGetId, 0},
    {"cuCtxSetFlags", (void *)cuCtxSetFlags, 0},
    {"cuCtxGetFlags", (void *)cuCtxGetFlags, 0},
    {"cuCtxSynchronize", (void *)cuCtxSynchronize, 0},
    {"cuCtxEnablePeerAccess", (void *)cuCtxEnablePeerAccess, 0},
    {"cuMemGetInfo", (void *)cuMemGetInfo_v2, 0},
    {"cuMemAlloc", (void *)cuMemAlloc_v2, 0},
    {"cuMemAllocManaged", (void *)cuMemAllocManaged, 0},
    {"cuMemFree", (void *)cuMemFree_v2, 0},
    {"cuMemAllocHost", (void *)cuMemAllocHost_v2, 0},
    {"cuMemHostAlloc", (void *)cuMemHostAlloc, 0},
    {"cuMemFreeHost", (void *)cuMemFreeHost, 0},
    {"cuMemHostRegister", (void *)cuMemHostRegister_v2, 0},
    {"cuMemHostUnregister", (void *)cuMemHostUnregister, 0},
    {"cuMemHostGetDevicePointer", (void *)cuMemHostGetDevicePointer_v2, 0},
    {"cuMemGetAddressRange", (void *)cuMemGetAddressRange_v2, 0},
    {"cuPointerGetAttribute", (void *)cuPointerGetAttribute, 0},
    {"cuPointerGetAttributes", (void *)cuPointerGetAttributes, 0},
    {"cuPointerSetAttribute", (void *)cuPointerSetAttribute, 0},
    {"cuMemRangeGetAttribute", (void *)cuMemRangeGetAttribute, 0},
    {"cuMemGetHandleForAddressRange", (void *)cuMemGetHandleForAddressRange, 0},
    {"cuMemcpy", (void *)cuMemcpy, 0},
    {"cuMemcpyAsync", (void *)cuMemcpyAsync, 0},
    {"cuMemcpyHtoD", (void *)cuMemcpyHtoD_v2, 0},
    {"cuMemcpyDtoH", (void *)cuMemcpyDtoH_v2, 0},
    {"cuMemcpyDtoD", (void *)cuMemcpyDtoD_v2, 0},
    {"cuMemcpyHtoDAsync", (void *)cuMemcpyHtoDAsync_v2, 0},
    {"cuMemcpyDtoHAsync", (void *)cuMemcpyDtoHAsync_v2, 0},
    {"cuMemcpyDtoDAsync", (void *)cuMemcpyDtoDAsync_v2, 0},
    {"cuMemcpyPeerAsync", (void *)cuMemcpyPeerAsync, 0},
    {"cuMemcpyBatchAsync", (void *)cuMemcpyBatchAsync, 12080},
    {"cuMemsetD8", (void *)cuMemsetD8_v2, 0},
    {"cuMemsetD8Async", (void *)cuMemsetD8Async, 0},
    {"cuStreamCreate", (void *)cuStreamCreate, 0},
    {"cuStreamCreateWithPriority", (void *)cuStreamCreateWithPriority, 0},
    {"cuStreamDestroy", (void *)cuStreamDestroy_v2, 0},
    {"cuStreamSynchronize", (void *)cuStreamSynchronize, 0},
    {"cuStreamQuery", (void *)cuStreamQuery, 0},
    {"cuStreamWaitEvent", (void *)cuStreamWaitEvent, 0},
    {"cuStreamAddCallback", (void *)cuStreamAddCallback, 0},
    {"cuLaunchHostFunc", (void *)cuLaunchHostFunc, 0},
    {"cuEventCreate", (void *)cuEventCreate, 0},
    {"cuEventDestroy", (void *)cuEventDestroy_v2, 0},
    {"cuEventRecord", (void *)cuEventRecord, 0},
    {"cuEventQuery", (void *)cuEventQuery, 0},
    {"cuEventElapsedTime", (void *)cuEventElapsedTime, 0},
    {"cuEventSynchronize", (void *)cuEventSynchronize, 0},
    {"cuIpcGetMemHandle", (void *)cuIpcGetMemHandle, 0},
    {"cuIpcOpenMemHandle", (void *)cuIpcOpenMemHandle_v2, 0},
    {"cuIpcCloseMemHandle", (void *)cuIpcCloseMemHandle, 0},
    {"cuMemAddressReserve", (void *)cuMemAddressReserve, 0},
    {"cuMemAddressFree", (void *)cuMemAddressFree, 0},
    {"cuMemCreate", (void *)cuMemCreate, 10020},
    {"cuMemRelease", (void *)cuMemRelease, 0},
    {"cuMemMap", (void *)cuMemMap, 0},
    {"cuMemUnmap", (void *)cuMemUnmap, 0},
    {"cuMemSetAccess", (void *)cuMemSetAccess, 0},
    {"cuMemRetainAllocationHandle", (void *)cuMemRetainAllocationHandle, 0},
    {"cuMemExportToShareableHandle", (void *)cuMemExportToShareableHandle, 0},
    {"cuMemImportFromShareableHandle", (void *)cuMemImportFromShareableHandle, 0},
    {"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity, 0},
    {"cuMemGetAllocationPropertiesFromHandle", (void *)cuMemGetAllocationPropertiesFromHandle, 0},
    {"cuDeviceGetDefaultMemPool", (void *)cuDeviceGetDefaultMemPool, 0},
    {"cuDeviceGetMemPool", (void *)cuDeviceGetMemPool, 0},
    {"cuMemPoolCreate", (void *)cuMemPoolCreate, 0},
    {"cuMemPoolDestroy", (void *)cuMemPoolDestroy, 0},
    {"cuMemPoolSetAccess", (void *)cuMemPoolSetAccess, 0},
    {"cuMemPoolExportToShareableHandle", (void *)cuMemPoolExportToShareableHandle, 0},
    {"cuMemPoolImportFromShareableHandle", (void *)cuMemPoolImportFromShareableHandle, 0},
    {"cuMemPoolExportPointer", (void *)cuMemPoolExportPointer, 0},
    {"cuMemPoolImportPointer", (void *)cuMemPoolImportPointer, 0},
    {"cuMemAllocAsync", (void *)cuMemAllocAsync, 0},
    {"cuMemAllocFromPoolAsync", (void *)cuMemAllocFromPoolAsync, 0},
    {"cuMemFreeAsync", (void *)cuMemFreeAsync, 0},
};

CUresult cuGetProcAddress_v2(const char *symbol, void **entry, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    CALL_BEFORE_INIT(cuGetProcAddress_v2, false)

    (void)flags; /* the default stream of a thread is the context's */
    if (symbol == NULL || entry == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *entry = NULL;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++)
        if (strcmp(entries[i].name, symbol) == 0) {
            bool sufficient = version >= entries[i].since;

            found  = sufficient ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            *entry = sufficient ? entries[i].entry : NULL;
        }
    if (status != NULL)
        *status = found;
    return status != NULL || found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
