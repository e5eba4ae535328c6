/*
 * Copies between devices are stated to be slow: messages are eager as long as one record holds them.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=1MBps SOFT_CUDA_GBPS=2
 * NETWORKS: sm
 */
#define CASES  {4096, 1}, {20000, 1}, {30000, 0}
#define PRINTS 1
#define TEXT   "device 0 eager up to a record: by the driver 0.00 GB/s after "
#define REFUSED 20000
#include "cost_rndv.h"
