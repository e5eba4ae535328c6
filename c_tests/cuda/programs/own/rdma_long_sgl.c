/*
 * Puts and gets of scatter-gather lists by adapters that access memory of devices in place: few calls of the driver at
 * both sides.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#define UNCOPIED 1
#include "long_sgl.c"
