/*
 * Scatter-gather lists by adapters that access memory of devices in place.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "sgl.c"
