/* The processes on the wire: their liveness, copies into and out of their memory, signals to their descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire.h"

/* Cached state of the other processes, by index of the HCA. */
static struct {
    uint32_t id; /* of the HCA that the pidfd is for */
    int pidfd;   /* -1: it was dead already */
} peers[WIRE_HCAS];

/* Duplicates of descriptors of other processes, by tag; a newer one takes the place of an older. */
enum { SIGNALS = 1024 };
static struct {
    uint32_t tag;
    uint32_t id; /* of the HCA whose process has the descriptor */
    int fd;
} signals[SIGNALS];

static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;

/* A thread that the child does not have may have held the lock and been changing the tables: they begin empty. */
static void in_child(void)
{
    memset(peers, 0, sizeof(peers));
    memset(signals, 0, sizeof(signals));
    peer_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

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

static bool pidfd_alive(int pidfd)
{
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};

    return pidfd >= 0 && poll(&wait, 1, 0) == 0;
}

/* Closes the descriptors of dead processes: a process that sees many come and go keeps few. peer_lock held. */
static void forget_dead(void)
{
    for (int i = 0; i < WIRE_HCAS; i++) {
        if (peers[i].id == 0 || peers[i].pidfd < 0 || pidfd_alive(peers[i].pidfd))
            continue;
        close(peers[i].pidfd);
        peers[i].pidfd = -1;
        for (int s = 0; s < SIGNALS; s++) {
            if (signals[s].tag != 0 && signals[s].id == peers[i].id) {
                close(signals[s].fd);
                signals[s].tag = 0;
            }
        }
    }
}

/* peer_lock held. */
static int peer_pidfd(const struct wire_hca *hca)
{
    uint32_t index = hca->slot.id % WIRE_HCAS;

    if (peers[index].id != hca->slot.id) {
        forget_dead();
        if (peers[index].id != 0 && peers[index].pidfd >= 0)
            close(peers[index].pidfd);
        peers[index].id = hca->slot.id;
        peers[index].pidfd = syscall(SYS_pidfd_open, hca->pid, 0);
        if (peers[index].pidfd >= 0 && peer_born(hca->pid) != hca->born) {
            close(peers[index].pidfd); /* the number belongs to another process by now */
            peers[index].pidfd = -1;
        }
    }
    return peers[index].pidfd;
}

bool peer_alive(const struct wire_hca *hca)
{
    bool alive;

    if (hca == NULL || hca->slot.id == 0)
        return false;
    if (hca->pid == getpid())
        return true;
    pthread_mutex_lock(&peer_lock);
    alive = pidfd_alive(peer_pidfd(hca));
    pthread_mutex_unlock(&peer_lock);
    return alive;
}

void peer_signal(const struct wire_hca *hca, int fd, uint32_t tag, const void *message, size_t length)
{
    if (hca->pid == getpid()) {
        send(fd, message, length, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    pthread_mutex_lock(&peer_lock);
    if (signals[tag % SIGNALS].tag != tag) {
        int pidfd = peer_pidfd(hca), copy = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);

        if (copy >= 0) {
            if (signals[tag % SIGNALS].tag != 0)
                close(signals[tag % SIGNALS].fd);
            signals[tag % SIGNALS].tag = tag;
            signals[tag % SIGNALS].id = hca->slot.id;
            signals[tag % SIGNALS].fd = copy;
        }
    }
    if (signals[tag % SIGNALS].tag == tag)
        send(signals[tag % SIGNALS].fd, message, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    pthread_mutex_unlock(&peer_lock);
}

bool peer_write(const struct wire_hca *hca, const struct iovec *local, int locals, const struct iovec *remote,
                int remotes, size_t length)
{
    return length == 0 || process_vm_writev(hca->pid, local, locals, remote, remotes, 0) == (ssize_t)length;
}

bool peer_read(const struct wire_hca *hca, const struct iovec *local, int locals, const struct iovec *remote,
               int remotes, size_t length)
{
    return length == 0 || process_vm_readv(hca->pid, local, locals, remote, remotes, 0) == (ssize_t)length;
}
