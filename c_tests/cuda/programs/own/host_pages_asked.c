/*
 * No page of the host is remembered, where the processor may not access managed memory while devices run.
 * SETTINGS: SOFT_CUDA_CONCURRENT_MANAGED=n
 */
#define _GNU_SOURCE
#define REMEMBERED 0
#include "host_pages.h"
