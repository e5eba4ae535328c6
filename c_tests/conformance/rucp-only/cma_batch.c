/*
 * Batched CMA: puts and gets of memory that the kernel copies are queued; waiting for one completes it, in the order of
 * fences, and each ends with the status of its own address. The peer does not progress meanwhile.
 */
#define _GNU_SOURCE
#include "exposed.h"
#include "../../random.h"
#include "../tools/no_cma.h"

#include <string.h>

enum { SIZE = 1 << 20, SLOT = 16 << 10, SLOTS = SIZE / SLOT, EPOCHS = 300, LONGEST = 9000 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
static const ucp_request_param_t now   = {.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};

static void expose(party_t *self)
{
    register_memory(self);
    wait_notified_blocking(self);
}

static void expose_and_progress(party_t *self)
{
    register_memory(self);
    WANT_TRUE(wait_notified(self));
}

static void flush(party_t *self)
{
    WANT(UCS_OK, finish(self, ucp_ep_flush_nbx(self->ep, &plain)));
}

static void flush_worker(party_t *self)
{
    WANT(UCS_OK, finish(self, ucp_worker_flush_nbx(self->worker, &plain)));
}

/* Every slot is written at most once between two fences, and again after them; then read. */
static void epochs(void)
{
    party_t               self;
    ucp_rkey_h            rkey = open_memory(&self, SIZE, expose);
    unsigned              random = 1;
    static unsigned char  mine[4][SLOTS][SLOT], model[SIZE], back[SLOTS][SLOT];
    ucs_status_ptr_t      requests[4 * SLOTS], reads[SLOTS];

    for (unsigned epoch = 0; epoch < EPOCHS; epoch++) {
        int count = 0, fences = next_random(&random) % 4;

        for (int part = 0; part <= fences; part++) {
            for (int slot = 0; slot < SLOTS; slot++) {
                size_t size = next_random(&random) % 3 == 0 ? 1 + next_random(&random) % LONGEST
                                                            : 1 + next_random(&random) % 64;
                size_t offset = next_random(&random) % (SLOT - LONGEST);

                if (next_random(&random) % 4 == 0) {
                    continue;
                }
                memset(mine[part][slot], (int)next_random(&random), size);
                memcpy(model + slot * SLOT + offset, mine[part][slot], size);
                requests[count++] = put(&self, mine[part][slot], size, slot * SLOT + offset, rkey);
                if (next_random(&random) % 64 == 0) {
                    ucp_worker_progress(self.worker);
                }
            }
            WANT(UCS_OK, ucp_worker_fence(self.worker));
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            reads[slot] = get(&self, back[slot], SLOT / 2, slot * SLOT, rkey);
        }
        epoch % 2 ? flush(&self) : flush_worker(&self);
        WANT_TRUE(memcmp(there, model, SIZE) == 0);
        while (count > 0) {
            WANT(UCS_OK, finish(&self, requests[--count]));
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            WANT(UCS_OK, finish(&self, reads[slot]));
            WANT_TRUE(memcmp(back[slot], model + slot * SLOT, SLOT / 2) == 0);
        }
    }
    close_memory(&self, rkey);
}

/* Far more than may be queued, and no request is waited for before the last. */
static void many(void)
{
    enum { MANY = 20000 };
    party_t                 self;
    ucp_rkey_h              rkey = open_memory(&self, SIZE, expose);
    static uint64_t         values[MANY];
    static ucs_status_ptr_t requests[MANY];
    unsigned                queued = 0;

    for (unsigned i = 0; i < MANY; i++) {
        values[i] = i * 7 + 1;
        requests[i] = put(&self, &values[i], 8, i * 16, rkey);
        queued += UCS_PTR_IS_PTR(requests[i]);
    }
    WANT_TRUE(queued > 100 && queued <= 2000);
    flush(&self);
    for (unsigned i = 0; i < MANY; i++) {
        WANT(UCS_OK, finish(&self, requests[i]));
        WANT_TRUE(*(uint64_t *)(there + i * 16) == i * 7 + 1);
    }
    close_memory(&self, rkey);
}

/* Operations that must end at once do, whatever is queued. */
static void at_once(void)
{
    party_t          self;
    ucp_rkey_h       rkey     = open_memory(&self, SIZE, expose);
    uint64_t         value[3] = {1, 2, 3};
    ucs_status_ptr_t requests[2];

    requests[0] = put(&self, &value[0], 8, 0, rkey);
    WANT_TRUE(requests[0] == NULL && *(uint64_t *)there == 1);
    requests[1] = put(&self, &value[1], 8, 8, rkey);
    WANT_TRUE(UCS_PTR_IS_PTR(requests[1]));
    WANT_PTR(UCS_OK, ucp_put_nbx(self.ep, &value[2], 8, (uintptr_t)there + 16, rkey, &now));
    WANT_TRUE(*(uint64_t *)(there + 16) == 3);
    WANT(UCS_OK, finish(&self, requests[1]));
    WANT_TRUE(*(uint64_t *)(there + 8) == 2);
    close_memory(&self, rkey);
}

/* Some of them address memory that the peer does not have. */
static void some_fail(int read)
{
    enum { COUNT = 100 };
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, SIZE, expose);
    uint64_t         value[COUNT];
    ucs_status_ptr_t requests[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        value[i] = i + 1;
        *(uint64_t *)(there + 24 * i) = 1000 + i;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t address = i % 7 == 3 ? 4096 : (uintptr_t)there + 24 * i;

        requests[i] = read ? ucp_get_nbx(self.ep, &value[i], 8, address, rkey, &plain)
                           : ucp_put_nbx(self.ep, &value[i], 8, address, rkey, &plain);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t wanted = i + 1;

        if (i % 7 == 3) {
            WANT_TRUE(finish(&self, requests[i]) == UCS_ERR_IO_ERROR);
        } else {
            WANT(UCS_OK, finish(&self, requests[i]));
            wanted = read ? 1000 + i : i + 1;
        }
        WANT_TRUE((read || i % 7 == 3 ? value[i] : *(uint64_t *)(there + 24 * i)) == wanted);
    }
    flush(&self);
    close_memory(&self, rkey);
}

