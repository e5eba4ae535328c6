//! The cores: see cores.h.
#define _GNU_SOURCE
#include "cores.h"
#include "job.h"

#include <sched.h>
#include <string.h>

static int cores[CPU_SETSIZE], count, shared;

/** Whether some other rank of any host has other cores than this one: then the launcher has bound them. */
static int bound_by_launcher(const cpu_set_t *own)
{
    struct gathered all = gather(own, sizeof(*own));
    int differ = 0;

    for (int rank = 0; rank < job.size; rank++) {
        differ |= memcmp(all.bytes + all.offset[rank], own, sizeof(*own)) != 0;
    }
    free_gathered(&all);
    /* The same answer on every rank: all of them share cores, or none does. */
    return largest(differ) > 0;
}

void find_cores(void)
{
    cpu_set_t allowed;
    int all = 0, first, share;

    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        die("sched_getaffinity");
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            cores[all++] = cpu;
        }
    }
    if (bound_by_launcher(&allowed) || job.locals == 1) {
        count = all;
        return;
    }
    shared = all < job.locals;
    share = all / job.locals > 0 ? all / job.locals : 1;
    first = job.local * share % all;
    memmove(cores, cores + first, (size_t)share * sizeof(*cores));
    count = share;
}

int core_count(void)
{
    return count;
}

int cores_are_shared(void)
{
    return shared;
}

void unpin(void)
{
    cpu_set_t all;

    CPU_ZERO(&all);
    for (int i = 0; i < count; i++) {
        CPU_SET(cores[i], &all);
    }
    if (sched_setaffinity(0, sizeof(all), &all) != 0) {
        die("sched_setaffinity");
    }
}

void bind_to_core(int index)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(cores[index % count], &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
        die("cannot bind thread %d to core %d", index, cores[index % count]);
    }
}
