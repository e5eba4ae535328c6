/* The wire file: creating and mapping it, and its locks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../soft/lock.h"
#include "../soft/wire_file.h"
#include "wire.h"

#define WIRE_MAGIC \
    (0x3130756674666f73ULL + sizeof(struct wire) + \
     sizeof(struct wire_node)) /* another layout is another version of the wire */

struct wire *wire;

void wire_lock(pthread_mutex_t *lock)
{
    /* A killed holder leaves entries either absent or complete: the field that makes an entry valid is written last. */
    if (soft_lock(lock))
        atomic_fetch_add_explicit(&wire->locks_recovered, 1, memory_order_relaxed);
}

void wire_make_node(uint32_t number)
{
    struct wire_node *node = wire_node(number);

    if (atomic_load_explicit(&node->made, memory_order_relaxed) != 0)
        return; /* under the wire's lock, which orders it */
    for (int i = 0; i < ATOMIC_LOCKS; i++)
        soft_lock_make(&node->atomic_locks[i]);
    for (int i = 0; i < NODE_CQS; i++)
        soft_lock_make(&node->cqs[i].lock);
    /* Release: partner of the acquire in a post, which takes an atomic's lock without the wire's. */
    atomic_store_explicit(&node->made, 1, memory_order_release);
}

/* The file is locked. Its size shows whether a process has begun it, its magic whether it is complete. */
static struct wire *map_wire(int fd, bool *made)
{
    struct wire layout = {0}, *map = MAP_FAILED;

    if (pread(fd, &layout, sizeof(layout), 0) != sizeof(layout) || layout.magic != WIRE_MAGIC) {
        *made = true;
        layout = (struct wire){0};
        layout.size = setup_size(&layout);
        if (layout.size == 0 || ftruncate(fd, 0) != 0 || ftruncate(fd, layout.size) != 0
            || pwrite(fd, &layout, sizeof(layout), 0) != sizeof(layout))
            return NULL;
    }
    map = mmap(NULL, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED)
        return NULL;
    madvise(map, layout.size, MADV_DONTDUMP); /* a core file must not hold gigabytes of holes */
    if (*made) {
        soft_lock_make(&map->lock);
        map->magic = WIRE_MAGIC;
    }
    return map;
}

/* The file is locked. */
static void attach_wire(int fd)
{
    const char *faults = getenv("SOFT_TOFU_FAULTS");
    bool made = false;

    if (wire != NULL)
        return;
    /* Release: partner of the acquire in wire_open; the layout is there before the pointer. */
    __atomic_store_n(&wire, map_wire(fd, &made), __ATOMIC_RELEASE);
    if (made && wire != NULL && faults != NULL && fault_set(faults) != 0)
        fprintf(stderr, "soft Tofu: SOFT_TOFU_FAULTS=%s is not understood\n", faults);
}

int wire_open(void)
{
    int error;

    /* Acquire: partner of the release in attach_wire. */
    if (__atomic_load_n(&wire, __ATOMIC_ACQUIRE) != NULL)
        return 0;
    error = soft_wire_file_open("SOFT_TOFU_WIRE", attach_wire);
    return error != 0 ? error : wire == NULL ? ENODEV : 0;
}
