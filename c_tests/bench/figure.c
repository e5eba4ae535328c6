//! Figures: see figure.h.
#define _GNU_SOURCE
#include "figure.h"

#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void die(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "ucpbench: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    kill(0, SIGTERM); /* the program is a process group of its own: see main */
    exit(1);
}

double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int ascending(const void *left, const void *right)
{
    double difference = *(const double *)left - *(const double *)right;

    return (difference > 0) - (difference < 0);
}

double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return values[count / 2];
}

void figure(const char *name, long x, double value, const char *unit)
{
    if (x < 0) {
        printf("%s - %.5g %s\n", name, value, unit);
    } else {
        printf("%s %ld %.5g %s\n", name, x, value, unit);
    }
    fflush(stdout);
}

long resident_kib(void)
{
    FILE *statm = fopen("/proc/self/statm", "r");
    long total, resident = 0;

    if (statm == NULL || fscanf(statm, "%ld %ld", &total, &resident) != 2) {
        die("cannot read /proc/self/statm");
    }
    fclose(statm);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

long peak_address_space_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long peak = -1;

    while (status != NULL && peak < 0 && fgets(line, sizeof(line), status) != NULL) {
        sscanf(line, "VmPeak: %ld kB", &peak);
    }
    if (peak < 0) {
        die("cannot read /proc/self/status");
    }
    fclose(status);
    return peak;
}

static cpu_set_t allowed;

int processors(void)
{
    if (CPU_COUNT(&allowed) == 0 && sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        die("sched_getaffinity");
    }
    return CPU_COUNT(&allowed);
}

void pin_to(int index)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    index %= processors();
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &allowed) && index-- == 0) {
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}
