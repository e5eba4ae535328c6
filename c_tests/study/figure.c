//! Figures: see figure.h.
#include "figure.h"
#include "job.h"
#include "options.h"

#include <stdio.h>
#include <stdlib.h>

static struct round_time timed(task task, long rounds, int active)
{
    struct round_time time;

    run_team(task, rounds);
    time.whole = largest(team_seconds()) / (double)rounds;
    time.mean = sum(job.rank < active ? mean_seconds() : 0) / active / (double)rounds;
    return time;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

struct round_time measure(task task, long most, int active, void (*after)(long rounds))
{
    double whole[MAX_REPETITIONS], mean[MAX_REPETITIONS];
    long rounds = 2;

    /* A few rounds give an estimate; when those were very short, more rounds give a better one. */
    for (int i = 0; i < 3; i++) {
        double seconds = timed(task, rounds, active).whole;
        double wanted = options.seconds / (i < 2 ? 20 : 1) / (seconds + 1e-9);

        if (after != NULL) {
            after(rounds);
        }
        rounds = from_first(wanted < 1 ? 1 : wanted > (double)most ? most : (long)wanted);
    }
    for (int i = 0; i < options.repetitions; i++) {
        struct round_time time = timed(task, rounds, active);

        whole[i] = time.whole;
        mean[i] = time.mean;
        if (after != NULL) {
            after(rounds);
        }
    }
    return (struct round_time){median(whole, options.repetitions), median(mean, options.repetitions)};
}

void print_heading(void)
{
    if (job.rank == 0) {
        printf("# %d ranks; medians of %d repetitions\n", job.size, options.repetitions);
        printf("# %-20s %7s %7s %9s %12s %s\n", "figure", "threads", "workers", "size", "value", "unit");
        fflush(stdout);
    }
}

void print_row(const char *name, const struct fabric *fabric, size_t size, double value, const char *unit)
{
    char bytes[24] = "-";

    if (job.rank == 0) {
        if (size > 0) {
            snprintf(bytes, sizeof(bytes), "%zu", size);
        }
        printf("%-22s %7d %7d %9s %12.5g %s\n", name, fabric->threads, fabric->workers, bytes, value, unit);
        fflush(stdout);
    }
}
