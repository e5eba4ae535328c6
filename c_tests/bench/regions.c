//! Registered memory: the cost of an operation by the number of regions.
//!
//! ucpbench regions NUMBER: NUMBER regions of the program's are registered on each side, 4 KiB of every 8. Figures are
//! the time to register one more and to unregister it, to pack and unpack its key, of a put with its flush by the key
//! of a region, and of one by the key of a region that is unregistered. Where the peer executes puts (UCX_TLS=tcp) it
//! looks up the region each time; rucp rejects the latter, UCX writes.
#define _GNU_SOURCE
#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { LENGTH = 4096, STRIDE = 2 * LENGTH, MAX_REGIONS = 1000000, ROUNDS = 64 };

struct growth {
    const struct effort *effort;
    int regions;
};

/** The program's memory, of which only targets of puts are touched. */
static unsigned char *memory;
/** The key that puts use. */
static struct region target;

static unsigned char *place_of(int index)
{
    return memory + (size_t)index * STRIDE;
}

static ucp_mem_h map(struct side *side, int index)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = place_of(index),
                                   .length = LENGTH};
    ucp_mem_h region;

    check(ucp_mem_map(side->context, &params, &region), "ucp_mem_map");
    return region;
}

static void unmap(struct side *side, ucp_mem_h region)
{
    check(ucp_mem_unmap(side->context, region), "ucp_mem_unmap");
}

/** Directs puts to this region of the other side from now on. */
static void aim_at(struct side *side, ucp_mem_h region, int index)
{
    target.memory = region;
    target.own = place_of(index);
    exchange_region(side, &target);
}

/** Puts may be rejected. */
static void put_flush(struct side *side, size_t size, long rounds)
{
    for (long i = 0; i < rounds && side->place.index == 0; i++) {
        ucs_status_ptr_t request = ucp_put_nbx(side->ep, side->buffer, size, target.remote, target.rkey, &plain);

        end_of(side, ucp_ep_flush_nbx(side->ep, &plain));
        end_of(side, request);
    }
}

static void report(struct side *side, const char *what, int number, double microseconds)
{
    if (side->place.index == 0) {
        figure(what, number, microseconds, "us");
    }
}

/** Registers and unregisters some more, among the others, and packs and unpacks their keys. */
static void measure_calls(struct side *side, int number)
{
    enum { CALLS = 4 };
    static const char *const names[CALLS] = {"regions_map", "regions_pack", "regions_unpack", "regions_unmap"};
    double times[CALLS][MAX_BATCHES];
    ucp_mem_h regions[ROUNDS];
    ucp_rkey_h keys[ROUNDS];
    void *packed[ROUNDS];
    size_t length;

    for (int batch = 0; batch < side->effort->batches; batch++) {
        double at[CALLS + 1];

        at[0] = now();
        for (int i = 0; i < ROUNDS; i++) {
            regions[i] = map(side, number / ROUNDS * i);
        }
        at[1] = now();
        for (int i = 0; i < ROUNDS; i++) {
            check(ucp_rkey_pack(side->context, regions[i], &packed[i], &length), "ucp_rkey_pack");
        }
        at[2] = now();
        for (int i = 0; i < ROUNDS; i++) {
            check(ucp_ep_rkey_unpack(side->ep, packed[i], &keys[i]), "ucp_ep_rkey_unpack");
        }
        at[3] = now();
        for (int i = 0; i < ROUNDS; i++) {
            unmap(side, regions[i]);
        }
        at[4] = now();
        for (int i = 0; i < ROUNDS; i++) {
            ucp_rkey_destroy(keys[i]);
            ucp_rkey_buffer_release(packed[i]);
        }
        for (int call = 0; call < CALLS; call++) {
            times[call][batch] = (at[call + 1] - at[call]) * 1e6 / ROUNDS;
        }
    }
    for (int call = 0; call < CALLS; call++) {
        report(side, names[call], number, median(times[call], side->effort->batches));
    }
}

static void play(struct place place, void *argument)
{
    const struct growth *growth = argument;
    int number = growth->regions;
    ucp_mem_h *regions = calloc((size_t)number, sizeof(*regions));
    ucp_mem_h extra;
    struct side side;

    open_side(&side, place, growth->effort, UCP_FEATURE_RMA);
    memory = mmap(NULL, ((size_t)number + 1) * STRIDE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (regions == NULL || memory == MAP_FAILED) {
        die("no memory");
    }
    for (int i = 0; i < number; i++) {
        regions[i] = map(&side, i);
    }
    measure_calls(&side, number);
    aim_at(&side, regions[0], 0);
    report(&side, "regions_put_flush", number, seconds_per_round(&side, put_flush, 8) * 1e6);
    ucp_rkey_destroy(target.rkey);
    /* Above all others, so that all begin below it. */
    extra = map(&side, number);
    aim_at(&side, extra, number);
    unmap(&side, extra);
    report(&side, "regions_put_refused", number, seconds_per_round(&side, put_flush, 8) * 1e6);
    ucp_rkey_destroy(target.rkey);
    for (int i = 0; i < number; i++) {
        unmap(&side, regions[i]);
    }
    free(regions);
    close_side(&side);
}

int run_regions(const struct effort *effort, int argc, char **argv)
{
    struct growth growth = {.effort = effort};

    if (argc != 2 || (growth.regions = atoi(argv[1])) < ROUNDS || growth.regions > MAX_REGIONS) {
        die("usage: regions NUMBER (%d to %d)", ROUNDS, MAX_REGIONS);
    }
    return start_pair(play, &growth);
}
