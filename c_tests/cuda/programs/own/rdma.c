/*
 * Adapters access memory of devices, which the driver gives them by descriptors.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#define EXPORTS  40
#include "rdma.h"
