/*
 * Scatter-gather lists where adapters have no room for memory of devices.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_HCA_FAULTS=dmabuf_refused=1
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "sgl.c"
