/*
 * Copies between devices are stated to be fast, and those from and to the host are slow: short messages go by
 * rendezvous, the shortest ones do not.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=1TBps SOFT_CUDA_GBPS=0.05
 * NETWORKS: sm
 */
#define CASES  {512, 1}, {2048, 0}, {4096, 0}, {20000, 0}
#define PRINTS 1
#define TEXT   "device 0 from 1024 bytes on by rendezvous: by the driver "
#define UNCOPIED 1
#include "cost_rndv.h"
