//! Figures: the clock, the median of several batches, and the lines in which a driver reports its results.
#ifndef BENCH_FIGURE_H
#define BENCH_FIGURE_H

/** Prints the error and ends this process and its partner. */
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

/** Seconds of the monotonic clock. */
double now(void);

/** Sorts the values. */
double median(double *values, int count);

/** One line of output, `NAME X VALUE UNIT`: x is a size or number (-1: there is none). */
void figure(const char *name, long x, double value, const char *unit);

/** Kibibytes of resident memory of this process. */
long resident_kib(void);

/** Peak address space of this process, KiB. */
long peak_address_space_kib(void);

/** Binds the calling thread to the index-th processor that this program may use (counted modulo their number). */
void pin_to(int index);

/** Number of processors that this program may use; determined once, before any thread is bound. */
int processors(void);

#endif
