//! Accumulates of one origin to one location take effect in the order of the calls, whatever their lengths (MPI's
//! default `accumulate_ordering`): a short one behind a long one, with MPI_Fetch_and_op and MPI_Get_accumulate among
//! them.
//!
//!   accumulate [EPOCHS]
//!
//! Each origin has a slot of its own in each target's window and applies the same operations to a local copy.

#include "../random.h"
#include "mapped_ucp.h"
#include "watchdog.h"

#include <stdint.h>

#define COMM MPI_COMM_WORLD

enum { EPOCHS = 60, SLOT = (1 << 20) + 4096, ELEMENTS = SLOT / 8, OPERATIONS = 8, MAX_LARGE = 3 };

/** One operation: the data it sends, the data it fetches, the expected data. */
struct operation {
    int64_t *data, *fetched, *expected;
    size_t offset, count; /* elements */
};

/** An epoch at one target: all operations in it use `op`, or MPI_NO_OP. */
struct epoch {
    int target;
    MPI_Op op;
    MPI_Aint slot;
    int64_t *model; /* expected contents of the slot after all operations so far */
    struct operation operations[OPERATIONS];
    int count;
};

static int64_t *base;
static MPI_Win window;

static size_t large(unsigned *state)
{
    static const size_t thresholds[] = {8 << 10, 24 << 10, 64 << 10, (64 << 10) + 64, 1 << 20};
    size_t bytes = thresholds[next_random(state) % 5];

    return (bytes + 8 * (next_random(state) % 19) - 72) / 8;
}

/** The next operation of `count` elements at `offset`, with data of its own; applies it to the local copy. */
static struct operation *plan_operation(struct epoch *epoch, size_t offset, size_t count, int changes, int fetches)
{
    struct operation *operation = &epoch->operations[epoch->count++];
    static int64_t serial;

    CHECK(offset + count <= ELEMENTS, "operation beyond the slot");
    serial++;
    *operation = (struct operation){.offset = offset, .count = count};
    operation->data = allocate(count * 8);
    if (fetches) {
        operation->fetched = allocate(count * 8);
        operation->expected = allocate(count * 8);
        memset(operation->fetched, 0x77, count * 8);
        memcpy(operation->expected, epoch->model + offset, count * 8);
    }
    for (size_t i = 0; i < count; i++) {
        operation->data[i] = serial << 24 | (int64_t)i;
        if (changes) {
            epoch->model[offset + i] = operation->data[i] + (epoch->op == MPI_SUM ? epoch->model[offset + i] : 0);
        }
    }
    return operation;
}

static void accumulate(struct epoch *epoch, size_t offset, size_t count)
{
    struct operation *o = plan_operation(epoch, offset, count, 1, 0);

    MPI_Accumulate(o->data, (int)count, MPI_INT64_T, epoch->target, epoch->slot + (MPI_Aint)offset * 8,
                   (int)count, MPI_INT64_T, epoch->op, window);
}

static void fetch_and_op(struct epoch *epoch, size_t offset, int changes)
{
    struct operation *o = plan_operation(epoch, offset, 1, changes, 1);

    MPI_Fetch_and_op(o->data, o->fetched, MPI_INT64_T, epoch->target, epoch->slot + (MPI_Aint)offset * 8,
                     changes ? epoch->op : MPI_NO_OP, window);
}

static void get_accumulate(struct epoch *epoch, size_t offset, size_t count, int changes)
{
    struct operation *o = plan_operation(epoch, offset, count, changes, 1);

    MPI_Get_accumulate(o->data, (int)count, MPI_INT64_T, o->fetched, (int)count, MPI_INT64_T, epoch->target,
                       epoch->slot + (MPI_Aint)offset * 8, (int)count, MPI_INT64_T, changes ? epoch->op : MPI_NO_OP,
                       window);
}

static void verify_elements(const int64_t *is, const int64_t *should_be, size_t count, const char *what, int number)
{
    for (size_t i = 0; i < count; i++) {
        CHECK(is[i] == should_be[i], "%s %d: element %zu of %zu is 0x%llx, should be 0x%llx", what, number, i, count,
              (unsigned long long)is[i], (unsigned long long)should_be[i]);
    }
}

