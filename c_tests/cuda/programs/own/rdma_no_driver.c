/*
 * A driver that has no descriptors for adapters is not asked for one.
 * SETTINGS: SOFT_CUDA_DMABUF=n
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 0
#define EXPORTS  0
#include "rdma.h"
