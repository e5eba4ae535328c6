//! Remote memory of the soak test: each thread of each process has a slot of its own in every window.
#include "soak.h"

#include <string.h>

static size_t slot_offset(int process, int thread)
{
    return (size_t)(process * threads + thread) * SLOT;
}

/** Behind the slots: counters of 64 and of 32 bits for each thread of each process. */
static size_t counter_offset(int process, int thread)
{
    return (size_t)processes * (size_t)threads * SLOT + (size_t)(process * threads + thread) * 16;
}

void put_and_get(thread_t *t, int to)
{
    size_t length = 1 + draw_length(t, SLOT - 1), offset = draw(t) % (SLOT - length + 1);
    uint64_t remote = shared->process[to].window + slot_offset(me, t->number) + offset;
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint32_t of = draw(t);

    fill(t->scratch, 0, length, of);
    check_status(wait_for(ucp_put_nbx(endpoints[to], t->scratch, length, remote, keys[to], &param), "put"), "put");
    check_status(wait_for(ucp_ep_flush_nbx(endpoints[to], &param), "flush"), "flush");
    count(PUT, length);
    memset(t->scratch, 0xcc, length + 1);
    check_status(wait_for(ucp_get_nbx(endpoints[to], t->scratch, length, remote, keys[to], &param), "get"), "get");
    verify(t->scratch, 0, length, of, "what was put, got back");
    CHECK(t->scratch[length] == 0xcc, "a get of %zu bytes wrote one more", length);
    count(GET, length);
}

void add(thread_t *t, int to)
{
    uint64_t remote = shared->process[to].window + counter_offset(me, t->number), one = 1, before = 0;
    uint32_t one_small = 1, before_small = 0;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER};
    long have = atomic_load(&shared->added[to][me * threads + t->number]);

    param.datatype = ucp_dt_make_contig(8);
    param.reply_buffer = &before;
    check_status(
        wait_for(ucp_atomic_op_nbx(endpoints[to], UCP_ATOMIC_OP_ADD, &one, 1, remote, keys[to], &param), "add"), "add");
    CHECK((long)before == have, "a counter without other writers was %lu, should be %ld", (unsigned long)before, have);
    param.datatype = ucp_dt_make_contig(4);
    param.reply_buffer = &before_small;
    check_status(
        wait_for(ucp_atomic_op_nbx(endpoints[to], UCP_ATOMIC_OP_ADD, &one_small, 1, remote + 8, keys[to], &param),
                 "add"),
        "add of 32 bits");
    CHECK(before_small == (uint32_t)have, "a counter of 32 bits was %u, should be %ld", before_small, have);
    atomic_store(&shared->added[to][me * threads + t->number], have + 1);
    count(ADD, 12);
}

size_t window_size(void)
{
    return counter_offset(processes, 0);
}

void check_counters(void)
{
    for (int p = 0; p < processes; p++) {
        for (int i = 0; i < threads; i++) {
            uint64_t wide;
            uint32_t narrow;
            long want = atomic_load(&shared->added[me][p * threads + i]);

            memcpy(&wide, window + counter_offset(p, i), sizeof(wide));
            memcpy(&narrow, window + counter_offset(p, i) + 8, sizeof(narrow));
            CHECK((long)wide == want && narrow == (uint32_t)want, "a counter is %lu and %u, should be %ld",
                  (unsigned long)wide, narrow, want);
        }
    }
}