/** Completes the epoch: the fetched data is right, and the slot equals the local copy. */
static void finish(struct epoch *epoch)
{
    int64_t *slot = allocate(SLOT);

    MPI_Win_flush(epoch->target, window);
    for (int i = 0; i < epoch->count; i++) {
        struct operation *operation = &epoch->operations[i];

        if (operation->fetched != NULL) {
            verify_elements(operation->fetched, operation->expected, operation->count, "fetched by operation", i);
        }
        free(operation->data);
        free(operation->fetched);
        free(operation->expected);
    }
    MPI_Get(slot, ELEMENTS, MPI_INT64_T, epoch->target, epoch->slot, ELEMENTS, MPI_INT64_T, window);
    MPI_Win_flush(epoch->target, window);
    verify_elements(slot, epoch->model, ELEMENTS, "slot after operations", epoch->count);
    free(slot);
    epoch->count = 0;
}

/** A long accumulate, followed by a short one to its first, middle or last element; another long one may follow. */
static void short_behind_long(struct epoch *epoch, unsigned *state)
{
    size_t count = large(state), places[] = {0, count / 2, count - 1};
    size_t offset = next_random(state) % (ELEMENTS - count), place = offset + places[next_random(state) % 3];

    accumulate(epoch, offset, count);
    accumulate(epoch, place, 1);
    if (next_random(state) % 2 == 0) {
        accumulate(epoch, offset, count);
        accumulate(epoch, place, 1);
    }
    finish(epoch);
}

/** Operations of all kinds that overlap. */
static void mixed(struct epoch *epoch, unsigned *state)
{
    size_t count = large(state), offset = next_random(state) % (ELEMENTS - count);

    accumulate(epoch, offset, count);
    for (int i = 1, larges = 1; i < OPERATIONS; i++) {
        unsigned random = next_random(state);
        int changes = random / 8 % 4 != 0, is_large = random / 64 % 4 == 0 && larges < MAX_LARGE;
        size_t length = is_large ? count : 1 + random / 256 % 8;
        size_t place = is_large ? 0 : next_random(state) % (count - length);

        larges += is_large;
        switch (random % 4) {
        case 0: fetch_and_op(epoch, offset + place, changes); break;
        case 1: get_accumulate(epoch, offset + place, length, changes); break;
        default: accumulate(epoch, offset + place, length); break;
        }
    }
    finish(epoch);
}

int main(int argc, char **argv)
{
    unsigned epochs, state;
    int64_t *models;

    start(&argc, &argv);
    report_mapped_ucp();
    epochs = argc > 1 ? (unsigned)atoi(argv[1]) : EPOCHS;
    CHECK(epochs > 0, "usage: accumulate [EPOCHS]");
    state = 200 + (unsigned)world_rank;
    MPI_Win_allocate((MPI_Aint)world_size * SLOT, 1, MPI_INFO_NULL, COMM, &base, &window);
    memset(base, 0, (size_t)world_size * SLOT);
    models = calloc((size_t)world_size, SLOT);
    CHECK(models != NULL, "no memory");
    MPI_Barrier(COMM);
    MPI_Win_lock_all(0, window);
    for (unsigned i = 0; i < epochs; i++) {
        int target = (int)(next_random(&state) % (unsigned)world_size);
        struct epoch epoch = {.target = target, .op = i % 4 < 3 ? MPI_REPLACE : MPI_SUM,
                              .slot = (MPI_Aint)world_rank * SLOT, .model = models + (size_t)target * ELEMENTS};

        watchdog("epoch", i);
        if (i % 2 == 0) {
            short_behind_long(&epoch, &state);
        } else {
            mixed(&epoch, &state);
        }
    }
    MPI_Win_unlock_all(window);
    passed("accumulates of one origin in order");
    MPI_Win_free(&window);
    free(models);
    watchdog("the end, behind epoch", epochs);
    MPI_Finalize();
    watchdog_off();
    return 0;
}
