/*
 * Tests of the software libcuda itself.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 */
#include <string.h>

#include "cases.h"

/* `settings`: "NAME=value ..."; SOFT_CUDA_ is put in front of the names. */
static const struct soft_case cases[] = {
    {"processor", processor_active, nothing, ""},
    {"copies", copies_active, nothing, "DEVICES=2 PEERS=n"},
    {"batch", batch_active, nothing, ""},
    {"attributes", attributes_active, nothing, ""},
    {"limits", limits_active, nothing, "MEMORY=10485760"},
    {"contexts", contexts_active, nothing, "DEVICES=2"},
    {"strict", strict_active, nothing, "STRICT=abort"},
    {"forked", forked_active, nothing, ""},
    {"devices", devices_active, nothing, "DEVICES=3 PEERS=n RANKS=y"},
    {"entries", entries_active, nothing, ""},
    {"streams", streams_active, nothing, ""},
    {"default", default_active, nothing, ""},
    {"callbacks", callbacks_active, nothing, ""},
    {"synchronous", synchronous_active, nothing, "GBPS=0.01"},
    {"sticky", sticky_active, nothing, "DEVICES=2"},
    {"error", error_active, nothing, ""},
    {"late", late_active, nothing, ""},
    {"ipc", ipc_active, ipc_passive, ""},
    {"ipc_gone", ipc_gone_active, ipc_gone_passive, ""},
    {"ipc_peers", ipc_peers_active, ipc_peers_passive, "DEVICES=2 PEERS=n"},
    {"vmm", vmm_active, vmm_passive, ""},
    {"vmm_access", vmm_access_active, nothing, ""},
    {"dmabuf", dmabuf_active, nothing, "DMABUF=y"},
    {"no_dmabuf", no_dmabuf_active, nothing, ""},
    {"pools", pools_active, pools_passive, ""},
};

static void apply(const char *settings, int side)
{
    char name[64] = "SOFT_CUDA_", value[64];
    int length;

    (void)side;
    while (sscanf(settings, "%50[^=]=%60s%n", name + 10, value, &length) == 2) {
        setenv(name, value, 1);
        settings += length + (settings[length] == ' ');
    }
}

int main(int argc, char **argv)
{
    return soft_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), (struct soft_stage){apply, NULL});
}
