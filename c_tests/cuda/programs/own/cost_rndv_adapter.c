/*
 * Adapters access memory of devices, and copies from and to the host are slow: short messages go by rendezvous.
 *
 * SETTINGS: UCX_PROTO_INFO=y SOFT_CUDA_DMABUF=y SOFT_CUDA_GBPS=0.05
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define CASES  {512, 1}, {16384, 0}, {20000, 0}
#define PRINTS 1
#define TEXT   "by rendezvous: by the adapter "
#define UNCOPIED 1
#define TABLE  "memory of a CUDA device that the adapter registers"
#include "cost_rndv.h"
