//! Collective operations, blocking and non-blocking, from 0 bytes to 1 MiB per rank, every byte verified.

#include "mapped_ucp.h"

#define COMM MPI_COMM_WORLD

enum { LARGEST = 1 << 20 };

/* Elements (of 8 bytes) per rank and collective. */
static const int counts[] = {0, 1, 3, 16, 125, 1000, 1024, 5000, LARGEST / 8};

enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

static long long *out, *in;

/** The element that `from` contributes at `index`. */
static long long element(int from, int index)
{
    return (long long)(from + 1) * 1000003 + index * 17LL;
}

static void fill_elements(int count, int offset)
{
    for (int i = 0; i < count; i++) {
        out[i] = element(world_rank, i + offset);
    }
}

/** Checks `count` elements at `place` of the result; `should_be` returns each expected value. */
#define VERIFY(what, place, count, should_be)                                                            \
    for (int i = 0; i < (count); i++) {                                                                  \
        CHECK(in[(place) + i] == (should_be), "%s of %d elements: element %d is %lld, should be %lld",   \
              what, count, i, in[(place) + i], (long long)(should_be));                                  \
    }

/** The sum of the elements at `index` that ranks 0 to `last` contribute. */
static long long sum_to(int last, int index)
{
    return 1000003LL * (last + 1) * (last + 2) / 2 + 17LL * index * (last + 1);
}

/** No rank leaves a barrier before the last one has entered: a token passed before it must have arrived after it. */
static void barriers(void)
{
    for (int late = 0; late < world_size; late++) {
        int token = -1, found = 0;
        MPI_Request request;

        if (world_rank == late) {
            for (int peer = 0; peer < world_size; peer++) {
                if (peer != late) {
                    MPI_Ssend(&late, 1, MPI_INT, peer, 1, COMM);
                }
            }
            MPI_Barrier(COMM);
        } else {
            MPI_Irecv(&token, 1, MPI_INT, late, 1, COMM, &request);
            MPI_Barrier(COMM);
            for (int tries = 0; tries < 1000 && !found; tries++) {
                MPI_Test(&request, &found, MPI_STATUS_IGNORE);
            }
            CHECK(found && token == late, "passed a barrier that rank %d had not reached", late);
        }
    }
    for (int i = 0; i < 100; i++) {
        MPI_Barrier(COMM);
    }
    passed("barrier");
}

static void rooted(int count)
{
    for (int root = 0; root < world_size; root += world_size > 2 ? 3 : 1) {
        fill_elements(count, root);
        memcpy(in, out, (size_t)count * 8);
        MPI_Bcast(in, count, MPI_LONG_LONG, root, COMM);
        VERIFY("bcast", 0, count, element(root, i + root));
        MPI_Reduce(out, in, count, MPI_LONG_LONG, MPI_SUM, root, COMM);
        if (world_rank == root) {
            VERIFY("reduce", 0, count, sum_to(world_size - 1, i + root));
        }
        MPI_Gather(out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, root, COMM);
        for (int from = 0; world_rank == root && from < world_size; from++) {
            VERIFY("gather", from * count, count, element(from, i + root));
        }
        for (int i = 0; world_rank == root && i < count * world_size; i++) {
            out[i] = element(i / (count ? count : 1), i);
        }
        MPI_Scatter(out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, root, COMM);
        VERIFY("scatter", 0, count, element(world_rank, world_rank * count + i));
    }
}

static void unrooted(int count)
{
    fill_elements(count, 0);
    MPI_Allreduce(out, in, count, MPI_LONG_LONG, MPI_SUM, COMM);
    VERIFY("allreduce sum", 0, count, sum_to(world_size - 1, i));
    MPI_Allreduce(out, in, count, MPI_LONG_LONG, MPI_MAX, COMM);
    VERIFY("allreduce max", 0, count, element(world_size - 1, i));
    memcpy(in, out, (size_t)count * 8);
    MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_LONG_LONG, MPI_SUM, COMM);
    VERIFY("allreduce in place", 0, count, sum_to(world_size - 1, i));
    MPI_Scan(out, in, count, MPI_LONG_LONG, MPI_SUM, COMM);
    VERIFY("scan", 0, count, sum_to(world_rank, i));
    MPI_Exscan(out, in, count, MPI_LONG_LONG, MPI_SUM, COMM);
    if (world_rank > 0) {
        VERIFY("exscan", 0, count, sum_to(world_rank - 1, i));
    }
    MPI_Allgather(out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, COMM);
    for (int from = 0; from < world_size; from++) {
        VERIFY("allgather", from * count, count, element(from, i));
    }
    fill_elements(count * world_size, 0);
    MPI_Alltoall(out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, COMM);
    for (int from = 0; from < world_size; from++) {
        VERIFY("alltoall", from * count, count, element(from, world_rank * count + i));
    }
    MPI_Reduce_scatter_block(out, in, count, MPI_LONG_LONG, MPI_SUM, COMM);
    VERIFY("reduce_scatter_block", 0, count, sum_to(world_size - 1, world_rank * count + i));
}

