/* As ipc_gone.c, with memory of a pool, which is opened by a descriptor. */
#define SOURCE POOL0
#include "ipc_gone.c"
