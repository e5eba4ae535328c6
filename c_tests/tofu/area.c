/*
 * Memory of other processes that this one can map, because it is a shared mapping there: then a put is a store, as
 * within one process. Other memory is accessed by process_vm_writev/readv (copy.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tofu.h"

/*
 * The request of /proc/PID/maps (Linux 6.11) for the mapping of an address. Declared here, because older headers lack
 * it.
 */
struct question {
    uint64_t size, query_flags, address, start, end, flags, page_size, offset, inode;
    uint32_t major, minor, name_size, build_id_size;
    uint64_t name, build_id;
};
#define QUESTION _IOWR('f', 17, struct question)
enum { IS_WRITABLE = 2, IS_SHARED = 8 };

static bool ask(pid_t pid, uint64_t address, struct question *answer)
{
    char name[64];
    int fd, error;

    snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    *answer = (struct question){.size = sizeof(*answer), .address = address};
    error = ioctl(fd, QUESTION, answer);
    close(fd);
    return error == 0 && (answer->flags & IS_SHARED) && (answer->flags & IS_WRITABLE);
}

bool area_is_shared(const void *address, size_t size)
{
    struct question answer;

    return ask(getpid(), (uintptr_t)address, &answer) && (uintptr_t)address + size <= answer.end;
}

/* ---- mappings, each until its registration or the process that registered has gone ---- */

enum { AREAS = 1024 };
static struct area {
    struct question from;
    uint64_t born; /* of the process */
    uint32_t process;
    const struct wire_stag *stag; /* the last registration that it was found for */
    uint64_t tag;
    char *base; /* NULL: could not be mapped */
} areas[AREAS];
static int area_count;
static pthread_mutex_t area_lock = PTHREAD_MUTEX_INITIALIZER;
/* What VCQs have looked up is good in the epoch that they did so in: when something is unmapped the next one begins. */
static _Atomic uint64_t area_epoch;

void area_in_child(void)
{
    area_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    area_count = 0; /* a thread of the parent may have been changing them; what is mapped stays so */
}

static bool is_of(const struct area *area, const struct question *wanted, uint64_t born)
{
    return area->born == born && area->from.start == wanted->start && area->from.end == wanted->end &&
           area->from.inode == wanted->inode && area->from.offset == wanted->offset &&
           area->from.minor == wanted->minor && area->from.major == wanted->major;
}

static char *map(pid_t pid, const struct question *wanted)
{
    char name[96], *base;
    int fd;

    snprintf(name, sizeof(name), "/proc/%d/map_files/%llx-%llx", (int)pid, (unsigned long long)wanted->start,
             (unsigned long long)wanted->end);
    fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL; /* not permitted, or the process has ended */
    base = mmap(NULL, wanted->end - wanted->start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, wanted->offset);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

static bool is_stale(const struct area *area)
{
    return !peer_alive(area->process)
           || atomic_load_explicit(&wire->processes[area->process].born, memory_order_relaxed) != area->born
           || atomic_load_explicit(&area->stag->tag, memory_order_acquire) != area->tag;
}

/* Whether another VCQ of this process is at registered memory, which may be in any area. */
static bool others_touch(const struct soft_vcq *own)
{
    for (int i = 0; i < NODE_VCQS; i++) {
        struct soft_vcq *vcq = &vcqs[i];

        if (vcq != own && atomic_load_explicit(&vcq->live, memory_order_acquire) != 0
            && atomic_load_explicit(&vcq->shared->touching, memory_order_seq_cst) != 0)
            return true;
    }
    return false;
}

/* Unmaps what is stale, unless other threads may be at it. */
static void sweep(const struct soft_vcq *own)
{
    int stale = 0;

    for (int i = 0; i < area_count; i++)
        stale += is_stale(&areas[i]);
    if (stale == 0)
        return;
    /* Sequentially consistent, both, as the two in area_here and stag_hold: either a thread that goes to an area that
     * it has looked up sees the new epoch, or we see that it touches something. */
    atomic_fetch_add_explicit(&area_epoch, 1, memory_order_seq_cst);
    if (others_touch(own))
        return;
    for (int i = area_count - 1; i >= 0; i--) {
        if (!is_stale(&areas[i]))
            continue;
        if (areas[i].base != NULL)
            munmap(areas[i].base, areas[i].from.end - areas[i].from.start);
        areas[i] = areas[--area_count];
    }
}

static char *find(const struct soft_vcq *own, const struct region *region, uint64_t born)
{
    pid_t pid = atomic_load_explicit(&wire->processes[region->process].pid, memory_order_relaxed);
    uint64_t address = region->address - region->offset;
    struct question wanted;
    int i = 0;

    if (!ask(pid, address, &wanted))
        return NULL;
    while (i < area_count && !is_of(&areas[i], &wanted, born))
        i++;
    if (i == area_count) {
        sweep(own);
        i = area_count;
        if (i == AREAS)
            return NULL;
        areas[area_count++] =
            (struct area){.from = wanted, .born = born, .process = region->process, .base = map(pid, &wanted)};
    }
    areas[i].stag = region->stag;
    areas[i].tag  = region->tag;
    return areas[i].base == NULL ? NULL : areas[i].base + (address - wanted.start);
}

void area_tidy(const struct soft_vcq *vcq)
{
    pthread_mutex_lock(&area_lock);
    sweep(vcq);
    pthread_mutex_unlock(&area_lock);
}

char *area_here(struct soft_vcq *vcq, const struct region *region)
{
    struct seen *seen = &vcq->seen[((uintptr_t)region->stag / sizeof(struct wire_stag)) % SEEN];

    if (region->process == process_self())
        return (char *)region->address;
    if (!region->shared)
        return NULL;
    /* Sequentially consistent: see sweep. */
    if (seen->stag != region->stag || seen->tag != region->tag
        || seen->epoch != atomic_load_explicit(&area_epoch, memory_order_seq_cst)) {
        uint64_t born = atomic_load_explicit(&wire->processes[region->process].born, memory_order_relaxed);
        char *base;

        pthread_mutex_lock(&area_lock);
        base  = find(vcq, region, born);
        *seen = (struct seen){region->stag, region->tag, atomic_load_explicit(&area_epoch, memory_order_relaxed), base};
        pthread_mutex_unlock(&area_lock);
    }
    return seen->base == NULL ? NULL : seen->base + region->offset;
}
