/*
 * Runs a command in which process_vm_readv() and process_vm_writev() fail with EPERM, as in a container without
 * ptrace rights.
 */
#define _GNU_SOURCE
#include "no_cma.h"

#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char         byte = 0;
    struct iovec here = {&byte, 1};

    if (argc < 2 || forbid_cma() != 0) {
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
