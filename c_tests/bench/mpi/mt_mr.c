//! Message rate by threads: all threads on one communicator, and a communicator for each.
//!
//! Rank 0 sends, rank 1 receives; each thread of one has its partner in the other; 8 bytes, windows of 64.
//! -t THREADS the largest number of threads (8), -i MESSAGES of all threads of a row together, instead of as many as
//! some tenths of a second allow: where threads share cores, the rates of libraries lie a thousandfold apart.
#define _GNU_SOURCE
#include "../../mpi/check.h"
#include "../../mpi/mapped_ucp.h"

#include <pthread.h>
#include <unistd.h>

enum { WINDOW = 64, SIZE = 8, MAX_THREADS = 64, MOST_MESSAGES = 400000 };

struct thread {
    int number;
    long windows;
    MPI_Comm comm;
};

static pthread_barrier_t begin;

static void *exchange(void *argument)
{
    struct thread *thread = argument;
    static _Thread_local char data[WINDOW][SIZE];
    MPI_Request requests[WINDOW];
    char ack = 0;

    pthread_barrier_wait(&begin);
    for (long window = 0; window < thread->windows; window++) {
        for (int i = 0; i < WINDOW; i++) {
            if (world_rank == 0) {
                MPI_Isend(data[i], SIZE, MPI_CHAR, 1, thread->number, thread->comm, &requests[i]);
            } else {
                MPI_Irecv(data[i], SIZE, MPI_CHAR, 0, thread->number, thread->comm, &requests[i]);
            }
        }
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        if (world_rank == 0) {
            MPI_Recv(&ack, 1, MPI_CHAR, 1, MAX_THREADS + thread->number, thread->comm, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(&ack, 1, MPI_CHAR, 0, MAX_THREADS + thread->number, thread->comm);
        }
    }
    return NULL;
}

/** Messages per second of all threads together. */
static double rate(int threads, long messages, const MPI_Comm *comms, int each)
{
    struct thread thread[MAX_THREADS];
    pthread_t handle[MAX_THREADS];
    double seconds;

    pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        thread[i] = (struct thread){i, messages / threads / WINDOW + 1, each ? comms[i] : MPI_COMM_WORLD};
        CHECK(pthread_create(&handle[i], NULL, exchange, &thread[i]) == 0, "pthread_create");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime();
    pthread_barrier_wait(&begin);
    for (int i = 0; i < threads; i++) {
        pthread_join(handle[i], NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    seconds = MPI_Wtime() - seconds;
    pthread_barrier_destroy(&begin);
    return (double)thread[0].windows * WINDOW * threads / seconds;
}

/** The rate of this many messages; 0: four times as many as before until that takes a while. */
static double measure(int threads, long messages, const MPI_Comm *comms, int each)
{
    long next = messages ? messages : 4L * WINDOW * threads;
    double found = 0;

    while (next != 0) {
        long sent = next;

        found = rate(threads, sent, comms, each);
        next = messages || sent >= MOST_MESSAGES || (double)sent / found > 0.2 ? 0 : 4 * sent;
        MPI_Bcast(&next, 1, MPI_LONG, 0, MPI_COMM_WORLD); /* rank 0 decides */
    }
    return found;
}

int main(int argc, char **argv)
{
    MPI_Comm comms[MAX_THREADS];
    int provided, option, most = 8;
    long messages = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    while ((option = getopt(argc, argv, "t:i:")) != -1) {
        CHECK(option != '?', "usage: [-t THREADS] [-i MESSAGES]");
        if (option == 't') {
            most = atoi(optarg);
        } else {
            messages = atol(optarg);
        }
    }
    CHECK(provided == MPI_THREAD_MULTIPLE && world_size == 2, "needs MPI_THREAD_MULTIPLE and two ranks");
    CHECK(most >= 1 && most <= MAX_THREADS, "at most %d threads", MAX_THREADS);
    for (int i = 0; i < most; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    }
    report_mapped_ucp();
    if (world_rank == 0) {
        printf("# rucp's own MPI Multi-threaded Message Rate Test\n"
               "# Threads   One communicator (Messages/s)   One each (Messages/s)\n");
    }
    rate(most, WINDOW * most, comms, 1); /* connects */
    for (int threads = 1; threads <= most; threads *= 2) {
        double one = measure(threads, messages, comms, 0), each = measure(threads, messages, comms, 1);

        if (world_rank == 0) {
            printf("%-10d%30.0f%24.0f\n", threads, one, each);
            fflush(stdout);
        }
    }
    for (int i = 0; i < most; i++) {
        MPI_Comm_free(&comms[i]);
    }
    MPI_Finalize();
    return 0;
}
