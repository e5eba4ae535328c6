//! Local memory: see local.h.
#include "local.h"
#include "job.h"
#include "team.h"

#include <stdlib.h>
#include <string.h>

struct local local;

static void touch(int thread, long unused)
{
    void *memory;

    (void)unused;
    if (posix_memalign(&memory, 4096, local.length) != 0) {
        die("no memory for %zu bytes", local.length);
    }
    memset(memory, 0, local.length);
    local.of[thread] = memory;
}

void open_local(size_t length)
{
    local.length = length;
    memset(local.of, 0, sizeof(local.of));
    run_team(touch, 0);
}

void close_local(void)
{
    for (int i = 0; i < MAX_THREADS; i++) {
        free(local.of[i]);
    }
}
