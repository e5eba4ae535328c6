//! A benchmark of one fabric with one number of threads and of workers.
#ifndef STUDY_BENCHMARK_H
#define STUDY_BENCHMARK_H

#include "fabric.h"

/**
 * Each opens its fabric and team, measures every size, verifies all data, prints rows and closes what it has opened.
 */
typedef void (*benchmark)(int threads, int workers);

void pingpong_put(int threads, int workers);
void pingpong_tag(int threads, int workers);
void put_rate(int threads, int workers);
void get_rate(int threads, int workers);
void gups_atomic(int threads, int workers);
void gups_put_get(int threads, int workers);

/** Distance between data of different threads: four cache lines of the A64FX. */
enum { APART = 1024 };

static inline size_t rounded_up(size_t length)
{
    return (length + APART - 1) / APART * APART;
}

#endif
