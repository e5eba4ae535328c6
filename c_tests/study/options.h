//! The command line: benchmarks, threads, workers, sizes, and durations.
#ifndef STUDY_OPTIONS_H
#define STUDY_OPTIONS_H

#include <stddef.h>

enum { MAX_THREADS = 512, MAX_LIST = 32, MAX_REPETITIONS = 99 };

/** Value of `workers` that stands for the number of threads. */
enum { EACH = 0 };

struct options {
    const char *benchmarks[MAX_LIST]; /* names; ended by NULL */
    int threads[MAX_LIST];            /* ended by 0 */
    int workers[MAX_LIST];            /* EACH or a number */
    int worker_settings;
    size_t smallest, largest, factor; /* sizes of messages, bytes */
    int window;                       /* puts or gets before a flush */
    int look_ahead;                   /* updates of a thread in flight */
    int table_bits;                   /* log2 of the words of each rank; 0: by the number of threads */
    double seconds;                   /* of a repetition, about */
    int repetitions;
    int user_memory; /* remote memory by malloc instead of by the library */
};

extern struct options options;

/** Ends the program if they are invalid. */
void read_options(int argc, char **argv);

#endif
