/*
 * Adapters access memory of devices that see what is written by them after a flush only.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_CUDA_UNORDERED=y
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define IN_PLACE 1
#define EXPORTS  40
#define FLUSHED
#include "rdma.h"
