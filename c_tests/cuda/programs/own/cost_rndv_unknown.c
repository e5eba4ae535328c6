/*
 * Nothing is known of copies between devices: the threshold is that of host memory.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=auto SOFT_CUDA_GBPS=0.05
 * NETWORKS: sm
 */
#define CASES  {4096, 1}, {16384, 1}, {17000, 0}
#define PRINTS 0
#define TEXT   "by rendezvous"
#include "cost_rndv.h"
