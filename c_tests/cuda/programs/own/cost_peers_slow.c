/*
 * Copies between devices take forty times as long as those from and to the host: what the driver has copied first shows
 * that, and later messages go through pinned host memory.
 *
 * SETTINGS: UCX_CUDA_IPC_BW=auto UCX_PROTO_INFO=y SOFT_CUDA_GBPS=2 SOFT_CUDA_ACROSS_GBPS=0.05
 */
#define BY_DRIVER 3
#include "cost.h"
