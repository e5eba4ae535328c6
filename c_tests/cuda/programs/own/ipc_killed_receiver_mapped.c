/* As ipc_killed_receiver.c, with memory of cuMemMap, which the receiver has opened by a descriptor. */
#define SOURCE MAPPED0
#include "ipc_killed_receiver.c"
