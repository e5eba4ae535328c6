/* The model of time: how long copies take. */
#include <errno.h>
#include <time.h>

#include "soft.h"

/* To a device, from one, and between or within devices. */
enum { IN, OUT, ACROSS, DIRECTIONS };

static double links[MAX_DEVICES][DIRECTIONS]; /* the end of the last copy of each device, ns */
static pthread_mutex_t links_lock = PTHREAD_MUTEX_INITIALIZER;

double pace_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static bool is_of_device(uintptr_t address)
{
    struct range *range;
    bool is;

    pthread_mutex_lock(&lock);
    range = range_find_locked(address);
    is    = range != NULL && range_is_device(range);
    pthread_mutex_unlock(&lock);
    return is;
}

static int direction(const struct operation *operation)
{
    if (operation->kind == OP_SET || !is_of_device(operation->from))
        return IN;
    return is_of_device(operation->to) ? ACROSS : OUT;
}

static void wait_until(double ns)
{
    struct timespec time = {(time_t)(ns / 1e9), (long)(ns - (double)(time_t)(ns / 1e9) * 1e9)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

static double later(double one, double other)
{
    return one > other ? one : other;
}

void pace_copy(CUdevice device, const struct operation *operation, double *ended)
{
    int way      = direction(operation);
    double *link = &links[device][way], gbps = way == ACROSS ? settings.across_gbps : settings.gbps;

    pthread_mutex_lock(&links_lock);
    *link  = later(later(operation->posted, *ended), *link) + (double)operation->bytes / gbps;
    *ended = *link;
    pthread_mutex_unlock(&links_lock);
    wait_until(*ended);
}
