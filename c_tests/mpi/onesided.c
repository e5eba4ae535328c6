//! One-sided communication on windows over own, allocated and shared memory: every synchronisation, every kind of
//! access, verified.

#include "mapped_ucp.h"

#define COMM MPI_COMM_WORLD

enum { LENGTH = 3 << 20, LARGEST = 1 << 20 };

/** A window and its local memory. */
struct window {
    MPI_Win win;
    char *base;
};

static int left_of(int rank) { return (rank + world_size - 1) % world_size; }
static int right_of(int rank) { return (rank + 1) % world_size; }

/** Sets the whole local window and waits until every rank has. */
static void reset(struct window *window, int byte)
{
    MPI_Barrier(COMM);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, window->win);
    memset(window->base, byte, LENGTH);
    MPI_Win_unlock(world_rank, window->win);
    MPI_Barrier(COMM);
}

/** Between fences: every size is put to the right and fetched from the left neighbour. */
static void fence(struct window *window)
{
    char *out = allocate(LARGEST), *in = allocate(LARGEST);

    reset(window, 0);
    for (size_t size = 1; size <= LARGEST; size = size * 4 + 3) {
        fill(out, size, (unsigned)(world_rank + size));
        MPI_Win_fence(0, window->win);
        MPI_Put(out, (int)size, MPI_BYTE, right_of(world_rank), 16, (int)size, MPI_BYTE, window->win);
        MPI_Win_fence(0, window->win);
        verify(window->base + 16, size, (unsigned)left_of(world_rank) + (unsigned)size, "put");
        CHECK(window->base[15] == 0 && window->base[16 + size] == 0, "a put of %zu bytes wrote outside", size);
        MPI_Get(in, (int)size, MPI_BYTE, left_of(world_rank), 16, (int)size, MPI_BYTE, window->win);
        MPI_Win_fence(0, window->win);
        verify(in, size, (unsigned)left_of(left_of(world_rank)) + (unsigned)size, "get");
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window->win);
    free(out);
    free(in);
    passed("  fence, put, get");
}

/** Under an exclusive lock a read, a change and a write are one: no increment is lost. */
static void exclusive_lock(struct window *window)
{
    enum { ROUNDS = 20 };
    long long value;

    reset(window, 0);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window->win);
        MPI_Get(&value, 1, MPI_LONG_LONG, 0, 0, 1, MPI_LONG_LONG, window->win);
        MPI_Win_flush(0, window->win);
        value++;
        MPI_Put(&value, 1, MPI_LONG_LONG, 0, 0, 1, MPI_LONG_LONG, window->win);
        MPI_Win_unlock(0, window->win);
    }
    MPI_Barrier(COMM);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window->win);
    MPI_Get(&value, 1, MPI_LONG_LONG, 0, 0, 1, MPI_LONG_LONG, window->win);
    MPI_Win_unlock(0, window->win);
    CHECK(value == (long long)ROUNDS * world_size, "%lld increments under a lock, should be %d", value,
          ROUNDS * world_size);
    passed("  exclusive lock");
}

/** A put and a flush, then a message: when the message has arrived, so has the data. */
static void flush_then_message(struct window *window)
{
    char *out = allocate(LARGEST);

    reset(window, 0);
    MPI_Win_lock_all(0, window->win);
    for (size_t size = 8; size <= LARGEST; size *= 8) {
        fill(out, size, (unsigned)world_rank + (unsigned)size);
        MPI_Put(out, (int)size, MPI_BYTE, right_of(world_rank), 0, (int)size, MPI_BYTE, window->win);
        MPI_Win_flush(right_of(world_rank), window->win);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, right_of(world_rank), 1, NULL, 0, MPI_BYTE, left_of(world_rank), 1, COMM,
                     MPI_STATUS_IGNORE);
        MPI_Win_sync(window->win);
        verify(window->base, size, (unsigned)left_of(world_rank) + (unsigned)size, "put, flush, message");
        MPI_Barrier(COMM);
    }
    MPI_Win_unlock_all(window->win);
    free(out);
    passed("  flush, then a message");
}

/** Every fetched value of a shared counter is seen by one rank only; compare-and-swap loses no turn. */
static void atomics(struct window *window)
{
    enum { ROUNDS = 100 };
    long long one = 1, zero = 0, fetched, *seen = calloc((size_t)(ROUNDS * world_size), sizeof(*seen));

    reset(window, 0);
    MPI_Win_lock_all(0, window->win);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Fetch_and_op(&one, &fetched, MPI_LONG_LONG, 0, 0, MPI_SUM, window->win);
        MPI_Win_flush(0, window->win);
        CHECK(fetched >= 0 && fetched < ROUNDS * world_size, "fetch_and_op gave %lld", fetched);
        seen[fetched]++;
    }
    for (int i = 0; i < ROUNDS; i++) {
        long long expected, desired, found;

        MPI_Fetch_and_op(&zero, &found, MPI_LONG_LONG, 0, 8, MPI_NO_OP, window->win);
        MPI_Win_flush(0, window->win);
        do {
            expected = found;
            desired = expected + 1;
            MPI_Compare_and_swap(&desired, &expected, &found, MPI_LONG_LONG, 0, 8, window->win);
            MPI_Win_flush(0, window->win);
        } while (found != expected);
    }
    MPI_Win_unlock_all(window->win);
    MPI_Allreduce(MPI_IN_PLACE, seen, ROUNDS * world_size, MPI_LONG_LONG, MPI_SUM, COMM);
    for (int i = 0; i < ROUNDS * world_size; i++) {
        CHECK(seen[i] == 1, "fetch_and_op gave the value %d to %lld ranks", i, seen[i]);
    }
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window->win);
    MPI_Get(&fetched, 1, MPI_LONG_LONG, 0, 8, 1, MPI_LONG_LONG, window->win);
    MPI_Win_unlock(0, window->win);
    CHECK(fetched == (long long)ROUNDS * world_size, "compare_and_swap counted to %lld of %d", fetched,
          ROUNDS * world_size);
    free(seen);
    passed("  fetch_and_op, compare_and_swap");
}

