/* Cases of contexts and entries. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

static void *without_context(void *unused)
{
    CUdeviceptr pointer;
    CUstream stream;
    CUevent event;
    CUcontext context;
    CUdevice device;

    (void)unused;
    EQUAL(cuMemAlloc_v2(&pointer, 100), CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    EQUAL(cuCtxPopCurrent_v2(&context), CUDA_ERROR_INVALID_CONTEXT);
    GOOD(cuCtxGetCurrent(&context));
    CHECK(context == NULL);
    return NULL;
}

void contexts_active(int socket)
{
    CUcontext first, second, own, current;
    CUstream stream;
    CUdeviceptr pointer;
    CUdevice device;
    pthread_t thread;
    unsigned flags;
    int active;

    (void)socket;
    EQUAL(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    first = begin(0);
    EQUAL(pthread_create(&thread, NULL, without_context, NULL), 0); /* a current context is the thread's */
    pthread_join(thread, NULL);
    pointer = device_bytes(100);
    GOOD(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK(!active);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GOOD(cuDevicePrimaryCtxRetain(&second, 1));
    GOOD(cuCtxPushCurrent_v2(second));
    GOOD(cuCtxGetDevice(&device));
    EQUAL(device, 1);
    EQUAL(cuMemcpyAsync(pointer, pointer + 50, 50, stream), CUDA_ERROR_INVALID_CONTEXT); /* another context's stream */
    GOOD(cuStreamSynchronize(stream));
    GOOD(cuCtxCreate_v2(&own, 0, 1));
    GOOD(cuCtxGetCurrent(&current));
    CHECK(current == own && own != second);
    GOOD(cuCtxDestroy_v2(own));
    GOOD(cuCtxGetCurrent(&current));
    CHECK(current == second);
    EQUAL(cuCtxPushCurrent_v2(own), CUDA_ERROR_INVALID_CONTEXT);
    GOOD(cuCtxPopCurrent_v2(&current));
    CHECK(current == second);
    GOOD(cuCtxGetCurrent(&current));
    CHECK(current == first);
    GOOD(cuDevicePrimaryCtxRelease_v2(1));
    EQUAL(cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
    GOOD(cuDevicePrimaryCtxRelease_v2(0));
    EQUAL(cuMemAlloc_v2(&pointer, 8), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void allocate(void *unused)
{
    CUdeviceptr pointer;

    (void)unused;
    GOOD(cuInit(0));
    cuMemAlloc_v2(&pointer, 8);
}

void strict_active(int socket)
{
    (void)socket;
    EQUAL(child_signal(allocate, NULL), SIGABRT);
    begin(0);
    device_bytes(8);
}

static void use_in_child(void *unused)
{
    CUdeviceptr pointer;
    CUcontext context;

    (void)unused;
    EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
    EQUAL(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    EQUAL(cuMemAlloc_v2(&pointer, 8), CUDA_ERROR_NOT_INITIALIZED);
    abort();
}

void forked_active(int socket)
{
    (void)socket;
    begin(0);
    EQUAL(child_signal(use_in_child, NULL), SIGABRT); /* it came to the end */
}

void devices_active(int socket)
{
    int count, can, is;
    CUuuid one, two;
    CUdevice device;

    (void)socket;
    GOOD(cuInit(0));
    GOOD(cuDeviceGetCount(&count));
    EQUAL(count, 3);
    EQUAL(cuDeviceGet(&device, 3), CUDA_ERROR_INVALID_DEVICE);
    GOOD(cuDeviceGetUuid(&one, 1));
    GOOD(cuDeviceGetUuid(&two, 2));
    CHECK(memcmp(&one, &two, sizeof(one)) != 0);
    GOOD(cuDeviceCanAccessPeer(&can, 0, 1));
    EQUAL(can, 0);
    GOOD(cuDeviceGetP2PAttribute(&can, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EQUAL(can, 0);
    GOOD(cuDeviceGetP2PAttribute(&is, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 2, 0));
    EQUAL(is, 1);
    GOOD(cuDeviceGetP2PAttribute(&is, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 2));
    EQUAL(is, 0);
    EQUAL(cuDeviceGetP2PAttribute(&is, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 1), CUDA_ERROR_INVALID_DEVICE);
    GOOD(cuDeviceGetAttribute(&is, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 2));
    EQUAL(is, 3);
}

void entries_active(int socket)
{
    CUdriverProcAddressQueryResult status;
    CUresult (*count)(int *);
    void *entry;
    int devices;

    (void)socket;
    GOOD(cuInit(0));
    GOOD(cuGetProcAddress_v2("cuDeviceGetCount", &entry, 12000, 0, &status));
    EQUAL(status, CU_GET_PROC_ADDRESS_SUCCESS);
    memcpy(&count, &entry, sizeof(count));
    GOOD(count(&devices));
    EQUAL(devices, 1);
    GOOD(cuGetProcAddress_v2("cuMemAlloc", &entry, 12000, 0, &status));
    CHECK(entry == (void *)cuMemAlloc_v2);
    GOOD(cuGetProcAddress_v2("cuMemcpyBatchAsync", &entry, 12000, 0, &status));
    CHECK(entry == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    GOOD(cuGetProcAddress_v2("cuNoSuchEntry", &entry, 12000, 0, &status));
    CHECK(entry == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EQUAL(cuGetProcAddress_v2("cuNoSuchEntry", &entry, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
}
