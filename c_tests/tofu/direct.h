/*
 * Shared by the benchmarks of the software Tofu, by uTofu (direct_*) and by UCP (ucp_*): two processes, with lanes from
 * one to the other, each with a VCQ or a worker of its own, driven by a thread each or all by one.
 */
#ifndef SOFT_TOFU_DIRECT_H
#define SOFT_TOFU_DIRECT_H

#include "side.h"

enum { DIRECT_THREADS = 48, DIRECT_SLOT = 4096 /* bytes of the buffer that one thread uses */ };

struct direct {
    int threads, count, window, size;
    bool each;   /* a local notice for each put, not for the last of a window only */
    bool private; /* memory that the other process cannot map */
    bool alone;   /* one thread drives all lanes: the scheduler is not measured */
    bool rotation; /* each lane in turn makes one step, in both processes in the same order */
    bool shared;  /* by UCP: all lanes share one worker, for several threads */
    bool second; /* the process on node 1 */
    int socket;
};

/* One end of a lane, connected to its other end in the other process. */
struct lane {
    const struct direct *direct;
    int done, waits; /* steps done */
    bool turn;       /* to send */
    /* by uTofu */
    utofu_vcq_hdl_t vcq;
    struct hello own, peer;
    char *buffer; /* DIRECT_SLOT bytes, registered */
    /* by UCP */
    struct ucp_lane *ucp;
};

/*
 * Functions that make and drive lanes. All are opened before one is connected; `settle`, if there is one, follows for
 * all of them at once.
 */
struct lane_ops {
    void (*open)(struct lane *lane, int number); /* sends its addresses to the other process, by the socket */
    void (*connect)(struct lane *lane);          /* receives those of the other */
    void (*settle)(struct lane *lanes, int count);
    bool (*step)(struct lane *lane); /* goes on without waiting; true: all is done */
};

/* By uTofu: the first two functions. */
void direct_open(struct lane *lane, int number);
void direct_connect(struct lane *lane);

/*
 * Reads the options, forks, has `ops` drive all lanes of this process at once; returns ns from the first to the last.
 * In the second process it does not return.
 */
double direct_run(int argc, char **argv, struct direct *direct, struct lane_ops ops);

#endif
