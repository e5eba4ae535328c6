/*
 * Messages of lists of ten thousand pieces by an adapter that registers memory of devices: few calls of the driver.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "long_list.c"
