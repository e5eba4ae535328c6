//! The costs of a libucp on one machine: one program, bound at run time to the libucp that the loader finds.
//!
//! usage: ucpbench [--quick] [--smallest BYTES] [--largest BYTES] [--limit SECONDS] WORKLOAD [ARGUMENTS]
//! (workloads: see workload.h). It ends after SECONDS, 300 by default.
//! Standard output gets `# libucp: PATH (version V)`, then a line per figure, `NAME X VALUE UNIT`, where X is a size, a
//! number of threads or endpoints, or `-`. For features that a library lacks there is a line `# unsupported: NAME`.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

static const struct {
    const char *name;
    int (*run)(const struct effort *, int, char **);
} workloads[] = {
    {"handoff", run_machine},   {"limits", run_machine},  {"tag", run_sizes},
    {"am", run_sizes},          {"stream", run_sizes},    {"first", run_first},
    {"rma", run_remote},        {"targets", run_remote},  {"atomics", run_remote},
    {"threads", run_threads},   {"senders", run_senders}, {"gups", run_gups},
    {"startup", run_startup},   {"endpoints", run_startup}, {"clients", run_clients},
    {"processes", run_processes}, {"regions", run_regions}, {"growth", run_growth},
    {"instructions", run_instructions}, {"cuda", run_cuda}, {"scale", run_scale},
    {"lists", run_lists},
};

static void name_library(void)
{
    Dl_info library;
    char *path;

    if (dladdr((void *)ucp_worker_progress, &library) == 0 || (path = realpath(library.dli_fname, NULL)) == NULL) {
        die("which libucp is this?");
    }
    printf("# libucp: %s (version %s)\n", path, ucp_get_version_string());
    fflush(stdout);
    free(path);
}

static int usage(void)
{
    fprintf(stderr, "usage: ucpbench [--quick] [--smallest BYTES] [--largest BYTES] [--limit SECONDS] "
                    "WORKLOAD [ARGUMENTS]; workloads:");
    for (size_t i = 0; i < sizeof(workloads) / sizeof(*workloads); i++) {
        fprintf(stderr, " %s", workloads[i].name);
    }
    fputc('\n', stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct effort effort = {.batches = 11, .batch_seconds = 2e-3, .largest = 4 << 20};
    int next = 1;

    setpgid(0, 0); /* a process group of its own: a failure kills the other process, and no process outside (see die) */
    for (; next < argc && strncmp(argv[next], "--", 2) == 0; next++) {
        if (strcmp(argv[next], "--quick") == 0) {
            effort.quick = 1;
            effort.batches = 3;
            effort.batch_seconds = 2e-4;
        } else if (strcmp(argv[next], "--smallest") == 0 && next + 1 < argc) {
            effort.smallest = strtoull(argv[++next], NULL, 0);
        } else if (strcmp(argv[next], "--largest") == 0 && next + 1 < argc) {
            effort.largest = strtoull(argv[++next], NULL, 0);
        } else if (strcmp(argv[next], "--limit") == 0 && next + 1 < argc) {
            limit_seconds = (unsigned)strtoul(argv[++next], NULL, 0);
        } else {
            return usage();
        }
    }
    for (size_t i = 0; next < argc && i < sizeof(workloads) / sizeof(*workloads); i++) {
        if (strcmp(argv[next], workloads[i].name) == 0) {
            name_library();
            return workloads[i].run(&effort, argc - next, argv + next);
        }
    }
    return usage();
}
