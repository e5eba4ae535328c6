/*
 * Puts and gets of scatter-gather lists of pieces that are longer than what is copied by way of one buffer, by adapters
 * that access memory of devices in place.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#define UNCOPIED 1
#define PIECES   100
#define LENGTH   12000
#include "long_sgl.c"
