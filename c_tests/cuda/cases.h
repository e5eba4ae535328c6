/* The cases of test.c: each has an active side and a passive one. */
#ifndef SOFT_CUDA_CASES_H
#define SOFT_CUDA_CASES_H

#include "side.h"

void attributes_active(int socket);
void batch_active(int socket);
void callbacks_active(int socket);
void contexts_active(int socket);
void copies_active(int socket);
void default_active(int socket);
void devices_active(int socket);
void dmabuf_active(int socket);
void entries_active(int socket);
void error_active(int socket);
void forked_active(int socket);
void ipc_active(int socket);
void ipc_gone_active(int socket);
void ipc_gone_passive(int socket);
void ipc_passive(int socket);
void ipc_peers_active(int socket);
void ipc_peers_passive(int socket);
void late_active(int socket);
void limits_active(int socket);
void no_dmabuf_active(int socket);
void nothing(int socket);
void pools_active(int socket);
void pools_passive(int socket);
void processor_active(int socket);
void sticky_active(int socket);
void streams_active(int socket);
void strict_active(int socket);
void synchronous_active(int socket);
void vmm_access_active(int socket);
void vmm_active(int socket);
void vmm_passive(int socket);

#endif
