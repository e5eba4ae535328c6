/*
 * Lists of pieces of all kinds of memory by adapters, where these can register memory of devices.
 * SETTINGS: SOFT_CUDA_DMABUF=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#include "iov.c"
