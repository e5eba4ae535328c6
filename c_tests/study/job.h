//! The job: the ranks started by mpirun or srun. MPI is used only to exchange addresses and keys.
#ifndef STUDY_JOB_H
#define STUDY_JOB_H

#include <mpi.h>
#include <stddef.h>

struct job {
    int rank, size;
    int local, locals; /* which of how many ranks of this host */
};

extern struct job job;

/** Initializes MPI for calls by the main thread alone. */
void start_job(int *argc, char ***argv);

/** Prints the error and the rank and ends the whole job with a non-zero status. */
__attribute__((format(printf, 1, 2), noreturn)) void die(const char *format, ...);

/** Bytes of every rank, which may be of different lengths. */
struct gathered {
    unsigned char *bytes;
    int *offset; /* of each rank's */
};

/** All ranks call it; the bytes of rank r begin at `bytes + offset[r]`. */
struct gathered gather(const void *mine, size_t length);

void free_gathered(struct gathered *gathered);

/** A barrier of all ranks; the caller can do other work until it is over. */
struct meeting {
    MPI_Request request;
};

void begin_meeting(struct meeting *meeting);
int meeting_is_over(struct meeting *meeting);

/** Every rank gets rank 0's value. */
long from_first(long value);

/** Every rank gets the largest, or the sum, of all ranks' values. */
double largest(double value);
double sum(double value);

#endif
