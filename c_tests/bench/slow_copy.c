/*
 * Preloaded: process_vm_readv() and process_vm_writev() take SLOW_COPY_NS nanoseconds longer per call, 1300 if that is
 * not set, as on machines where a system call costs that much more.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void spend(void)
{
    static long long nanoseconds = -1;

    if (nanoseconds < 0) {
        const char *text = getenv("SLOW_COPY_NS");

        nanoseconds = text == NULL ? 1300 : atoll(text);
    }
    for (long long end = now_ns() + nanoseconds; now_ns() < end;) {
    }
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
                         unsigned long remotes, unsigned long flags)
{
    spend();
    return syscall(SYS_process_vm_readv, pid, local, locals, remote, remotes, flags);
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long locals, const struct iovec *remote,
                          unsigned long remotes, unsigned long flags)
{
    spend();
    return syscall(SYS_process_vm_writev, pid, local, locals, remote, remotes, flags);
}