/** Each rank sends a different length to each other: some of them nothing. */
static void uneven(int most)
{
    int *lengths = allocate(4 * (size_t)world_size * sizeof(int));
    int *out_counts = lengths, *out_places = lengths + world_size, *in_counts = lengths + 2 * world_size,
        *in_places = lengths + 3 * world_size;
    int out_total = 0, in_total = 0;

    for (int peer = 0; peer < world_size; peer++) {
        out_counts[peer] = most * ((world_rank + 2 * peer) % 3) / 2;
        in_counts[peer] = most * ((peer + 2 * world_rank) % 3) / 2;
        out_places[peer] = out_total;
        in_places[peer] = in_total;
        out_total += out_counts[peer];
        in_total += in_counts[peer];
    }
    fill_elements(out_total, 0);
    MPI_Alltoallv(out, out_counts, out_places, MPI_LONG_LONG, in, in_counts, in_places, MPI_LONG_LONG, COMM);
    for (int from = 0; from < world_size; from++) {
        int place = 0;

        for (int peer = 0; peer < world_rank; peer++) {
            place += most * ((from + 2 * peer) % 3) / 2;
        }
        VERIFY("alltoallv", in_places[from], in_counts[from], element(from, place + i));
    }
    for (int peer = 0; peer < world_size; peer++) {
        in_counts[peer] = most * (peer % 3) / 2;
        in_places[peer] = peer ? in_places[peer - 1] + in_counts[peer - 1] : 0;
    }
    MPI_Allgatherv(out, in_counts[world_rank], MPI_LONG_LONG, in, in_counts, in_places, MPI_LONG_LONG, COMM);
    for (int from = 0; from < world_size; from++) {
        VERIFY("allgatherv", in_places[from], in_counts[from], element(from, i));
    }
    free(lengths);
}

/** Several non-blocking collectives and point-to-point messages in flight at once. */
static void nonblocking(int count)
{
    int left = (world_rank + world_size - 1) % world_size, right = (world_rank + 1) % world_size;
    size_t bytes = (size_t)count * 8;
    long long *sum = allocate(bytes), *copy = allocate(bytes), *ring = allocate(bytes),
              *gathered = allocate(bytes * (size_t)world_size);
    MPI_Request requests[6];

    fill_elements(count, 0);
    memcpy(copy, out, bytes);
    MPI_Iallreduce(out, sum, count, MPI_LONG_LONG, MPI_SUM, COMM, &requests[0]);
    MPI_Ibcast(copy, count, MPI_LONG_LONG, world_size - 1, COMM, &requests[1]);
    MPI_Irecv(ring, count, MPI_LONG_LONG, left, 2, COMM, &requests[2]);
    MPI_Isend(out, count, MPI_LONG_LONG, right, 2, COMM, &requests[3]);
    MPI_Iallgather(out, count, MPI_LONG_LONG, gathered, count, MPI_LONG_LONG, COMM, &requests[4]);
    MPI_Ibarrier(COMM, &requests[5]);
    MPI_Waitall(6, requests, MPI_STATUSES_IGNORE);
    memcpy(in, sum, bytes);
    VERIFY("iallreduce", 0, count, sum_to(world_size - 1, i));
    memcpy(in, copy, bytes);
    VERIFY("ibcast", 0, count, element(world_size - 1, i));
    memcpy(in, ring, bytes);
    VERIFY("isend beside collectives", 0, count, element(left, i));
    memcpy(in, gathered, bytes * (size_t)world_size);
    for (int from = 0; from < world_size; from++) {
        VERIFY("iallgather", from * count, count, element(from, i));
    }
    free(sum);
    free(copy);
    free(ring);
    free(gathered);
    fill_elements(count * world_size, 0);
    MPI_Ialltoall(out, count, MPI_LONG_LONG, in, count, MPI_LONG_LONG, COMM, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int from = 0; from < world_size; from++) {
        VERIFY("ialltoall", from * count, count, element(from, world_rank * count + i));
    }
}

/** A collective over a derived datatype (every other element), and over the halves of the world at once. */
static void typed_and_split(void)
{
    enum { COUNT = 5000 };
    int color = world_rank % 2, sum;
    MPI_Datatype every_other;
    MPI_Comm half;

    MPI_Type_vector(COUNT, 1, 2, MPI_LONG_LONG, &every_other);
    MPI_Type_commit(&every_other);
    fill_elements(2 * COUNT, 0);
    memcpy(in, out, 2 * COUNT * 8);
    MPI_Bcast(in, 1, every_other, 0, COMM);
    VERIFY("typed bcast", 0, 2 * COUNT, element(i % 2 && i < 2 * COUNT ? world_rank : 0, i));
    MPI_Type_free(&every_other);
    MPI_Comm_split(COMM, color, world_rank, &half);
    for (int i = 0; i < 50; i++) {
        MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, half);
        CHECK(sum == ((world_size - color + 1) / 2) * ((world_size - color + 1) / 2 - 1) + color * (world_size / 2),
              "allreduce in a half of the world: %d", sum);
    }
    MPI_Comm_free(&half);
    passed("derived type, split communicators");
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    out = allocate((size_t)LARGEST * 2 * (size_t)world_size);
    in = allocate((size_t)LARGEST * 2 * (size_t)world_size);
    report_mapped_ucp();
    barriers();
    for (int c = 0; c < COUNTS; c++) {
        char part[64];

        rooted(counts[c]);
        unrooted(counts[c]);
        uneven(counts[c]);
        nonblocking(counts[c]);
        snprintf(part, sizeof(part), "collectives of %d bytes", counts[c] * 8);
        passed(part);
    }
    typed_and_split();
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
