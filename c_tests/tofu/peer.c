/* Whether a process on the wire lives. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

uint64_t peer_born(pid_t pid)
{
    char name[64], text[1024], *field;
    ssize_t length;
    int fd;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    /* field 22; the second one is a name that may hold anything, so count from its closing bracket */
    field = strrchr(text, ')');
    for (int i = 2; field != NULL && i < 22; i++) {
        field = strchr(field + 1, ' ');
        if (i == 2 && field != NULL && field[1] == 'Z')
            return 0;
    }
    return field == NULL ? 0 : strtoull(field, NULL, 10);
}

bool peer_alive(uint32_t process)
{
    /* Acquire: partner of the release in process_attach; `born` belongs to this pid. */
    int pid = atomic_load_explicit(&wire->processes[process].pid, memory_order_acquire);

    return pid != 0
           && (pid == getpid() || peer_born(pid) == atomic_load_explicit(&wire->processes[process].born, memory_order_relaxed));
}
