//! Figures: repetitions that are long enough to be measured, their median, and the rows that rank 0 prints.
#ifndef STUDY_FIGURE_H
#define STUDY_FIGURE_H

#include "team.h"

/** Duration of one round: the seconds of all ranks together, and the mean of the active ranks' threads. */
struct round_time {
    double whole, mean;
};

/**
 * Runs the task as often as the options say, each time for the options' seconds, but at most
 * `most` rounds, and returns the medians. `after` (or NULL) is called after each repetition with its rounds. Costs of
 * the first rounds (connections, pages) are not measured: the caller has run some. Ranks below `active` are those of
 * the mean.
 */
struct round_time measure(task task, long most, int active, void (*after)(long rounds));

/** Prints the names of the columns, once, and the library. */
void print_heading(void);

/** A row: `NAME THREADS WORKERS SIZE VALUE UNIT`; size 0 is printed as a dash. */
void print_row(const char *name, const struct fabric *fabric, size_t size, double value, const char *unit);

#endif
