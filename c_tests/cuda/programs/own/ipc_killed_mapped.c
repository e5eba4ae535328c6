/* As ipc_killed.c, with memory of cuMemMap, which is opened by a descriptor. */
#define SOURCE MAPPED0
#define OPENS "cuMemMap"
#define CLOSES "cuMemUnmap"
#include "ipc_killed.c"
