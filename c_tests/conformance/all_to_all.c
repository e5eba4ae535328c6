/* Many processes, all with all: messages, atomics on one counter, and an orderly end. */
#define _GNU_SOURCE
#include "bed.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef FEW
enum { RANKS = 16, ROUNDS = 12, ADDITIONS = 1000, KEY_MAX = 1024 };
#else /* where every packet is made by an emulated processor: c_tests/rxe */
enum { RANKS = 4, ROUNDS = 12, ADDITIONS = 100, KEY_MAX = 1024 };
#endif

/* Shared by the processes outside of UCP. */
typedef struct {
    atomic_int arrived;
    char       addresses[RANKS][BED_ADDRESS_MAX];
    uint64_t   counter_address;
    char       counter_key[KEY_MAX];
    uint64_t   counter;
    int        good[RANKS], bad[RANKS], closed[RANKS];
    char       failure_text[RANKS][64];
} board_t;

typedef struct {
    int           rank;
    ucp_context_h context;
    ucp_worker_h  worker;
    ucp_ep_h      eps[RANKS];
} rank_t;

static board_t *board;

static void exit_with(const rank_t *self, const char *why)
{
    snprintf(board->failure_text[self->rank], sizeof(board->failure_text[0]), "%s", why);
    _exit(3);
}

static void turn(rank_t *self, time_t end, const char *what)
{
    if (ucp_worker_progress(self->worker) == 0) {
        sched_yield();
        if (time(NULL) > end) {
            exit_with(self, what);
        }
    }
}

static void barrier(rank_t *self, int number)
{
    time_t end = time(NULL) + 40;

    atomic_fetch_add(&board->arrived, 1);
    while (atomic_load(&board->arrived) < number * RANKS) {
        turn(self, end, "HANG at a barrier");
    }
}

static ucs_status_t wait_for(rank_t *self, ucs_status_ptr_t request)
{
    time_t end = time(NULL) + 40;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        turn(self, end, "HANG in an operation");
    }
    ucs_status_t status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
}

static void join(rank_t *self)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                         .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_address_t      *address;
    size_t              length;

    if (ucp_init(&params, NULL, &self->context) != UCS_OK ||
        ucp_worker_create(self->context, &worker_params, &self->worker) != UCS_OK ||
        ucp_worker_get_address(self->worker, &address, &length) != UCS_OK || length > BED_ADDRESS_MAX) {
        exit_with(self, "no worker");
    }
    memcpy(board->addresses[self->rank], address, length);
    ucp_worker_release_address(self->worker, address);
    barrier(self, 1);
    for (int rank = 0; rank < RANKS; rank++) {
        ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                     .address    = (void *)board->addresses[rank]};
        if (ucp_ep_create(self->worker, &ep_params, &self->eps[rank]) != UCS_OK) {
            exit_with(self, "no endpoint");
        }
    }
}

static size_t size_of(int round)
{
    static const size_t sizes[] = {8, 5000, 70000, 0};

    return sizes[round % 4];
}

static unsigned seed_of(int from, int to, int round)
{
    return (unsigned)(from * 1000000 + to * 1000 + round);
}

/* One message to every process and one from each, the own one included. */
static void exchange(rank_t *self, int round)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    received[RANKS], sent[RANKS];
    char               *in[RANKS], *out[RANKS];
    size_t              size = size_of(round);

    for (int other = 0; other < RANKS; other++) {
        in[other]       = malloc(size + 1);
        received[other] = ucp_tag_recv_nbx(self->worker, in[other], size, (ucp_tag_t)other << 32 | (unsigned)round, -1,
                                           &param);
    }
    for (int i = 0; i < RANKS; i++) {
        int other   = (self->rank + i) % RANKS;
        out[other]  = data_make(size, seed_of(self->rank, other, round));
        sent[other] = ucp_tag_send_nbx(self->eps[other], out[other], size,
                                       (ucp_tag_t)self->rank << 32 | (unsigned)round, &param);
    }
    for (int other = 0; other < RANKS; other++) {
        int fine = wait_for(self, received[other]) == UCS_OK && wait_for(self, sent[other]) == UCS_OK &&
                   data_check(in[other], size, seed_of(other, self->rank, round))[0] == 'g';
        board->good[self->rank] += fine;
        board->bad[self->rank] += !fine;
        free(in[other]);
        free(out[other]);
    }
}

/* Rank 0's counter, to which all add, 0 through its endpoint to itself. */
static ucp_mem_h expose_counter(rank_t *self)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = 4096, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_h            memh   = NULL;
    void                *packed;
    size_t               length;

    if (self->rank == 0) {
        if (ucp_mem_map(self->context, &params, &memh) != UCS_OK || ucp_mem_query(memh, &attr) != UCS_OK ||
            ucp_rkey_pack(self->context, memh, &packed, &length) != UCS_OK || length > KEY_MAX) {
            exit_with(self, "no counter");
        }
        memset(attr.address, 0, 4096);
        board->counter_address = (uint64_t)(uintptr_t)attr.address;
        memcpy(board->counter_key, packed, length);
        ucp_rkey_buffer_release(packed);
    }
    return memh;
}

static void count(rank_t *self)
{
    ucp_mem_h           memh  = expose_counter(self);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    uint64_t            one   = 1;
    ucp_rkey_h          rkey;

    barrier(self, 2);
    if (ucp_ep_rkey_unpack(self->eps[0], board->counter_key, &rkey) != UCS_OK) {
        exit_with(self, "no key");
    }
    for (int i = 0; i < ADDITIONS; i++) {
        ucs_status_t status = wait_for(self, ucp_atomic_op_nbx(self->eps[0], UCP_ATOMIC_OP_ADD, &one, 1,
                                                               board->counter_address, rkey, &param));
        board->bad[self->rank] += status != UCS_OK;
    }
    param.op_attr_mask = 0;
    wait_for(self, ucp_worker_flush_nbx(self->worker, &param));
    barrier(self, 3);
    ucp_rkey_destroy(rkey);
    if (memh != NULL) {
        board->counter = *(volatile uint64_t *)(uintptr_t)board->counter_address;
        ucp_mem_unmap(self->context, memh);
    }
}

static void leave(rank_t *self)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (int rank = 0; rank < RANKS; rank++) {
        board->closed[self->rank] += wait_for(self, ucp_ep_close_nbx(self->eps[rank], &param)) == UCS_OK;
    }
    barrier(self, 4);
    ucp_worker_destroy(self->worker);
    ucp_cleanup(self->context);
}

static void live(int rank)
{
    rank_t self = {.rank = rank};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    join(&self);
    if (rank == 0) {
        bed_maps_record('A');
    }
    for (int round = 0; round < ROUNDS; round++) {
        exchange(&self, round);
    }
    count(&self);
    leave(&self);
    exit(0);
}

int main(void)
{
    int good = 0, bad = 0, closed = 0, failed = 0, status;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) {
            live(rank);
        }
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        good += board->good[rank];
        bad += board->bad[rank];
        closed += board->closed[rank];
        if (board->failure_text[rank][0] != '\0') {
            printf("rank %d: %s\n", rank, board->failure_text[rank]);
        }
    }
    printf("processes that failed %d, messages good %d, bad %d, counter %lu, closed %d\n", failed, good, bad,
           (unsigned long)board->counter, closed);
    return failed != 0;
}
