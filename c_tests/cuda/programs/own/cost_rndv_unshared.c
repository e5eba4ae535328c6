/*
 * Memory of a pool that was not made to be shared: no peer can copy it, and the threshold is that of host memory.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=1TBps SOFT_CUDA_GBPS=0.05
 * NETWORKS: sm
 */
#define CASES  {4096, 1}, {16000, 1}, {20000, 0}
#define PRINTS 0
#define TEXT   "by rendezvous"
#define SOURCE UNSHARED_POOL
#define TABLE  "other memory of a CUDA device"
#include "cost_rndv.h"
