/*
 * The receiver of earlier messages has measured copies between the devices, which are fast: as a sender it sends
 * short messages by rendezvous.
 *
 * SETTINGS: UCX_PROTO_INFO=y UCX_CUDA_IPC_BW=auto SOFT_CUDA_GBPS=0.05 SOFT_CUDA_ACROSS_GBPS=2
 * NETWORKS: sm
 */
#define CASES  {512, 1}, {16384, 0}, {17000, 0}
#define PRINTS 1
#define TEXT   "(measured), through pinned host memory twice "
#define MEASURED 1
#include "cost_rndv.h"
