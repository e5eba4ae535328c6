/* What the programs share that measure the software Tofu by itself: two processes, threads with a VCQ each. */
#ifndef SOFT_TOFU_DIRECT_H
#define SOFT_TOFU_DIRECT_H

#include "side.h"

enum { DIRECT_THREADS = 48, DIRECT_SLOT = 4096 /* bytes of the buffer that are one thread's */ };

struct direct {
    int threads, count, window, size;
    bool each;   /* a local notice for each put, not for the last of a window only */
    bool private; /* memory that the other process cannot map */
    bool second; /* the process on node 1 */
    int socket;
};

/* One thread of one process, connected to its partner in the other. */
struct lane {
    const struct direct *direct;
    utofu_vcq_hdl_t vcq;
    struct hello own, peer;
    char *buffer; /* DIRECT_SLOT bytes, registered */
};

/* Reads the options, forks, runs `work` for all lanes of this process at once; returns ns from the first to the last. In the
 * second process it does not return. */
double direct_run(int argc, char **argv, struct direct *direct, void (*work)(struct lane *lane));

#endif
