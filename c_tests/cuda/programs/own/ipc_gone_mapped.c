/* As ipc_gone.c, with memory of cuMemMap, which is opened by a descriptor. */
#define SOURCE MAPPED0
#include "ipc_gone.c"