/**
 * Accumulates from all ranks add up in every element, whatever the type; get_accumulate fetches the previous contents.
 */
static void accumulates(struct window *window)
{
    enum { COUNT = 20000 };
    double *values = allocate(COUNT * sizeof(double)), *old = allocate(COUNT * sizeof(double));
    int *integers = allocate(COUNT * sizeof(int));
    double total = world_size * (world_size + 1) / 2.0;

    reset(window, 0);
    for (int i = 0; i < COUNT; i++) {
        values[i] = (world_rank + 1) * (i % 7);
        integers[i] = 1 << (world_rank % 31);
    }
    MPI_Win_fence(0, window->win);
    for (int target = 0; target < world_size; target++) {
        MPI_Accumulate(values, COUNT, MPI_DOUBLE, target, 0, COUNT, MPI_DOUBLE, MPI_SUM, window->win);
        MPI_Accumulate(integers, COUNT, MPI_INT, target, COUNT * sizeof(double), COUNT, MPI_INT, MPI_BOR, window->win);
    }
    MPI_Win_fence(0, window->win);
    for (int i = 0; i < COUNT; i++) {
        double sum = ((double *)window->base)[i];
        int bits = ((int *)window->base)[2 * COUNT + i];

        CHECK(sum == total * (i % 7), "accumulate: element %d is %g, should be %g", i, sum, total * (i % 7));
        CHECK(bits == (int)((1u << world_size) - 1), "accumulate: bits of element %d are 0x%x", i, bits);
    }
    MPI_Win_fence(0, window->win);
    MPI_Get_accumulate(values, COUNT, MPI_DOUBLE, old, COUNT, MPI_DOUBLE, right_of(world_rank), 0, COUNT, MPI_DOUBLE,
                       MPI_SUM, window->win);
    MPI_Win_fence(0, window->win);
    for (int i = 0; i < COUNT; i++) {
        double now = ((double *)window->base)[i], added = (left_of(world_rank) + 1) * (i % 7);

        CHECK(old[i] == total * (i % 7), "get_accumulate fetched %g at %d, should be %g", old[i], i, total * (i % 7));
        CHECK(now == total * (i % 7) + added, "get_accumulate left %g at %d", now, i);
    }
    free(values);
    free(old);
    free(integers);
    passed("  accumulate, get_accumulate");
}

