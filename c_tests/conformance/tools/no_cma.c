/*
 * Runs a command in which process_vm_readv() and process_vm_writev() fail with EPERM, as in a container without
 * ptrace rights.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int forbid(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    char         byte = 0;
    struct iovec here = {&byte, 1};

    if (argc < 2 || forbid() != 0) {
        perror("no_cma");
        return 6;
    }
    if (process_vm_readv(getpid(), &here, 1, &here, 1, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "no_cma: the filter does nothing\n");
        return 6;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 6;
}
