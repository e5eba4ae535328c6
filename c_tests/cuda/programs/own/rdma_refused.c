/*
 * Adapters that have no room for memory of devices: each allocation is tried once.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_HCA_FAULTS=dmabuf_refused=1
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 0
#define EXPORTS  40
#include "rdma.h"
