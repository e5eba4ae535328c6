/*
 * The receiver of a message that an adapter moves between memory of devices is killed.
 * SETTINGS: SOFT_CUDA_DMABUF=y SOFT_HCA_FAULTS=delay_us=100000 UCX_RC_TIMEOUT=100ms
 * NETWORKS: rc
 * WAY: cuda_copy
 */
#define _GNU_SOURCE
#define SENDER_KILLED 0
#include "rdma_killed.h"
