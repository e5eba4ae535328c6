//! Random access (GUPS): both processes update random words of a table that lies half in each of them.
//!
//! As in HPC Challenge: a word is combined with a random number by exclusive or, at most 1,024 updates are in flight,
//! and doing everything twice must restore the table. By atomics every word must be right again; by get and put,
//! updates of the same word at the same time may be lost, at most one percent.
#include "pair.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_AHEAD = 1024, WORDS = LARGEST / 8 };

struct table {
    struct side side;
    ucp_ep_h self;          /* to this process's own worker */
    ucp_ep_h ep[2];         /* to the process that has this part of the table */
    ucp_rkey_h rkey[2];
    uint64_t address[2];    /* of each process's words */
    ucs_status_ptr_t requests[LOOK_AHEAD];
    uint64_t words[LOOK_AHEAD];
    uint64_t random;
};

static uint64_t next_random(struct table *table)
{
    /* The polynomial of HPC Challenge. */
    table->random = table->random << 1 ^ ((int64_t)table->random < 0 ? 7 : 0);
    return table->random;
}

/** Far apart in the same sequence of random numbers for the two processes. */
static void seed(struct table *table)
{
    table->random = table->side.place.index == 0 ? 1 : 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < 128; i++) {
        next_random(table);
    }
}

static int owner(uint64_t random)
{
    return (int)(random / WORDS % 2);
}

static uint64_t address_of(const struct table *table, uint64_t random)
{
    return table->address[owner(random)] + random % WORDS * 8;
}

static void complete_all(struct table *table)
{
    for (int i = 0; i < LOOK_AHEAD; i++) {
        wait_for(&table->side, table->requests[i], "update");
    }
}

static void flush_worker(struct table *table)
{
    wait_for(&table->side, ucp_worker_flush_nbx(table->side.worker, &plain), "ucp_worker_flush_nbx");
}

static void update_by_atomics(struct table *table)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    for (int i = 0; i < LOOK_AHEAD; i++) {
        uint64_t random = table->words[i] = next_random(table);
        int at = owner(random);

        table->requests[i] = ucp_atomic_op_nbx(table->ep[at], UCP_ATOMIC_OP_XOR, &table->words[i], 1,
                                               address_of(table, random), table->rkey[at], &param);
    }
    flush_worker(table);
    complete_all(table);
}

static void update_by_get_and_put(struct table *table)
{
    uint64_t random[LOOK_AHEAD];

    for (int i = 0; i < LOOK_AHEAD; i++) {
        int at = owner(random[i] = next_random(table));

        table->requests[i] = ucp_get_nbx(table->ep[at], &table->words[i], 8, address_of(table, random[i]),
                                         table->rkey[at], &plain);
    }
    complete_all(table);
    for (int i = 0; i < LOOK_AHEAD; i++) {
        int at = owner(random[i]);

        table->words[i] ^= random[i];
        table->requests[i] = ucp_put_nbx(table->ep[at], &table->words[i], 8, address_of(table, random[i]),
                                         table->rkey[at], &plain);
    }
    flush_worker(table);
    complete_all(table);
}

/** All updates of one process, in parallel with the other one; returns the seconds. */
static double pass(struct table *table, void (*update)(struct table *), long batches)
{
    double begin;

    seed(table);
    meet_other(&table->side);
    begin = now();
    for (long i = 0; i < batches; i++) {
        update(table);
    }
    meet_other(&table->side);
    return now() - begin;
}

static void measure(struct table *table, const char *name, void (*update)(struct table *), long batches,
                    double tolerated)
{
    uint64_t *own = (uint64_t *)(void *)table->side.allocated.own;
    long wrong = 0;
    double seconds;

    for (long i = 0; i < WORDS; i++) {
        own[i] = (uint64_t)i;
    }
    meet_other(&table->side);
    seconds = pass(table, update, batches);
    pass(table, update_by_atomics, batches);
    for (long i = 0; i < WORDS; i++) {
        wrong += own[i] != (uint64_t)i;
    }
    if ((double)wrong > tolerated * WORDS) {
        die("%s: %ld of %d words are wrong", name, wrong, WORDS);
    }
    if (table->side.place.index == 0) {
        figure(name, -1, 2.0 * (double)batches * LOOK_AHEAD / seconds / 1e6, "M/s");
    }
    meet_other(&table->side);
}

static void open_table(struct table *table)
{
    ucp_ep_params_t ep = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    int here = table->side.place.index;
    size_t length;
    void *key;

    check(ucp_worker_get_address(table->side.worker, (ucp_address_t **)&ep.address, &length), "ucp_worker_get_address");
    check(ucp_ep_create(table->side.worker, &ep, &table->self), "ucp_ep_create");
    ucp_worker_release_address(table->side.worker, (ucp_address_t *)ep.address);
    table->ep[here] = table->self;
    table->ep[!here] = table->side.ep;
    table->address[here] = (uint64_t)(uintptr_t)table->side.allocated.own;
    table->address[!here] = table->side.allocated.remote;
    check(ucp_rkey_pack(table->side.context, table->side.allocated.memory, &key, &length), "ucp_rkey_pack");
    check(ucp_ep_rkey_unpack(table->self, key, &table->rkey[here]), "ucp_ep_rkey_unpack");
    ucp_rkey_buffer_release(key);
    table->rkey[!here] = table->side.allocated.rkey;
}

static void play(struct place place, void *argument)
{
    static struct table table;
    const struct effort *effort = argument;
    long batches = effort->quick ? 4 : 100;

    open_side(&table.side, place, effort, UCP_FEATURE_RMA | UCP_FEATURE_AMO64);
    open_regions(&table.side);
    open_table(&table);
    meet_other(&table.side);
    pass(&table, update_by_atomics, 2); /* connects */
    measure(&table, "gups_atomic", update_by_atomics, batches, 0);
    measure(&table, "gups_get_put", update_by_get_and_put, effort->quick ? 2 : 20, 0.01);
    ucp_rkey_destroy(table.rkey[place.index]);
    wait_for(&table.side, ucp_ep_close_nbx(table.self, &plain), "ucp_ep_close_nbx");
    close_side(&table.side);
}

int run_gups(const struct effort *effort, int argc, char **argv)
{
    (void)argc, (void)argv;
    return start_pair(play, (void *)effort);
}
