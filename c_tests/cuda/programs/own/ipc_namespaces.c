/*
 * As ipc_descriptors.c, with processes in PID namespaces of their own: descriptors do not depend on process ids.
 *
 * SETTINGS: BED_NAMESPACE=each UCX_LOG_LEVEL=diag
 */
#include "ipc_descriptors.c"
