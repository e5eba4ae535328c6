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

/* ---- mappings; they are never removed: this is for tests ---- */

enum { AREAS = 1024 };
static struct area {
    struct question from;
    uint64_t born; /* of the process */
    char *base;    /* NULL: could not be mapped */
} areas[AREAS];
static int area_count;
static pthread_mutex_t area_lock = PTHREAD_MUTEX_INITIALIZER;

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

static char *find(uint32_t process, uint64_t address, uint64_t born)
{
    pid_t pid = atomic_load_explicit(&wire->processes[process].pid, memory_order_relaxed);
    struct question wanted;
    int i = 0;

    if (!ask(pid, address, &wanted))
        return NULL;
    while (i < area_count && !is_of(&areas[i], &wanted, born))
        i++;
    if (i == AREAS)
        return NULL;
    if (i == area_count)
        areas[area_count++] = (struct area){wanted, born, map(pid, &wanted)};
    return areas[i].base == NULL ? NULL : areas[i].base + (address - wanted.start);
}

char *area_here(struct soft_vcq *vcq, const struct region *region)
{
    struct seen *seen = &vcq->seen[((uintptr_t)region->stag / sizeof(struct wire_stag)) % SEEN];

    if (region->process == process_self())
        return (char *)region->address;
    if (!region->shared)
        return NULL;
    if (seen->stag != region->stag || seen->tag != region->tag) {
        uint64_t born = atomic_load_explicit(&wire->processes[region->process].born, memory_order_relaxed);

        pthread_mutex_lock(&area_lock);
        *seen = (struct seen){region->stag, region->tag, find(region->process, region->address - region->offset, born)};
        pthread_mutex_unlock(&area_lock);
    }
    return seen->base == NULL ? NULL : seen->base + region->offset;
}
