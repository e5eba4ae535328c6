//! Which libucp this process runs on: its path from the process's own memory map, its version from itself.
#ifndef RUCP_MAPPED_UCP_H
#define RUCP_MAPPED_UCP_H

#include "check.h"

#include <dlfcn.h>
#include <limits.h>

/** Stores the path of the one libucp that is mapped here; fails if there is none or more than one. */
static inline void mapped_ucp_path(char path[PATH_MAX])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_MAX + 256];

    CHECK(maps != NULL, "cannot read /proc/self/maps");
    path[0] = '\0';
    while (fgets(line, sizeof(line), maps)) {
        char *file = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        if (file == NULL || strstr(strrchr(file, '/'), "/libucp") == NULL) {
            continue;
        }
        CHECK(path[0] == '\0' || strcmp(path, file) == 0, "two libucp are mapped: %s and %s", path, file);
        snprintf(path, PATH_MAX, "%s", file);
    }
    fclose(maps);
    CHECK(path[0] != '\0', "no libucp is mapped: this MPI does not run over UCX");
}

/**
 * Prints `# libucp: PATH (version V)` on rank 0. When the environment names the library that the run is
 * meant for (EXPECT_LIBUCP), every rank fails that has another one mapped.
 */
static inline void report_mapped_ucp(void)
{
    const char *expected = getenv("EXPECT_LIBUCP");
    const char *(*version)(void);
    char path[PATH_MAX], real[PATH_MAX];
    void *library;

    mapped_ucp_path(path);
    CHECK(expected == NULL || (realpath(expected, real) != NULL && strcmp(path, real) == 0),
          "the mapped libucp is %s, but this run is meant for %s", path, expected);
    library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    CHECK(library != NULL, "%s is mapped but not loaded: %s", path, dlerror());
    *(void **)&version = dlsym(library, "ucp_get_version_string");
    CHECK(version != NULL, "%s has no ucp_get_version_string", path);
    if (world_rank == 0) {
        printf("# libucp: %s (version %s)\n", path, version());
        fflush(stdout);
    }
    dlclose(library);
}

#endif
