/*
 * The part of the CUDA runtime that UCX 1.22's ucx_perftest uses, by the entries of the driver: NVIDIA's own runtime
 * asks its driver for tables that no documentation describes. It is preloaded (`wired`) with the name of the wheel's
 * library. Kernels do not run.
 */
#include "driver.h"

typedef int cudaError_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNotSupported = 801 };

static __thread CUdevice chosen;
static __thread cudaError_t last;

static cudaError_t remember(CUresult result)
{
    if (result != CUDA_SUCCESS)
        last = (cudaError_t)result; /* those used here have the numbers of the driver's */
    return (cudaError_t)result;
}

/* The current context, else the primary one of the chosen device, which is retained once. */
static CUresult ready(void)
{
    static CUcontext primary[16];
    CUcontext current;
    CUresult result = cuInit(0);

    if (result != CUDA_SUCCESS || (result = cuCtxGetCurrent(&current)) != CUDA_SUCCESS || current != NULL)
        return result;
    if (primary[chosen] == NULL && (result = cuDevicePrimaryCtxRetain(&primary[chosen], chosen)) != CUDA_SUCCESS)
        return result;
    return cuCtxSetCurrent(primary[chosen]);
}

#define READY()                          \
    CUresult ready_ = ready();           \
    if (ready_ != CUDA_SUCCESS)          \
        return remember(ready_);

cudaError_t cudaGetDeviceCount(int *count)
{
    CUresult result = cuInit(0);

    return remember(result == CUDA_SUCCESS ? cuDeviceGetCount(count) : result);
}

cudaError_t cudaSetDevice(int device)
{
    CUresult result = cuInit(0);

    if (result == CUDA_SUCCESS)
        result = cuDeviceGet(&chosen, device);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(NULL);
    return remember(result == CUDA_SUCCESS ? ready() : result);
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    READY()
    CUdeviceptr made = 0;
    CUresult result  = cuMemAlloc_v2(&made, bytes);

    *pointer = (void *)(uintptr_t)made;
    return remember(result);
}

cudaError_t cudaMallocManaged(void **pointer, size_t bytes, unsigned flags)
{
    READY()
    CUdeviceptr made = 0;
    CUresult result  = cuMemAllocManaged(&made, bytes, flags);

    *pointer = (void *)(uintptr_t)made;
    return remember(result);
}

cudaError_t cudaFree(void *pointer)
{
    READY()
    return remember(cuMemFree_v2((uintptr_t)pointer));
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    READY()
    return remember(cuMemHostAlloc(pointer, bytes, flags));
}

cudaError_t cudaFreeHost(void *pointer)
{
    READY()
    return remember(cuMemFreeHost(pointer));
}

cudaError_t cudaHostGetDevicePointer(void **pointer, void *host, unsigned flags)
{
    READY()
    CUdeviceptr found = 0;
    CUresult result   = cuMemHostGetDevicePointer_v2(&found, host, flags);

    *pointer = (void *)(uintptr_t)found;
    return remember(result);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    READY()
    (void)kind; /* addresses say it */
    return remember(cuMemcpy((uintptr_t)to, (uintptr_t)from, bytes));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    READY()
    return remember(cuMemsetD8_v2((uintptr_t)to, (unsigned char)value, bytes));
}

cudaError_t cudaDeviceSynchronize(void)
{
    READY()
    return remember(cuCtxSynchronize());
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;

    last = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text;

    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text : "unrecognized error code";
}

cudaError_t cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
    (void)bytes, (void)symbol;
    return cudaErrorNotSupported;
}

cudaError_t cudaLaunchKernel(const void *function)
{
    (void)function;
    return last = cudaErrorNotSupported;
}

/* Code for devices is registered when a library is loaded, and stays unused. */
void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;

    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle)
{
    (void)handle;
}

void __cudaRegisterVar(void **handle)
{
    (void)handle;
}

unsigned __cudaPushCallConfiguration(void)
{
    return 1; /* an error: the caller does not launch */
}

cudaError_t __cudaPopCallConfiguration(void)
{
    return cudaErrorNotSupported;
}
