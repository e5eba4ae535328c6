//! Figures: the clock, the median of several batches, and the lines in which a driver reports what it measured.
#ifndef BENCH_FIGURE_H
#define BENCH_FIGURE_H

/** Prints what went wrong and ends this process and its partner. */
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

/** Seconds of the monotonic clock. */
double now(void);

/** Sorts the values. */
double median(double *values, int count);

/** One line of output, `NAME X VALUE UNIT`: the name says what, x at which size or number (-1: there is none). */
void figure(const char *name, long x, double value, const char *unit);

/** Kibibytes of memory that this process has resident. */
long resident_kib(void);

/** Kibibytes of address space that this process has had at most. */
long peak_address_space_kib(void);

/** Binds the calling thread to the index-th processor that this program may use (counted modulo their number). */
void pin_to(int index);

/** How many processors this program may use; asks once, before anything is pinned. */
int processors(void);

#endif
