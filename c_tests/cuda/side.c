/* One side of a test of the software libcuda. */
#include "side.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CUcontext begin(CUdevice device)
{
    CUcontext context;

    GOOD(cuInit(0));
    GOOD(cuDevicePrimaryCtxRetain(&context, device));
    GOOD(cuCtxSetCurrent(context));
    return context;
}

CUdeviceptr device_bytes(size_t bytes)
{
    CUdeviceptr pointer;

    GOOD(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

static unsigned char byte_of(size_t i, unsigned seed)
{
    return (unsigned char)((i * 131 + (i >> 8) + seed * 17 + 1) & 255);
}

void fill_host(void *to, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)to)[i] = byte_of(i, seed);
}

bool host_holds(const void *from, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)from)[i] != byte_of(i, seed))
            return false;
    return true;
}

void fill(CUdeviceptr to, size_t bytes, unsigned seed)
{
    void *buffer = malloc(bytes);

    fill_host(buffer, bytes, seed);
    GOOD(cuMemcpyHtoD_v2(to, buffer, bytes));
    free(buffer);
}

bool holds(CUdeviceptr from, size_t bytes, unsigned seed)
{
    void *buffer = calloc(1, bytes);
    bool good;

    GOOD(cuMemcpyDtoH_v2(buffer, from, bytes));
    good = host_holds(buffer, bytes, seed);
    free(buffer);
    return good;
}

int child_signal(void (*act)(void *), void *argument)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        act(argument);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

unsigned long long buffer_id(CUdeviceptr pointer)
{
    unsigned long long id;

    GOOD(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer));
    return id;
}

CUresult synchronized(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUstream stream;
    CUresult result;

    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    result = cuMemcpyAsync(to, from, bytes, stream);
    if (result == CUDA_SUCCESS)
        result = cuStreamSynchronize(stream);
    GOOD(cuStreamDestroy_v2(stream));
    return result;
}

static void wait_at(void *argument)
{
    struct gate *gate = argument;
    char byte;

    EQUAL(read(gate->ends[0], &byte, 1), 1);
}

void gate_post(struct gate *gate, CUstream stream)
{
    EQUAL(pipe(gate->ends), 0);
    GOOD(cuLaunchHostFunc(stream, wait_at, gate));
}

void gate_open(struct gate *gate)
{
    EQUAL(write(gate->ends[1], "", 1), 1);
}

void send_all(int socket, const void *data, size_t bytes)
{
    EQUAL(send(socket, data, bytes, 0), bytes);
}

void receive_all(int socket, void *data, size_t bytes)
{
    EQUAL(recv(socket, data, bytes, MSG_WAITALL), bytes);
}

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

void send_fd(int socket, int fd)
{
    char byte         = 0;
    struct iovec part = {&byte, 1};
    union control control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};

    control.header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    EQUAL(sendmsg(socket, &message, 0), 1);
}

int receive_fd(int socket)
{
    char byte;
    int fd;
    struct iovec part = {&byte, 1};
    union control control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof(control.bytes)};

    EQUAL(recvmsg(socket, &message, 0), 1);
    CHECK(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}
