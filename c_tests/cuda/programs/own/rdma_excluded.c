/*
 * Options exclude that adapters access memory of devices.
 * SETTINGS: SOFT_CUDA_DMABUF=y UCX_IB_GPU_DIRECT_RDMA=n
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 0
#define EXPORTS  0
#include "rdma.h"
