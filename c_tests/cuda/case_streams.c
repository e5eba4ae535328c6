/* Cases of streams and events. */
#include <stdatomic.h>
#include <string.h>

#include "cases.h"

enum { BYTES = 100000 };

/* A stream executes in order; an event is reached when what was posted before it has ended. */
void streams_active(int socket)
{
    CUdeviceptr one, two;
    CUstream stream, waiting;
    CUevent before, after;
    struct gate gate;

    (void)socket;
    begin(0);
    one = device_bytes(BYTES);
    two = device_bytes(BYTES);
    fill(one, BYTES, 1);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GOOD(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    GOOD(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
    GOOD(cuEventCreate(&after, CU_EVENT_DISABLE_TIMING));
    GOOD(cuEventQuery(before)); /* never recorded */
    GOOD(cuEventRecord(before, stream));
    gate_post(&gate, stream);
    GOOD(cuMemcpyDtoDAsync_v2(two, one, BYTES, stream));
    GOOD(cuEventRecord(after, stream));
    GOOD(cuStreamWaitEvent(waiting, after, 0));
    GOOD(cuMemsetD8Async(one, 0, BYTES, waiting)); /* too early, it would be copied */
    GOOD(cuEventSynchronize(before));
    GOOD(cuEventQuery(before));
    EQUAL(cuEventQuery(after), CUDA_ERROR_NOT_READY);
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EQUAL(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    GOOD(cuStreamSynchronize(waiting));
    GOOD(cuEventQuery(after));
    GOOD(cuStreamQuery(stream));
    CHECK(holds(two, BYTES, 1));
    GOOD(cuEventDestroy_v2(after));
    EQUAL(cuEventQuery(after), CUDA_ERROR_INVALID_HANDLE);
    GOOD(cuStreamDestroy_v2(stream));
    EQUAL(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
}

/* The default stream and blocking streams wait for each other; others do not. */
void default_active(int socket)
{
    CUdeviceptr one, two, three;
    CUstream blocking, free_stream;
    struct gate gate, second;

    (void)socket;
    begin(0);
    one = device_bytes(BYTES);
    two = device_bytes(BYTES);
    three = device_bytes(BYTES);
    fill(one, BYTES, 1);
    fill(two, BYTES, 2);
    GOOD(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    GOOD(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    gate_post(&gate, blocking);
    GOOD(cuMemcpyDtoDAsync_v2(one, two, BYTES, blocking));
    GOOD(cuMemcpyDtoDAsync_v2(two, one, BYTES, NULL)); /* too early, it would bring the bytes of 1 */
    for (int i = 0; i < 200; i++) {
        GOOD(cuMemsetD8Async(three, 1, BYTES, free_stream));
        GOOD(cuStreamSynchronize(free_stream));
    }
    EQUAL(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    GOOD(cuStreamSynchronize(NULL));
    CHECK(holds(two, BYTES, 2));
    gate_post(&second, free_stream);
    GOOD(cuMemsetD8_v2(one, 1, BYTES)); /* would never return */
    gate_open(&second);
    GOOD(cuStreamSynchronize(free_stream));
}

static atomic_int order, called, status_seen, called_within;

static void host_function(void *data)
{
    CUdeviceptr pointer;

    *(int *)data = atomic_fetch_add(&order, 1) + 1;
    atomic_store(&called_within, cuMemAlloc_v2(&pointer, 8));
}

static void stream_callback(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    *(int *)data = atomic_fetch_add(&order, 1) + 1;
    atomic_store(&status_seen, status);
    atomic_fetch_add(&called, 1);
}

void callbacks_active(int socket)
{
    CUstream stream;
    int first = 0, second = 0;

    (void)socket;
    begin(0);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    atomic_store(&status_seen, 77);
    GOOD(cuLaunchHostFunc(stream, host_function, &first));
    GOOD(cuStreamAddCallback(stream, stream_callback, &second, 0));
    GOOD(cuStreamSynchronize(stream));
    CHECK(first == 1 && second == 2);
    EQUAL(atomic_load(&called_within), CUDA_ERROR_NOT_PERMITTED);
    EQUAL(atomic_load(&status_seen), CUDA_SUCCESS);
    EQUAL(atomic_load(&called), 1);
}

/* An allocation ends after what its device was asked to do with it, and so do copies of pageable memory. */
void synchronous_active(int socket)
{
    static char host[BYTES];
    CUdeviceptr one, two;
    void *pinned;
    CUstream stream;

    (void)socket;
    begin(0);
    one = device_bytes(BYTES);
    two = device_bytes(BYTES);
    GOOD(cuMemAllocHost_v2(&pinned, BYTES));
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill(one, BYTES, 3);
    GOOD(cuMemcpyDtoHAsync_v2(host, one, BYTES, stream));
    CHECK(host_holds(host, BYTES, 3));
    fill_host(host, BYTES, 4);
    GOOD(cuMemcpyHtoDAsync_v2(one, host, BYTES, stream));
    memset(host, 0, BYTES);
    GOOD(cuMemcpyDtoDAsync_v2(two, one, BYTES, stream));
    GOOD(cuMemcpyDtoHAsync_v2(pinned, two, BYTES, stream));
    GOOD(cuMemFree_v2(two));
    GOOD(cuStreamSynchronize(stream));
    CHECK(host_holds(pinned, BYTES, 4));
}