static void some_puts_fail(void)
{
    some_fail(0);
}

static void some_gets_fail(void)
{
    some_fail(1);
}

/* The right to use CMA is lost while some are queued: the peer executes them by messages. */
static void cma_permission_lost(void)
{
    enum { COUNT = 100 };
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, SIZE, expose_and_progress);
    uint64_t         value[COUNT], back[COUNT];
    ucs_status_ptr_t puts[COUNT], gets[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        value[i] = i + 1;
        puts[i]  = put(&self, &value[i], 8, 8 * i, rkey);
    }
    WANT(UCS_OK, ucp_worker_fence(self.worker));
    for (unsigned i = 0; i < COUNT; i++) {
        gets[i] = get(&self, &back[i], 8, 8 * i, rkey);
    }
    WANT_TRUE(forbid_cma() == 0);
    flush(&self);
    for (unsigned i = 0; i < COUNT; i++) {
        WANT(UCS_OK, finish(&self, puts[i]));
        WANT(UCS_OK, finish(&self, gets[i]));
        WANT_TRUE(back[i] == i + 1 && *(uint64_t *)(there + 8 * i) == i + 1);
    }
    close_memory(&self, rkey);
}

/* Operations behind a fence need no progress of the peer either, whatever else waits at the fence. */
static void behind_fences(void)
{
    party_t             self;
    ucp_rkey_h          rkey     = open_memory(&self, SIZE, expose);
    uint64_t            value[6] = {1, 2, 3, 4, 5, 6};
    ucp_dt_iov_t        pieces[] = {{&value[4], 8}, {&value[5], 8}};
    ucp_request_param_t iov      = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = UCP_DATATYPE_IOV};
    ucs_status_ptr_t    requests[6];

    requests[0] = put(&self, &value[0], 8, 0, rkey);
    requests[1] = put(&self, &value[1], 8, 0, rkey);
    requests[2] = ucp_ep_flush_nbx(self.ep, &plain);
    WANT(UCS_OK, ucp_worker_fence(self.worker));
    WANT_TRUE(*(uint64_t *)there == 2);
    requests[3] = put(&self, &value[2], 8, 0, rkey);
    requests[4] = send_tag(&self, &value[0], 8);
    WANT(UCS_OK, ucp_worker_fence(self.worker));
    WANT_TRUE(*(uint64_t *)there == 3);
    requests[5] = put(&self, &value[3], 8, 0, rkey);
    WANT(UCS_OK, ucp_worker_fence(self.worker));
    WANT(UCS_OK, finish(&self, ucp_put_nbx(self.ep, pieces, 2, (uintptr_t)there, rkey, &iov)));
    flush(&self);
    WANT_TRUE(((uint64_t *)there)[0] == 5 && ((uint64_t *)there)[1] == 6);
    for (int i = 0; i < 6; i++) {
        WANT(UCS_OK, finish(&self, requests[i]));
    }
    close_memory(&self, rkey);
}

