//! OpenSHMEM collectives with verified data: broadcast, collect, fcollect, alltoall, reductions, barriers.
#include "check.h"

static const int counts[] = {1, 5, 100, 1000, 30000};
#define COUNTS (sizeof(counts) / sizeof(*counts))
#define LARGEST 30000
/** Enough for any of the collectives. */
#define SYNC_WORDS (SHMEM_BCAST_SYNC_SIZE + SHMEM_COLLECT_SYNC_SIZE + SHMEM_ALLTOALL_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE)

static long sync_words[2][SYNC_WORDS];
/** Working memory of reductions. */
static long *work;

/** Each collective uses the words alone, and they must have their initial values before the next one. */
static long *fresh_sync(void)
{
    static int turn;

    shmem_barrier_all();
    turn ^= 1;
    return sync_words[turn];
}

static void broadcasts(void)
{
    int *source = symmetric(LARGEST * sizeof(int)), *target = symmetric(LARGEST * sizeof(int));

    for (size_t c = 0; c < COUNTS; c++) {
        for (int root = 0; root < pes; root++) {
            for (int i = 0; i < counts[c]; i++) {
                source[i] = me * 100000 + i;
                target[i] = -1;
            }
            shmem_broadcast32(target, source, counts[c], root, 0, 0, pes, fresh_sync());
            for (int i = 0; i < counts[c]; i++) {
                int want = me == root ? -1 : root * 100000 + i; /* the root's target is not written */

                CHECK(target[i] == want, "broadcast of %d from %d: element %d is %d", counts[c], root, i, target[i]);
            }
        }
    }
    shmem_barrier_all();
    shmem_free(target);
    shmem_free(source);
}

static void collects(void)
{
    long *source = symmetric(LARGEST * sizeof(long)), *target = symmetric((size_t)LARGEST * pes * sizeof(long));

    for (size_t c = 0; c < COUNTS; c++) {
        int place = 0;

        for (int i = 0; i < counts[c]; i++) {
            source[i] = me * 1000000l + i;
        }
        memset(target, 0xff, (size_t)LARGEST * pes * sizeof(long));
        shmem_fcollect64(target, source, counts[c], 0, 0, pes, fresh_sync());
        for (int pe = 0; pe < pes; pe++) {
            for (int i = 0; i < counts[c]; i++) {
                CHECK(target[pe * counts[c] + i] == pe * 1000000l + i, "fcollect of %d: element %d of PE %d", counts[c],
                      i, pe);
            }
        }
        shmem_barrier_all();
        memset(target, 0xff, (size_t)LARGEST * pes * sizeof(long));
        /* Of different lengths: PE n gives n elements fewer. */
        shmem_collect64(target, source, counts[c] > me ? counts[c] - me : 0, 0, 0, pes, fresh_sync());
        for (int pe = 0; pe < pes; pe++) {
            for (int i = 0; i < counts[c] - pe; i++) {
                CHECK(target[place] == pe * 1000000l + i, "collect of %d: element %d of PE %d is %ld", counts[c], i, pe,
                      target[place]);
                place++;
            }
        }
        shmem_barrier_all();
    }
    shmem_free(target);
    shmem_free(source);
}

static void alltoalls(void)
{
    enum { MOST = 1000 };
    long *source = symmetric((size_t)MOST * pes * sizeof(long)), *target = symmetric((size_t)MOST * pes * sizeof(long));

    for (size_t c = 0; c < COUNTS && counts[c] <= MOST; c++) {
        for (int pe = 0; pe < pes; pe++) {
            for (int i = 0; i < counts[c]; i++) {
                source[pe * counts[c] + i] = (me * 100l + pe) * 10000 + i;
                target[pe * counts[c] + i] = -1;
            }
        }
        shmem_alltoall64(target, source, counts[c], 0, 0, pes, fresh_sync());
        for (int pe = 0; pe < pes; pe++) {
            for (int i = 0; i < counts[c]; i++) {
                CHECK(target[pe * counts[c] + i] == (pe * 100l + me) * 10000 + i, "alltoall of %d: element %d of PE %d",
                      counts[c], i, pe);
            }
        }
        shmem_barrier_all();
    }
    shmem_free(target);
    shmem_free(source);
}

static void reductions(void)
{
    enum { MOST = 1000 };
    long *source = symmetric(MOST * sizeof(long)), *target = symmetric(MOST * sizeof(long));
    double *terms = symmetric(MOST * sizeof(double)), *sums = symmetric(MOST * sizeof(double));

    for (size_t c = 0; c < COUNTS && counts[c] <= MOST; c++) {
        int count = counts[c];

        for (int i = 0; i < count; i++) {
            source[i] = (me + 1) * 7l + i;
            terms[i] = me * 0.5 + i;
        }
        shmem_long_sum_to_all(target, source, count, 0, 0, pes, work, fresh_sync());
        for (int i = 0; i < count; i++) {
            CHECK(target[i] == pes * (pes + 1) / 2 * 7l + (long)pes * i, "sum: element %d is %ld", i, target[i]);
        }
        shmem_long_max_to_all(target, source, count, 0, 0, pes, work, fresh_sync());
        for (int i = 0; i < count; i++) {
            CHECK(target[i] == pes * 7l + i, "max: element %d is %ld", i, target[i]);
        }
        shmem_long_min_to_all(target, source, count, 0, 0, pes, work, fresh_sync());
        for (int i = 0; i < count; i++) {
            CHECK(target[i] == 7l + i, "min: element %d is %ld", i, target[i]);
        }
        shmem_double_sum_to_all(sums, terms, count, 0, 0, pes, (double *)work, fresh_sync());
        for (int i = 0; i < count; i++) {
            CHECK(sums[i] == pes * (pes - 1) / 2 * 0.5 + (double)pes * i, "sum of doubles: element %d is %f", i,
                  sums[i]);
        }
        for (int i = 0; i < count; i++) {
            source[i] = 1l << (me + i % 8);
        }
        shmem_long_or_to_all(target, source, count, 0, 0, pes, work, fresh_sync());
        for (int i = 0; i < count; i++) {
            CHECK(target[i] == ((1l << pes) - 1) << i % 8, "or: element %d is %#lx", i, target[i]);
        }
    }
    shmem_barrier_all();
    shmem_free(sums);
    shmem_free(terms);
    shmem_free(target);
    shmem_free(source);
}

/** No PE leaves a barrier before every PE has entered it. */
static void barriers(void)
{
    long *arrived = symmetric(sizeof(*arrived));

    *arrived = 0;
    shmem_barrier_all();
    for (int round = 1; round <= 200; round++) {
        for (int pe = 0; pe < pes; pe++) {
            shmem_long_atomic_inc(arrived, pe);
        }
        shmem_barrier_all();
        CHECK(*arrived >= (long)round * pes, "round %d: only %ld had come", round, *arrived);
        shmem_barrier_all();
    }
    shmem_free(arrived);
}

int main(void)
{
    start();
    work = symmetric((1000 + SHMEM_REDUCE_MIN_WRKDATA_SIZE) * sizeof(*work));
    for (int i = 0; i < SYNC_WORDS; i++) {
        sync_words[0][i] = sync_words[1][i] = SHMEM_SYNC_VALUE;
    }
    shmem_barrier_all();
    barriers();
    passed("barriers");
    broadcasts();
    passed("broadcast");
    collects();
    passed("collect, fcollect");
    alltoalls();
    passed("alltoall");
    reductions();
    passed("reductions");
    shmem_finalize();
    return 0;
}
