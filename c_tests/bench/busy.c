//! Other load on a core: computes until it is killed, or until the program that started it ends.
//!
//! usage: busy INDEX (of the processor among those that this process may use, counted modulo their number)
#define _GNU_SOURCE
#include "figure.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: busy INDEX\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == 1) {
        return 1; /* it has ended before the line above */
    }
    pin_to(atoi(argv[1]));
    puts("busy");
    fclose(stdout);
    for (volatile unsigned turns = 0;; turns++) {
    }
}
