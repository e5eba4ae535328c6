/* As ipc_killed_receiver.c, with memory of a pool, which the receiver has opened by a descriptor. */
#define SOURCE POOL0
#include "ipc_killed_receiver.c"
