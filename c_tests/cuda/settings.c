/* The environment. */
#include <stdlib.h>
#include <string.h>

#include "soft.h"

struct settings settings;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is(const char *name, const char *value)
{
    const char *set = getenv(name);

    return set != NULL && strcmp(set, value) == 0;
}

void settings_read(void)
{
    const char *devices = getenv("SOFT_CUDA_DEVICES"), *memory = getenv("SOFT_CUDA_MEMORY");
    const char *gbps = getenv("SOFT_CUDA_GBPS"), *faults = getenv("SOFT_CUDA_FAULTS");
    const char *across = getenv("SOFT_CUDA_ACROSS_GBPS");

    settings.devices = devices != NULL ? atoi(devices) : 1;
    if (settings.devices < 0 || settings.devices > MAX_DEVICES)
        settings.devices = MAX_DEVICES;
    settings.peers  = !is("SOFT_CUDA_PEERS", "n");
    settings.strict = is("SOFT_CUDA_STRICT", "abort");
    settings.fabric = is("SOFT_CUDA_FABRIC", "y");
    settings.concurrent = !is("SOFT_CUDA_CONCURRENT_MANAGED", "n");
    settings.ranks  = is("SOFT_CUDA_RANKS", "y");
    settings.unordered = is("SOFT_CUDA_UNORDERED", "y");
    settings.dmabuf = is("SOFT_CUDA_DMABUF", "y");
    settings.memory = memory != NULL ? strtoull(memory, NULL, 0) : 1UL << 30;
    settings.gbps   = gbps != NULL ? atof(gbps) : 0;
    settings.across_gbps = across != NULL ? atof(across) : settings.gbps;
    settings.counts = getenv("SOFT_CUDA_COUNTS");
    if (faults != NULL && soft_cuda_fault(faults) != 0)
        abort();
}
