//! Which libucp this process runs on: its path from the process's own memory map, its version from itself. Or the proof
//! that none carries its messages.
#ifndef RUCP_MAPPED_UCP_H
#define RUCP_MAPPED_UCP_H

#include "check.h"

#include <dlfcn.h>
#include <limits.h>

/** Stores the path of the one libucp that is mapped here, empty if there is none; fails if there are more. */
static inline void find_mapped_ucp(char path[PATH_MAX])
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
}

/** Stores the path of the one libucp that is mapped here; fails if there is none or more than one. */
static inline void mapped_ucp_path(char path[PATH_MAX])
{
    find_mapped_ucp(path);
    CHECK(path[0] != '\0', "no libucp is mapped: this MPI does not run over UCX");
}

/** Whether the code at this address is of a file of that name. */
static inline int is_code_of(const void *code, const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[PATH_MAX + 256], *file;
    unsigned long begin, end;
    int found = 0;

    CHECK(maps != NULL, "cannot read /proc/self/maps");
    while (fgets(line, sizeof(line), maps)) {
        line[strcspn(line, "\n")] = '\0';
        file = strrchr(line, '/');
        found |= file != NULL && strcmp(file + 1, name) == 0 && sscanf(line, "%lx-%lx", &begin, &end) == 2 &&
                 (unsigned long)code >= begin && (unsigned long)code < end;
    }
    fclose(maps);
    return found;
}

/**
 * For a run in which no UCX carries messages. Some MPIs map a libucp nevertheless, because they are linked with it:
 * then every function of it that sends must be that of c_tests/bench/no_ucp.c, which ends the process.
 */
static inline void report_no_ucp(void)
{
    void *process = dlopen(NULL, RTLD_LAZY), *send = process != NULL ? dlsym(process, "ucp_tag_send_nbx") : NULL;
    char path[PATH_MAX];

    CHECK(send != NULL && is_code_of(send, "no_ucp.so"), "UCX could send: no_ucp.so is not preloaded");
    dlclose(process);
    find_mapped_ucp(path);
    if (world_rank == 0) {
        printf("# no libucp: %s is mapped%s\n", path[0] ? path : "none", path[0] ? ", and must not send" : "");
        fflush(stdout);
    }
}

/**
 * Prints `# libucp: PATH (version V)` on rank 0. When the environment names the library that the run is
 * meant for (EXPECT_LIBUCP), every rank fails that has another one mapped, or, for `none`, where UCX could send.
 */
static inline void report_mapped_ucp(void)
{
    const char *expected = getenv("EXPECT_LIBUCP");
    const char *(*version)(void);
    char path[PATH_MAX], real[PATH_MAX];
    void *library;

    if (expected != NULL && strcmp(expected, "none") == 0) {
        report_no_ucp();
        return;
    }
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
