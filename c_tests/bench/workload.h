//! Workloads: the measurements of ucpbench, and their effort.
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stddef.h>

enum { MAX_BATCHES = 15 };

/** Duration of the measurement. A figure is the median of `batches` batches of about `batch_seconds` each. */
struct effort {
    int quick;
    int batches;
    double batch_seconds;
    size_t smallest, largest; /* messages */
};

/** Whether this power of two is among the sizes to measure: all of them, or a few with --quick. */
static inline int measures_size(const struct effort *effort, size_t size)
{
    return size >= effort->smallest && size <= effort->largest &&
           (!effort->quick || size == 8 || size == 256 || size == 8192 || size == 65536 || size == 1 << 20);
}

/** Each gets the words of the command line from its own name on; returns the exit status. */
int run_machine(const struct effort *effort, int argc, char **argv);      /* handoff, limits */
int run_sizes(const struct effort *effort, int argc, char **argv);        /* tag, am, stream */
int run_first(const struct effort *effort, int argc, char **argv);        /* first */
int run_remote(const struct effort *effort, int argc, char **argv);       /* rma, targets, atomics */
int run_threads(const struct effort *effort, int argc, char **argv);      /* threads OPERATION WORKERS THREADS */
int run_senders(const struct effort *effort, int argc, char **argv);      /* senders OPERATION NUMBER */
int run_gups(const struct effort *effort, int argc, char **argv);         /* gups */
int run_startup(const struct effort *effort, int argc, char **argv);      /* startup, endpoints NUMBER PEERS */
int run_clients(const struct effort *effort, int argc, char **argv);      /* clients [--listener] [NUMBER] */
int run_processes(const struct effort *effort, int argc, char **argv);    /* processes [--loaded] NUMBER */
int run_lists(const struct effort *effort, int argc, char **argv);        /* lists */
int run_regions(const struct effort *effort, int argc, char **argv);      /* regions NUMBER */
int run_growth(const struct effort *effort, int argc, char **argv);       /* growth KIND NUMBER */
int run_scale(const struct effort *effort, int argc, char **argv);        /* scale [--real|--count] NUMBER */
int run_instructions(const struct effort *effort, int argc, char **argv); /* instructions */
/** cuda devices; cuda copies|one|two DEVICE DEVICE: the driver's copies, one process, two processes */
int run_cuda(const struct effort *effort, int argc, char **argv);

#endif
