/*
 * Scatter-gather lists by adapters, where devices see what these have written after a flush only: short pieces of gets
 * are read into host memory, which takes no flush of each.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_CUDA_UNORDERED=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#include "long_sgl.c"
