/*
 * Pages of the host are remembered, where devices share managed memory with the processor at any time.
 * NEEDS: the software driver
 */
#define _GNU_SOURCE
#define REMEMBERED 1
#include "host_pages.h"
