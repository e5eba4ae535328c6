/*
 * The user gives the threshold: costs decide nothing.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=1MBps UCX_RNDV_THRESH=8000 SOFT_CUDA_GBPS=0.05
 * NETWORKS: sm
 */
#define CASES  {4096, 1}, {7999, 1}, {8000, 0}, {20000, 0}
#define PRINTS 0
#define TEXT   "by rendezvous"
#include "cost_rndv.h"
