/*
 * Adapters of receivers read messages from memory of devices.
 * SETTINGS: SOFT_CUDA_DMABUF=y UCX_RNDV_SCHEME=get_zcopy
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#define EXPORTS  40
#include "rdma.h"
