/*
 * Copies between devices are ten times as fast as those from and to the host: messages are copied by the driver.
 *
 * SETTINGS: UCX_CUDA_IPC_BW=auto UCX_PROTO_INFO=y SOFT_CUDA_GBPS=0.2 SOFT_CUDA_ACROSS_GBPS=2
 */
#define BY_DRIVER MESSAGES
#include "cost.h"
