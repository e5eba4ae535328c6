/*
 * Adapters register no memory of devices: when one has refused it, the threshold is that of host memory.
 *
 * SETTINGS: UCX_PROTO_INFO=y SOFT_CUDA_DMABUF=y SOFT_HCA_DMABUF=n SOFT_CUDA_GBPS=0.05
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define CASES  {300000, 0}, {4096, 1}, {20000, 1}
#define PRINTS 0
#define TEXT   "by rendezvous"
#define TABLE  "other memory of a CUDA device"
#include "cost_rndv.h"
