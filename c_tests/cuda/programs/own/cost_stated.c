/*
 * The options state that copies between devices are slow: nothing is measured of them, and messages go through pinned
 * host memory from the first one on.
 *
 * SETTINGS: UCX_CUDA_IPC_BW=1MBps UCX_PROTO_INFO=y
 * NEEDS: the software driver
 */
#define BY_DRIVER 0
#include "cost.h"
