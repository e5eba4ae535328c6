//! OpenSHMEM atomics of 32 and 64 bits under contention: no update may be lost, and every fetched value is unique.
#include "check.h"

enum { ROUNDS = 2000 };

/** All PEs add to one counter; no two PEs fetch the same value. */
static void adds(void)
{
    long *counter = symmetric(sizeof(*counter)), *taken = symmetric(sizeof(*taken) * ROUNDS * pes);
    int *small = symmetric(sizeof(*small));

    *counter = *small = 0;
    memset(taken, 0, sizeof(*taken) * ROUNDS * pes);
    shmem_barrier_all();
    for (int i = 0; i < ROUNDS; i++) {
        long ticket = shmem_long_atomic_fetch_add(counter, 1, 0);

        CHECK(ticket >= 0 && ticket < (long)ROUNDS * pes, "ticket %ld", ticket);
        shmem_long_atomic_inc(&taken[ticket], 0);
        shmem_int_atomic_add(small, 3, 0);
    }
    shmem_barrier_all();
    if (me == 0) {
        CHECK(*counter == (long)ROUNDS * pes, "%ld tickets, should be %d", *counter, ROUNDS * pes);
        CHECK(*small == 3 * ROUNDS * pes, "32-bit sum %d, should be %d", *small, 3 * ROUNDS * pes);
        for (int i = 0; i < ROUNDS * pes; i++) {
            CHECK(taken[i] == 1, "ticket %d was given %ld times", i, taken[i]);
        }
    }
    shmem_barrier_all();
    shmem_free(small);
    shmem_free(taken);
    shmem_free(counter);
}

/**
 * A lock of compare-and-swap guards a sum that is read and written in two steps.
 * Of 64 bits: Open MPI 4.1.4 overruns the result of a 32-bit compare-and-swap, on any UCX.
 */
static void compare_swap(void)
{
    enum { TIMES = 200 };
    long *lock = symmetric(sizeof(*lock));
    long *sum = symmetric(sizeof(*sum));

    *lock = -1;
    *sum = 0;
    shmem_barrier_all();
    for (int i = 0; i < TIMES; i++) {
        while (shmem_long_atomic_compare_swap(lock, -1, me, 0) != -1) {
            /*
             * On its own memory the operation ends in its call, in which neither UCX nor rucp progresses: requests of
             * the lock's owner to this PE would never be executed. A PE that accesses another one progresses meanwhile.
             */
            shmem_long_atomic_fetch(sum, (me + 1) % pes);
        }
        shmem_long_p(sum, shmem_long_g(sum, 0) + 1, 0);
        shmem_quiet();
        CHECK(shmem_long_atomic_swap(lock, -1, 0) == me, "the lock had another owner");
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(sum, 0) == TIMES * pes, "guarded sum %ld, should be %d", shmem_long_g(sum, 0), TIMES * pes);
    shmem_barrier_all();
    shmem_free(sum);
    shmem_free(lock);
}

/** Swaps pass values around: in the end each value that was put in is in one place. */
static void swaps(void)
{
    long *slot = symmetric(sizeof(*slot)), *seen = symmetric(sizeof(*seen) * (pes + 1)), mine = me + 1;

    *slot = 0;
    memset(seen, 0, sizeof(*seen) * (pes + 1));
    shmem_barrier_all();
    for (int i = 0; i < ROUNDS; i++) {
        mine = shmem_long_atomic_swap(slot, mine, 0);
        CHECK(mine >= 0 && mine <= pes, "swap brought %ld", mine);
    }
    shmem_barrier_all();
    shmem_long_atomic_inc(&seen[mine], 0);
    shmem_barrier_all();
    if (me == 0) {
        seen[*slot]++;
        for (int i = 0; i <= pes; i++) {
            CHECK(seen[i] == 1, "value %d is there %ld times", i, seen[i]);
        }
    }
    shmem_barrier_all();
    shmem_free(seen);
    shmem_free(slot);
}

static void bits(void)
{
    unsigned long *wide = symmetric(sizeof(*wide));
    unsigned *narrow = symmetric(sizeof(*narrow));
    unsigned long all_pes = (1ul << pes) - 1, before;

    *wide = 0;
    *narrow = ~0u;
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        before = shmem_ulong_atomic_fetch_or(wide, 1ul << me, pe);
        CHECK(!(before >> me & 1), "fetch_or: bit %d was set", me);
        shmem_uint_atomic_and(narrow, ~(1u << me), pe);
    }
    shmem_barrier_all();
    CHECK(*wide == all_pes, "or: %#lx, should be %#lx", *wide, all_pes);
    CHECK(*narrow == (unsigned)~all_pes, "and: %#x, should be %#x", *narrow, (unsigned)~all_pes);
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        shmem_ulong_atomic_xor(wide, 3ul << me, pe);
        before = shmem_uint_atomic_fetch_xor(narrow, 1u << me, pe);
        CHECK(!(before >> me & 1), "fetch_xor: bit %d was set", me);
    }
    shmem_barrier_all();
    for (int pe = 0; pe < pes; pe++) {
        all_pes ^= 3ul << pe;
    }
    CHECK(*wide == all_pes, "xor: %#lx, should be %#lx", *wide, all_pes);
    CHECK(*narrow == ~0u, "xor: %#x", *narrow);
    shmem_barrier_all();
    CHECK(shmem_ulong_atomic_fetch(wide, (me + 1) % pes) == all_pes, "fetch");
    shmem_barrier_all();
    shmem_ulong_atomic_set(wide, 4711ul + me, (me + 1) % pes);
    shmem_barrier_all();
    CHECK(*wide == 4711ul + (me + pes - 1) % pes, "set: %lu", *wide);
    shmem_barrier_all();
    shmem_free(narrow);
    shmem_free(wide);
}

/** OpenSHMEM's own locks, which the library implements by swaps. */
static void locks(void)
{
    static long lock;
    long *sum = symmetric(sizeof(*sum));

    *sum = 0;
    shmem_barrier_all();
    for (int i = 0; i < 50; i++) {
        shmem_set_lock(&lock);
        shmem_long_p(sum, shmem_long_g(sum, 0) + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK(shmem_long_g(sum, 0) == 50 * pes, "sum under a lock %ld, should be %d", shmem_long_g(sum, 0), 50 * pes);
    shmem_barrier_all();
    shmem_free(sum);
}

int main(void)
{
    start();
    adds();
    passed("fetch_add, inc, add");
    compare_swap();
    passed("compare_swap");
    swaps();
    passed("swap");
    bits();
    passed("and, or, xor, fetch, set");
    locks();
    passed("locks");
    shmem_finalize();
    return 0;
}
