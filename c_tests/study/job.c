//! The job: see job.h.
#include "job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct job job;

void start_job(int *argc, char ***argv)
{
    MPI_Comm host;
    int granted;

    MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &granted);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    if (granted < MPI_THREAD_FUNNELED) {
        die("this MPI allows no threads");
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, job.rank, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &job.local);
    MPI_Comm_size(host, &job.locals);
    MPI_Comm_free(&host);
}

void die(const char *format, ...)
{
    char what[512];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    fprintf(stderr, "study: FAILED on rank %d: %s\n", job.rank, what);
    fflush(NULL);
    /* By whichever thread: nothing follows it. */
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

struct gathered gather(const void *mine, size_t length)
{
    int own = (int)length, total = 0;
    int *lengths = calloc((size_t)job.size, sizeof(*lengths));
    struct gathered all = {.offset = calloc((size_t)job.size, sizeof(*all.offset))};

    if (lengths == NULL || all.offset == NULL) {
        die("no memory for %d ranks", job.size);
    }
    MPI_Allgather(&own, 1, MPI_INT, lengths, 1, MPI_INT, MPI_COMM_WORLD);
    for (int rank = 0; rank < job.size; rank++) {
        all.offset[rank] = total;
        total += lengths[rank];
    }
    all.bytes = malloc((size_t)total + 1);
    if (all.bytes == NULL) {
        die("no memory for %d bytes", total);
    }
    MPI_Allgatherv(mine, own, MPI_BYTE, all.bytes, lengths, all.offset, MPI_BYTE, MPI_COMM_WORLD);
    free(lengths);
    return all;
}

void free_gathered(struct gathered *gathered)
{
    free(gathered->bytes);
    free(gathered->offset);
}

void begin_meeting(struct meeting *meeting)
{
    MPI_Ibarrier(MPI_COMM_WORLD, &meeting->request);
}

int meeting_is_over(struct meeting *meeting)
{
    int over;

    MPI_Test(&meeting->request, &over, MPI_STATUS_IGNORE);
    return over;
}

long from_first(long value)
{
    MPI_Bcast(&value, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return value;
}

double largest(double value)
{
    double most;

    MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

double sum(double value)
{
    double total;

    MPI_Allreduce(&value, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return total;
}
