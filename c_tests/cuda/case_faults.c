/* Cases of injected faults. */
#include <sched.h>

#include "cases.h"

enum { BYTES = 5000 };

/* An error that is sticky fails all calls of its context until that is reset, and no other context's. */
void sticky_active(int socket)
{
    CUcontext other_context;
    CUdeviceptr one, two, more;
    CUstream stream;
    CUevent event;

    (void)socket;
    begin(0);
    one = device_bytes(BYTES);
    two = device_bytes(BYTES);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    GOOD(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    soft_cuda_fault("fail_nth=2");
    GOOD(synchronized(two, one, BYTES));
    GOOD(cuMemcpyAsync(two, one, BYTES, stream));
    EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(cuMemAlloc_v2(&more, 8), CUDA_ERROR_ILLEGAL_ADDRESS);
    EQUAL(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    GOOD(cuDevicePrimaryCtxRetain(&other_context, 1));
    GOOD(cuCtxPushCurrent_v2(other_context));
    more = device_bytes(BYTES);
    fill(more, BYTES, 5);
    CHECK(holds(more, BYTES, 5));
    GOOD(cuCtxPopCurrent_v2(NULL));
    GOOD(cuDevicePrimaryCtxReset_v2(0));
    fill(device_bytes(BYTES), BYTES, 6);
}

/* Another error is returned once. */
void error_active(int socket)
{
    CUdeviceptr one, two;
    CUstream stream;

    (void)socket;
    begin(0);
    one = device_bytes(BYTES);
    two = device_bytes(BYTES);
    fill(one, BYTES, 1);
    fill(two, BYTES, 2);
    GOOD(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    soft_cuda_fault("fail_code=999,fail_nth=1");
    GOOD(cuMemcpyAsync(two, one, BYTES, stream));
    EQUAL(cuStreamSynchronize(stream), CUDA_ERROR_UNKNOWN);
    GOOD(cuStreamSynchronize(stream));
    CHECK(holds(two, BYTES, 2));
    GOOD(cuMemcpyAsync(two, one, BYTES, stream));
    GOOD(cuStreamSynchronize(stream));
    CHECK(holds(two, BYTES, 1));
}

/* Whether a copy into empty managed memory has begun. It goes on meanwhile: a race that is meant. */
__attribute__((no_sanitize("thread"))) static bool has_begun(const volatile char *memory)
{
    return memory[0] != 0;
}

/* The second copy ends before the first, which is late: this process does not wait for it. */
void late_active(int socket)
{
    CUdeviceptr one, two, three;
    CUstream late, early;
    CUevent event;

    (void)socket;
    begin(0);
    one   = device_bytes(BYTES);
    GOOD(cuMemAllocManaged(&two, BYTES, CU_MEM_ATTACH_GLOBAL));
    three = device_bytes(BYTES);
    fill(one, BYTES, 1);
    GOOD(cuStreamCreate(&late, CU_STREAM_NON_BLOCKING));
    GOOD(cuStreamCreate(&early, CU_STREAM_NON_BLOCKING));
    GOOD(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    soft_cuda_fault("late_us=3600000000,late_nth=2");
    GOOD(cuMemcpyAsync(three, one, BYTES, early));
    GOOD(cuStreamSynchronize(early));
    GOOD(cuMemcpyAsync(two, one, BYTES, late));
    GOOD(cuEventRecord(event, late));
    while (!has_begun((void *)(uintptr_t)two)) /* its bytes move before it ends */
        sched_yield();
    GOOD(cuMemcpyAsync(three, one, BYTES, early));
    GOOD(cuStreamSynchronize(early));
    EQUAL(cuEventQuery(event), CUDA_ERROR_NOT_READY); /* for an hour */
}
