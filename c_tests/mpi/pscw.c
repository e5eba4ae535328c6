//! MPI_Win_post, start, complete, wait in groups and orders that differ from round to round: nothing hangs, all data
//! arrive.
//!
//!   pscw [ROUNDS [unordered]]
//!
//! Open MPI takes any groups, and nothing but these calls separates the rounds, so that neighbours are several rounds
//! apart. MPICH counts the posts of all ranks in one number, and MPI_Win_start returns when the number is equal to the
//! size of its group: it hangs when the post of a rank that is a round ahead is counted first, or before it
//! looks. Behind rounds after which that can be there is a barrier, which `unordered` leaves out: then MPICH depends on
//! the order in which messages of different senders arrive and on how many of them one call of progress hands over, and
//! on a loaded machine it hangs on UCX, too.

#include "../random.h"
#include "mapped_ucp.h"
#include "watchdog.h"

#define COMM MPI_COMM_WORLD

enum { MAX_RANKS = 16, ROUNDS = 1000, SLOT = 70000, SMALL = 1000, CONSTANT = 64 };

/** The origins and targets of one round. All ranks compute the same. */
struct plan {
    int edge[MAX_RANKS][MAX_RANKS]; /* [origin][target] */
    int barrier;                    /* behind the round, for MPICH */
    int cyclic;                     /* some rank waits for a rank that waits for it */
    size_t size[MAX_RANKS][MAX_RANKS];
};

/** The local part of the window: a slot for each origin, then bytes that never change. */
static char *base;
static MPI_Win window;
static MPI_Group world;
static int unordered;

/** Expected contents of the slots: the size and seed of the last put into each. */
static size_t held_size[MAX_RANKS];
static unsigned held_seed[MAX_RANKS];

static unsigned seed_of(int origin, int target, unsigned round)
{
    return round * 64 + (unsigned)(origin * 8 + target);
}

enum shape { ALL_TO_ALL, ALL_TO_ONE, ONE_TO_ALL, RANDOM, RANDOM_UPWARDS };

static enum shape next_shape(unsigned *state)
{
    return (enum shape)(next_random(state) % 5);
}

