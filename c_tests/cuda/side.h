/* One side of a test of the software libcuda. */
#ifndef SOFT_CUDA_SIDE_H
#define SOFT_CUDA_SIDE_H

#include <stdbool.h>

#include "../soft/sides.h"
#include "driver.h"

#define GOOD(call) EQUAL(call, CUDA_SUCCESS)

CUcontext begin(CUdevice device); /* cuInit, and the primary context made current */
CUdeviceptr device_bytes(size_t bytes);
void fill(CUdeviceptr to, size_t bytes, unsigned seed);  /* by a copy from the host */
bool holds(CUdeviceptr from, size_t bytes, unsigned seed); /* by a copy to the host */
void fill_host(void *to, size_t bytes, unsigned seed);
bool host_holds(const void *from, size_t bytes, unsigned seed);
int child_signal(void (*act)(void *), void *argument); /* the signal that ends a child doing this, or 0 */
unsigned long long buffer_id(CUdeviceptr pointer);
CUresult synchronized(CUdeviceptr from, CUdeviceptr to, size_t bytes); /* what a copy in a new stream ends with */
/* A stream stops at a gate until it is opened. */
struct gate {
    int ends[2];
};
void gate_post(struct gate *gate, CUstream stream);
void gate_open(struct gate *gate);
void send_all(int socket, const void *data, size_t bytes);
void receive_all(int socket, void *data, size_t bytes);
void send_fd(int socket, int fd);
int receive_fd(int socket);

#endif