static void peer_dies(void)
{
    enum { COUNT = 200 };
    party_t          self;
    ucp_rkey_h       rkey = open_memory(&self, SIZE, expose);
    uint64_t         value[COUNT] = {0};
    ucs_status_ptr_t requests[COUNT];

    for (unsigned i = 0; i < COUNT; i++) {
        requests[i] = i % 2 ? put(&self, &value[i], 8, 8 * i, rkey) : get(&self, &value[i], 8, 8 * i, rkey);
    }
    kill_other(&self);
    WANT(UCS_OK, finish(&self, requests[0]));
    for (unsigned i = 1; i < COUNT; i++) {
        WANT_TRUE(is_loss_or_canceled(finish(&self, requests[i])));
    }
    check_failure(&self);
    ucp_rkey_destroy(rkey);
    check_after_failure(&self);
}

/* An endpoint is closed by force while accesses are queued; those of another one to the same peer go on. */
static void closed_by_force(void)
{
    party_t          self;
    ucp_rkey_h       rkey   = open_memory(&self, SIZE, expose);
    party_t          second = self;
    uint64_t         value[4] = {1, 2, 3, 4};
    ucs_status_ptr_t requests[4];

    party_connect(&second, self.theirs, UCP_ERR_HANDLING_MODE_PEER);
    for (unsigned i = 0; i < 4; i++) {
        requests[i] = put(i % 2 ? &second : &self, &value[i], 8, 8 * i, rkey);
    }
    WANT_PTR(UCS_OK, ucp_ep_close_nbx(self.ep, &force));
    WANT(UCS_OK, finish(&self, requests[0]));
    WANT(UCS_OK, finish(&second, requests[1]));
    WANT(UCS_ERR_CANCELED, finish(&self, requests[2]));
    WANT(UCS_OK, finish(&second, requests[3]));
    flush(&second);
    WANT_TRUE(*(uint64_t *)(there + 8) == 2 && *(uint64_t *)(there + 24) == 4);
    close_memory(&second, rkey);
}

static const case_t cases[] = {
    {"cma_batch: in the order of fences", epochs},
    {"cma_batch: behind fences", behind_fences},
    {"cma_batch: more than may be queued", many},
    {"cma_batch: at once", at_once},
    {"cma_batch: some puts fail", some_puts_fail},
    {"cma_batch: some gets fail", some_gets_fail},
    {"cma_batch: the right to copy is lost", cma_permission_lost},
    {"cma_batch: the peer dies", peer_dies},
    {"cma_batch: closed by force", closed_by_force},
};

CHECK_MAIN(cases)
