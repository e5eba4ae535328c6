/* As ipc_killed.c, with memory of a pool, which is opened by a descriptor of the pool. */
#define SOURCE POOL0
#define OPENS "cuMemPoolImportPointer"
#define CLOSES "cuMemPoolDestroy"
#include "ipc_killed.c"
