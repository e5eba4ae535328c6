/* Cases of legacy handles between two processes. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

enum { BYTES = 300000 };


static void export(int socket, CUdeviceptr pointer)
{
    CUipcMemHandle handle;

    GOOD(cuIpcGetMemHandle(&handle, pointer));
    send_all(socket, &handle, sizeof(handle));
}

static CUipcMemHandle import(int socket)
{
    CUipcMemHandle handle;

    receive_all(socket, &handle, sizeof(handle));
    return handle;
}

static void step(int socket)
{
    send_all(socket, "", 1);
}

static void wait_step(int socket)
{
    char byte;

    receive_all(socket, &byte, 1);
}

void ipc_passive(int socket)
{
    CUdeviceptr pointer, same;
    CUipcMemHandle handle;

    begin(0);
    pointer = device_bytes(BYTES);
    fill(pointer, BYTES, 1);
    GOOD(cuIpcGetMemHandle(&handle, pointer));
    EQUAL(cuIpcOpenMemHandle_v2(&same, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_INVALID_CONTEXT);
    export(socket, pointer + 10);
    wait_step(socket);
    CHECK(holds(pointer, BYTES, 2));
    GOOD(cuMemFree_v2(pointer));
    pointer = device_bytes(BYTES);
    fill(pointer, BYTES, 3);
    step(socket);
    wait_step(socket);
}

static void touch(void *at)
{
    *(volatile char *)at = 1;
}

void ipc_active(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer, again, base;
    size_t bytes;
    unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    int status;

    begin(0);
    handle = import(socket);
    soft_cuda_fault("ipc_refused=1");
    EQUAL(cuIpcOpenMemHandle_v2(&pointer, handle, flags), CUDA_ERROR_INVALID_HANDLE);
    soft_cuda_fault("ipc_refused=0");
    GOOD(cuIpcOpenMemHandle_v2(&pointer, handle, flags));
    GOOD(cuIpcOpenMemHandle_v2(&again, handle, flags));
    CHECK(again == pointer);
    GOOD(cuIpcCloseMemHandle(again));
    GOOD(cuMemGetAddressRange_v2(&base, &bytes, pointer + 20));
    CHECK(base == pointer && bytes == BYTES);
    CHECK(holds(pointer, BYTES, 1));
    EQUAL(child_signal(touch, (void *)(uintptr_t)pointer), SIGSEGV);
    fill(pointer, BYTES, 2);
    step(socket);
    wait_step(socket); /* it is freed, and its descriptor another allocation's */
    CHECK(holds(pointer, BYTES, 2));
    GOOD(cuIpcCloseMemHandle(pointer));
    EQUAL(cuIpcCloseMemHandle(pointer), CUDA_ERROR_INVALID_VALUE);
    EQUAL(cuIpcOpenMemHandle_v2(&pointer, handle, flags), CUDA_ERROR_MAP_FAILED);
    EQUAL(cuMemcpyDtoH_v2(&status, pointer, 4), CUDA_ERROR_INVALID_VALUE);
    step(socket);
}

void ipc_gone_passive(int socket)
{
    begin(0);
    export(socket, device_bytes(BYTES));
    pause();
}

void ipc_gone_active(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer;
    char byte;

    begin(0);
    handle = import(socket);
    GOOD(cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    GOOD(cuIpcCloseMemHandle(pointer));
    kill(other, SIGKILL);
    EQUAL(read(socket, &byte, 1), 0); /* its descriptors are closed */
    EQUAL(cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_ERROR_MAP_FAILED);
}

void ipc_peers_passive(int socket)
{
    begin(1);
    export(socket, device_bytes(BYTES));
    wait_step(socket);
}

void ipc_peers_active(int socket)
{
    CUipcMemHandle handle;
    CUdeviceptr pointer;

    begin(0);
    handle = import(socket);
    EQUAL(cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
          CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    begin(1);
    GOOD(cuIpcOpenMemHandle_v2(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    step(socket);
}
