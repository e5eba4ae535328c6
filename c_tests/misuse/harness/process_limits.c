#define _GNU_SOURCE
#include "process_limits.h"

#include "check.h"

#include <sched.h>
#include <time.h>

resources_t progress_until_at_most(ucp_worker_h worker, resources_t limit, int seconds)
{
    time_t      end = time(NULL) + seconds;
    resources_t used;

    do {
        for (int i = 0; i < 1000; i++) {
            ucp_worker_progress(worker);
            sched_yield();
        }
        used = resources_in_use();
    } while (!resources_at_most(used, limit) && time(NULL) < end);
    return used;
}

static void want_one_at_most(const char *what, size_t limit, size_t used)
{
    char text[96];

    snprintf(text, sizeof(text), "%zu where at most %zu were expected", used, limit);
    check(__FILE__, __LINE__, what, used <= limit, text);
}

void want_at_most(resources_t limit, resources_t used)
{
    want_one_at_most("descriptors", limit.descriptors, used.descriptors);
    want_one_at_most("mappings", limit.mappings, used.mappings);
    want_one_at_most("bytes on the heap", limit.bytes, used.bytes);
}
