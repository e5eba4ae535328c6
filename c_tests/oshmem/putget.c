//! OpenSHMEM put and get of all sizes, blocking, not blocking, strided and single, to every PE, with every byte
//! verified.
#include "check.h"

static const size_t sizes[] = {1, 7, 8, 64, 113, 1000, 4096, 16384, 32769, 1 << 20};
#define SIZES (sizeof(sizes) / sizeof(*sizes))
#define LARGEST (1 << 20)

/** A global is symmetric, too: it lies in the data segment, which is registered but not allocated by the library. */
static long global_value;
static unsigned char global_bytes[5000];

/** Each PE puts to all others, into a part of their buffer that is its own. */
static void puts_to_all(int nonblocking)
{
    unsigned char *target = symmetric((size_t)LARGEST * pes), *source = malloc(LARGEST);

    for (size_t s = 0; s < SIZES; s++) {
        memset(target, 0xee, (size_t)LARGEST * pes);
        shmem_barrier_all();
        for (int pe = 0; pe < pes; pe++) {
            unsigned char *to = target + (size_t)LARGEST * me;

            if (nonblocking) {
                /* The source of a non-blocking put must not change until quiet: one seed for all PEs. */
                fill(source, sizes[s], me);
                shmem_putmem_nbi(to, source, sizes[s], pe);
            } else {
                fill(source, sizes[s], me * pes + pe);
                shmem_putmem(to, source, sizes[s], pe);
                memset(source, 0, sizes[s]); /* the source may be reused when the call returns */
            }
        }
        shmem_quiet();
        shmem_barrier_all();
        for (int pe = 0; pe < pes; pe++) {
            unsigned char *from = target + (size_t)LARGEST * pe;

            verify(from, sizes[s], nonblocking ? pe : pe * pes + me, "put");
            CHECK(sizes[s] == LARGEST || from[sizes[s]] == 0xee, "put of %zu bytes wrote one more", sizes[s]);
        }
        shmem_barrier_all();
    }
    free(source);
    shmem_free(target);
}

static void gets_from_all(int nonblocking)
{
    unsigned char *source = symmetric(LARGEST), *target = malloc((size_t)LARGEST * pes);

    for (size_t s = 0; s < SIZES; s++) {
        fill(source, sizes[s], me + 17);
        memset(target, 0, (size_t)LARGEST * pes);
        shmem_barrier_all();
        for (int pe = 0; pe < pes; pe++) {
            if (nonblocking) {
                shmem_getmem_nbi(target + (size_t)LARGEST * pe, source, sizes[s], pe);
            } else {
                shmem_getmem(target + (size_t)LARGEST * pe, source, sizes[s], pe);
            }
        }
        shmem_quiet();
        for (int pe = 0; pe < pes; pe++) {
            verify(target + (size_t)LARGEST * pe, sizes[s], pe + 17, "get");
        }
        shmem_barrier_all();
    }
    free(target);
    shmem_free(source);
}

static void strided_and_single(void)
{
    enum { COUNT = 50 };
    int *array = symmetric(COUNT * 3 * sizeof(int)), local[COUNT * 2];
    double *single = symmetric(sizeof(*single));
    int next = (me + 1) % pes, previous = (me + pes - 1) % pes;

    for (int i = 0; i < COUNT * 3; i++) {
        array[i] = -1;
    }
    for (int i = 0; i < COUNT * 2; i++) {
        local[i] = me * 1000 + i;
    }
    shmem_barrier_all();
    shmem_int_iput(array, local, 3, 2, COUNT, next);
    shmem_double_p(single, 1.5 + me, next);
    shmem_barrier_all();
    for (int i = 0; i < COUNT * 3; i++) {
        int want = i % 3 ? -1 : previous * 1000 + i / 3 * 2;

        CHECK(array[i] == want, "iput: element %d is %d, should be %d", i, array[i], want);
    }
    CHECK(shmem_double_g(single, previous) == 1.5 + (previous + pes - 1) % pes, "double_g");
    shmem_int_iget(local, array, 2, 3, COUNT, previous);
    for (int i = 0; i < COUNT; i++) {
        int want = (previous + pes - 1) % pes * 1000 + i * 2;

        CHECK(local[i * 2] == want, "iget: element %d is %d, should be %d", i, local[i * 2], want);
    }
    shmem_barrier_all();
    shmem_free(single);
    shmem_free(array);
}

static void globals(void)
{
    unsigned char local[sizeof(global_bytes)];
    int next = (me + 1) % pes, previous = (me + pes - 1) % pes;

    shmem_long_p(&global_value, 100 + me, next);
    fill(local, sizeof(local), me);
    shmem_putmem(global_bytes, local, sizeof(local), next);
    shmem_barrier_all();
    CHECK(global_value == 100 + previous, "a global is %ld, should be %d", global_value, 100 + previous);
    verify(global_bytes, sizeof(global_bytes), previous, "put into a global");
    CHECK(shmem_long_g(&global_value, next) == 100 + me, "get of a global");
}

/** Data, fence, flag: a PE that sees the flag must see the data. */
static void order(void)
{
    enum { ROUNDS = 200, LENGTH = 3000 };
    unsigned char *data = symmetric(LENGTH), *local = malloc(LENGTH);
    long *flag = symmetric(sizeof(*flag)), *done = symmetric(sizeof(*done));
    int next = (me + 1) % pes, previous = (me + pes - 1) % pes;

    *flag = *done = 0;
    shmem_barrier_all();
    for (long round = 1; round <= ROUNDS; round++) {
        fill(local, LENGTH, (unsigned)(round * pes + me));
        shmem_putmem(data, local, LENGTH, next);
        shmem_fence();
        shmem_long_p(flag, round, next);
        shmem_long_wait_until(flag, SHMEM_CMP_GE, round);
        verify(data, LENGTH, (unsigned)(round * pes + previous), "put before a fence");
        shmem_long_p(done, round, previous);
        shmem_long_wait_until(done, SHMEM_CMP_GE, round);
    }
    shmem_barrier_all();
    shmem_free(done);
    shmem_free(flag);
    shmem_free(data);
    free(local);
}

/** Where memory of a neighbour can be addressed directly, it must be the same memory. */
static void pointers(void)
{
    long *value = symmetric(sizeof(*value)), *direct;
    int next = (me + 1) % pes;

    *value = me;
    shmem_barrier_all();
    direct = shmem_ptr(value, next);
    if (direct != NULL) {
        CHECK(*direct == next, "shmem_ptr: %ld, should be %d", *direct, next);
    }
    shmem_barrier_all();
    if (direct != NULL) {
        *direct = me + 1000;
    }
    shmem_barrier_all();
    if (direct != NULL) {
        CHECK(*value == (me + pes - 1) % pes + 1000, "a store through shmem_ptr: %ld", *value);
    }
    shmem_barrier_all();
    shmem_free(value);
}

int main(void)
{
    start();
    puts_to_all(0);
    passed("put");
    puts_to_all(1);
    passed("put_nbi");
    gets_from_all(0);
    passed("get");
    gets_from_all(1);
    passed("get_nbi");
    strided_and_single();
    passed("iput, iget, p, g");
    globals();
    passed("globals");
    order();
    passed("put, fence, flag");
    pointers();
    passed("shmem_ptr");
    shmem_finalize();
    return 0;
}
