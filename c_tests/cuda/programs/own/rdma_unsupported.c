/*
 * Adapters that register no memory by descriptors: one is tried for each device.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_HCA_DMABUF=n
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 0
#define EXPORTS  10
#include "rdma.h"