/** A message from each rank to each: connections are made, which change the order of messages on some transports. */
static void connect_all(void)
{
    for (int distance = 1; distance < world_size; distance++) {
        int to = (world_rank + distance) % world_size, from = (world_rank + world_size - distance) % world_size;

        MPI_Sendrecv(NULL, 0, MPI_BYTE, to, 1, NULL, 0, MPI_BYTE, from, 1, COMM, MPI_STATUS_IGNORE);
        MPI_Sendrecv(NULL, 0, MPI_BYTE, from, 1, NULL, 0, MPI_BYTE, to, 1, COMM, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(COMM);
}

static int has_edge(enum shape shape, int origin, int target, int one, unsigned random)
{
    switch (shape) {
    case ALL_TO_ALL: return 1;
    case ALL_TO_ONE: return target == one;
    case ONE_TO_ALL: return origin == one;
    case RANDOM: return random % 2 == 0;
    default: return random % 2 == 0 && origin < target;
    }
}

static void make_plan(struct plan *plan, unsigned *state)
{
    enum shape shape = next_shape(state);
    int one = (int)(next_random(state) % (unsigned)world_size);

    plan->cyclic = shape == ALL_TO_ALL || shape == RANDOM;
#ifdef MPICH_VERSION
    plan->barrier = !unordered && shape != ALL_TO_ALL && shape != ONE_TO_ALL;
#else
    plan->barrier = 0;
#endif
    for (int origin = 0; origin < world_size; origin++) {
        for (int target = 0; target < world_size; target++) {
            unsigned random = next_random(state), size = next_random(state);

            plan->edge[origin][target] = origin != target && has_edge(shape, origin, target, one, random);
            plan->size[origin][target] = 1 + (size % 32 == 0 ? size / 32 % (SLOT - 1) : size % SMALL);
        }
    }
}

/** The other ends of this rank's edges, in an order that differs from rank to rank and from round to round. */
static int members(const struct plan *plan, int as_target, unsigned *state, int ranks[MAX_RANKS])
{
    int count = 0;

    for (int other = 0; other < world_size; other++) {
        if (as_target ? plan->edge[other][world_rank] : plan->edge[world_rank][other]) {
            int place = (int)(next_random(state) % (unsigned)(count + 1));

            ranks[count++] = ranks[place];
            ranks[place] = other;
        }
    }
    return count;
}

static void post(const int *origins, int count)
{
    MPI_Group group;

    MPI_Group_incl(world, count, origins, &group);
    MPI_Win_post(group, 0, window);
    MPI_Group_free(&group);
}

/** Waits for all origins, in MPI_Win_wait or by polling. */
static void wait_for_origins(unsigned *state)
{
    int done = 0;

    if (next_random(state) % 3 != 0) {
        MPI_Win_wait(window);
        return;
    }
    while (!done) {
        MPI_Win_test(window, &done);
    }
}

/** Accesses all targets, if any, between start and complete. */
static void access_targets(const struct plan *plan, const int *targets, int count, unsigned round)
{
    static char out[MAX_RANKS][SLOT], in[MAX_RANKS][CONSTANT];
    MPI_Group group;

    if (count == 0) {
        return; /* MPICH would wait in start until no rank has posted */
    }
    MPI_Group_incl(world, count, targets, &group);
    MPI_Win_start(group, 0, window);
    MPI_Group_free(&group);
    for (int i = 0; i < count; i++) {
        int target = targets[i], size = (int)plan->size[world_rank][target];

        fill(out[i], (size_t)size, seed_of(world_rank, target, round));
        MPI_Put(out[i], size, MPI_BYTE, target, (MPI_Aint)world_rank * SLOT, size, MPI_BYTE, window);
        MPI_Get(in[i], CONSTANT, MPI_BYTE, target, (MPI_Aint)world_size * SLOT, CONSTANT, MPI_BYTE, window);
    }
    MPI_Win_complete(window);
    for (int i = 0; i < count; i++) {
        verify(in[i], CONSTANT, (unsigned)targets[i], "get between start and complete");
    }
}

/** All slots: those of this round's origins are new, the others are as they were. */
static void verify_slots(const struct plan *plan, unsigned round)
{
    char what[80];

    for (int origin = 0; origin < world_size; origin++) {
        if (plan->edge[origin][world_rank]) {
            held_size[origin] = plan->size[origin][world_rank];
            held_seed[origin] = seed_of(origin, world_rank, round);
        }
        snprintf(what, sizeof(what), "round %u: rank %d's slot after wait", round, origin);
        verify(base + (size_t)origin * SLOT, held_size[origin], held_seed[origin], what);
    }
}

/** Exposes the slots to all origins; a rank that has none exposes nothing. */
static void be_target(const int *origins, int count, unsigned *state)
{
    if (count > 0) {
        post(origins, count);
        wait_for_origins(state);
    }
}

/** One round. Where it has no cycles a rank may wait for its origins before or after its accesses: neither blocks. */
static void do_round(unsigned round, unsigned *common, unsigned *own)
{
    int origins[MAX_RANKS], targets[MAX_RANKS], origin_count, target_count;
    struct plan plan;

    make_plan(&plan, common);
    origin_count = members(&plan, 1, own, origins);
    target_count = members(&plan, 0, own, targets);
    if (plan.cyclic) {
        if (origin_count > 0) {
            post(origins, origin_count);
        }
        access_targets(&plan, targets, target_count, round);
        if (origin_count > 0) {
            wait_for_origins(own);
        }
    } else if (next_random(own) % 2 == 0) {
        be_target(origins, origin_count, own);
        access_targets(&plan, targets, target_count, round);
    } else {
        access_targets(&plan, targets, target_count, round);
        be_target(origins, origin_count, own);
    }
    verify_slots(&plan, round);
    if (plan.barrier) {
        MPI_Barrier(COMM);
    }
}

int main(int argc, char **argv)
{
    unsigned rounds, common = 1, own;

    start(&argc, &argv);
    report_mapped_ucp();
    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : ROUNDS;
    unordered = argc > 2 && strcmp(argv[2], "unordered") == 0;
    CHECK(world_size <= MAX_RANKS && rounds > 0 && argc <= 2 + unordered, "usage: pscw [ROUNDS [unordered]]");
    own = 100 + (unsigned)world_rank;
    MPI_Comm_group(COMM, &world);
    MPI_Win_allocate((MPI_Aint)world_size * SLOT + CONSTANT, 1, MPI_INFO_NULL, COMM, &base, &window);
    fill(base + (size_t)world_size * SLOT, CONSTANT, (unsigned)world_rank);
    connect_all();
    for (unsigned round = 0; round < rounds; round++) {
        watchdog("round", round);
        do_round(round, &common, &own);
    }
    watchdog("the end, behind round", rounds);
    passed("post, start, complete, wait in varying groups");
    MPI_Win_free(&window);
    MPI_Group_free(&world);
    MPI_Finalize();
    watchdog_off();
    return 0;
}
