#include "wire_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

/* A thread that the child does not have may have held it. */
static void in_child(void)
{
    open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int soft_wire_file_open(const char *variable, void (*attach)(int fd))
{
    const char *name = getenv(variable);
    int fd;

    if (name == NULL || *name == '\0')
        return ENODEV;
    fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    pthread_mutex_lock(&open_lock);
    flock(fd, LOCK_EX); /* one creator; the kernel releases the lock if that process is killed */
    attach(fd);
    flock(fd, LOCK_UN);
    pthread_mutex_unlock(&open_lock);
    close(fd);
    return 0;
}
