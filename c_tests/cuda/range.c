/*
 * Ranges of addresses, in their order. Those of devices lie in one space without access; the first place that is free
 * is taken, so that what is freed and allocated again has its address again.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "soft.h"

static const size_t space_bytes = 1UL << 38;
static uintptr_t space;
static struct range *ranges;
static unsigned long long ids;

bool range_in_space(uintptr_t address)
{
    return space != 0 && address - space < space_bytes;
}

uintptr_t range_space_locked(size_t bytes, size_t alignment)
{
    uintptr_t start;

    if (space == 0) {
        void *mapped = mmap(NULL, space_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (mapped == MAP_FAILED)
            return 0;
        space = (uintptr_t)mapped;
    }
    start = (space + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    for (struct range *range = ranges; range != NULL; range = range->next) {
        if (!range_in_space(range->start) || range->start + range->room <= start)
            continue;
        if (range->start >= start + bytes)
            break;
        start = (range->start + range->room + alignment - 1) / alignment * alignment;
    }
    return start + bytes <= space + space_bytes ? start : 0;
}

struct range *range_add_locked(struct range one)
{
    struct range *range = malloc(sizeof(*range)), **at = &ranges;

    *range    = one;
    range->id = ++ids;
    /* A reservation precedes what is mapped at its start. */
    while (*at != NULL && ((*at)->start < one.start || ((*at)->start == one.start && (*at)->kind == RANGE_RESERVED)))
        at = &(*at)->next;
    range->next = *at;
    *at         = range;
    return range;
}

struct range *range_find_locked(uintptr_t address)
{
    for (struct range *range = ranges; range != NULL && range->start <= address; range = range->next)
        if (range->kind != RANGE_RESERVED && address - range->start < range->bytes)
            return range;
    return NULL;
}

struct range *range_reserved_locked(uintptr_t address)
{
    for (struct range *range = ranges; range != NULL && range->start <= address; range = range->next)
        if (range->kind == RANGE_RESERVED && address - range->start < range->bytes)
            return range;
    return NULL;
}

struct range *range_of_inode_locked(ino_t inode)
{
    for (struct range *range = ranges; range != NULL; range = range->next)
        if (range->kind == RANGE_IPC && range->inode == inode)
            return range;
    return NULL;
}

bool range_overlaps_locked(uintptr_t start, size_t bytes)
{
    for (struct range *range = ranges; range != NULL && range->start < start + bytes; range = range->next)
        if (range->kind != RANGE_RESERVED && range->start + range->bytes > start)
            return true;
    return false;
}

void range_remove_locked(struct range *range)
{
    struct range **at = &ranges;

    while (*at != range)
        at = &(*at)->next;
    *at = range->next;
    free(range);
}

bool range_is_device(const struct range *range)
{
    return range->memory != NULL;
}

/* The access to a pool is that to all its allocations, earlier ones too. */
bool range_is_of_pool_locked(CUmemoryPool pool)
{
    for (struct range *range = ranges; range != NULL; range = range->next)
        if (range->kind == RANGE_POOL && range->pool == pool)
            return true;
    return false;
}

void ranges_of_pool_allow(CUmemoryPool pool, const CUmemAccess_flags access[MAX_DEVICES])
{
    pthread_mutex_lock(&lock);
    for (struct range *range = ranges; range != NULL; range = range->next)
        if (range->kind == RANGE_POOL && range->pool == pool)
            memcpy(range->access, access, sizeof(range->access));
    pthread_mutex_unlock(&lock);
}

/* Ends what a context allocated. */
void ranges_forget_context(CUcontext context)
{
    struct range *range, *next;

    pthread_mutex_lock(&lock);
    for (range = ranges; range != NULL; range = next) {
        next = range->next;
        if (range->context != context || range->kind == RANGE_VMM || range->kind == RANGE_RESERVED)
            continue;
        if (range->memory != NULL)
            memory_drop_locked(range->memory);
        else if (range->kind != RANGE_REGISTERED)
            munmap((void *)range->start, range->room);
        range_remove_locked(range);
    }
    pthread_mutex_unlock(&lock);
}