/** Requests for puts and gets whose origin and target are vectors of different shape. */
static void typed_requests(struct window *window)
{
    enum { COUNT = 10000 };
    int *out = allocate(2 * COUNT * sizeof(int)), *in = allocate(3 * COUNT * sizeof(int)), *target;
    int left = left_of(world_rank), right = right_of(world_rank);
    MPI_Datatype by_two, by_three;
    MPI_Request request;

    MPI_Type_vector(COUNT, 1, 2, MPI_INT, &by_two);
    MPI_Type_vector(COUNT, 1, 3, MPI_INT, &by_three);
    MPI_Type_commit(&by_two);
    MPI_Type_commit(&by_three);
    reset(window, 0x11);
    for (int i = 0; i < 2 * COUNT; i++) {
        out[i] = world_rank * 1000000 + i;
    }
    memset(in, 0x22, 3 * COUNT * sizeof(int));
    MPI_Win_lock_all(0, window->win);
    MPI_Rput(out, 1, by_two, right, 64, 1, by_three, window->win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush(right, window->win);
    MPI_Barrier(COMM);
    MPI_Win_sync(window->win);
    target = (int *)(window->base + 64);
    for (int i = 0; i < 3 * COUNT - 2; i++) {
        int should_be = i % 3 ? 0x11111111 : left * 1000000 + i / 3 * 2;

        CHECK(target[i] == should_be, "rput: element %d is %d, should be %d", i, target[i], should_be);
    }
    MPI_Rget(in, 1, by_three, right, 64, 1, by_three, window->win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#ifdef MPICH_VERSION
    /* MPICH 4.0.2 completes the request of a get into a vector before the data has arrived, with any UCX. */
    MPI_Win_flush(right, window->win);
#endif
    for (int i = 0; i < 3 * COUNT - 2; i++) {
        int should_be = i % 3 ? 0x22222222 : world_rank * 1000000 + i / 3 * 2;

        CHECK(in[i] == should_be, "rget: element %d is %d, should be %d", i, in[i], should_be);
    }
    MPI_Barrier(COMM);
    MPI_Win_unlock_all(window->win);
    MPI_Type_free(&by_two);
    MPI_Type_free(&by_three);
    free(out);
    free(in);
    passed("  rput, rget of vectors");
}

/** Post, start, complete, wait: each rank writes into its right neighbour. */
static void post_start_complete_wait(struct window *window)
{
    enum { SIZE = 50000, ROUNDS = 10 };
    int left = left_of(world_rank), right = right_of(world_rank);
    char *out = allocate(SIZE);
    MPI_Group world, from, to;

    MPI_Comm_group(COMM, &world);
    MPI_Group_incl(world, 1, &left, &from);
    MPI_Group_incl(world, 1, &right, &to);
    reset(window, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        fill(out, SIZE, (unsigned)world_rank + round * 32);
        MPI_Win_post(from, 0, window->win);
        MPI_Win_start(to, 0, window->win);
        MPI_Put(out, SIZE, MPI_BYTE, right, 8, SIZE, MPI_BYTE, window->win);
        MPI_Win_complete(window->win);
        MPI_Win_wait(window->win);
        verify(window->base + 8, SIZE, (unsigned)left + round * 32, "put between start and complete");
    }
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    MPI_Group_free(&world);
    free(out);
    passed("  post, start, complete, wait");
}

/** Accesses to the own memory through the window. */
static void self_access(struct window *window)
{
    char *out = allocate(LARGEST), *in = allocate(LARGEST);
    long long one = 1, fetched = -1;

    reset(window, 0);
    fill(out, LARGEST, (unsigned)world_rank);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, world_rank, 0, window->win);
    MPI_Put(out, LARGEST, MPI_BYTE, world_rank, 64, LARGEST, MPI_BYTE, window->win);
    MPI_Win_flush(world_rank, window->win);
    MPI_Get(in, LARGEST, MPI_BYTE, world_rank, 64, LARGEST, MPI_BYTE, window->win);
    MPI_Fetch_and_op(&one, &fetched, MPI_LONG_LONG, world_rank, 0, MPI_SUM, window->win);
    MPI_Win_unlock(world_rank, window->win);
    verify(in, LARGEST, (unsigned)world_rank, "get from self");
    CHECK(fetched == 0 && *(long long *)window->base == 1, "fetch_and_op on self: %lld", fetched);
    free(out);
    free(in);
    passed("  self");
}

static void all_accesses(struct window *window)
{
    fence(window);
    exclusive_lock(window);
    flush_then_message(window);
    atomics(window);
    accumulates(window);
    typed_requests(window);
    post_start_complete_wait(window);
    self_access(window);
    MPI_Win_free(&window->win);
}

/** Memory that MPI allocates for all ranks of a node: neighbours read it by plain loads. */
static void shared_window(void)
{
    struct window window;
    MPI_Aint length;
    int unit, code, of_node;
    char *theirs;
    MPI_Comm node;

    MPI_Comm_split_type(COMM, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &of_node);
    MPI_Comm_free(&node);
    MPI_Allreduce(MPI_IN_PLACE, &of_node, 1, MPI_INT, MPI_MIN, COMM);
    if (of_node < world_size) {
        passed("win_allocate_shared: not between hosts");
        return;
    }
    MPI_Comm_set_errhandler(COMM, MPI_ERRORS_RETURN);
    code = MPI_Win_allocate_shared(LENGTH, 1, MPI_INFO_NULL, COMM, &window.base, &window.win);
    MPI_Comm_set_errhandler(COMM, MPI_ERRORS_ARE_FATAL);
    if (code != MPI_SUCCESS) {
        passed("win_allocate_shared: refused by this MPI over UCX");
        return;
    }
    MPI_Win_lock_all(0, window.win);
    fill(window.base, LENGTH, (unsigned)world_rank);
    MPI_Win_sync(window.win);
    MPI_Barrier(COMM);
    MPI_Win_sync(window.win);
    MPI_Win_shared_query(window.win, right_of(world_rank), &length, &unit, &theirs);
    CHECK(length == LENGTH, "the neighbour's window has %ld bytes", (long)length);
    verify(theirs, LENGTH, (unsigned)right_of(world_rank), "shared memory");
    MPI_Barrier(COMM);
    MPI_Win_unlock_all(window.win);
    MPI_Win_free(&window.win);
    passed("win_allocate_shared");
}

int main(int argc, char **argv)
{
    struct window window;
    char *own;

    start(&argc, &argv);
    report_mapped_ucp();
    own = allocate(LENGTH);
    window.base = own;
    MPI_Win_create(own, LENGTH, 1, MPI_INFO_NULL, COMM, &window.win);
    passed("win_create");
    all_accesses(&window);
    free(own);
    MPI_Win_allocate(LENGTH, 1, MPI_INFO_NULL, COMM, &window.base, &window.win);
    passed("win_allocate");
    all_accesses(&window);
    shared_window();
    MPI_Finalize();
    return 0;
}
