/*
 * Two endpoints to one worker. A forced close cancels the accesses of one endpoint; a flush of the other, started
 * before them, still waits for the operations in front of it.
 */
#include "check.h"
#include "connect.h"

#include <stdint.h>

enum { GETS = 8, ROUNDS = 20, TURNS = 200 };

static ucp_context_h context;
static ucp_worker_h  here, there;
static uint64_t      words[2], read[GETS];
static uint64_t      one = 1;

static const ucp_request_param_t none  = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)argument, (void)ep;
    WANT_TRUE(status == UCS_OK);
}

static void progress_here(void)
{
    for (int i = 0; i < TURNS; i++) {
        ucp_worker_progress(here);
    }
}

static ucs_status_t finish_with_both(ucs_status_ptr_t request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(here);
        ucp_worker_progress(there);
    }
    ucp_request_free(request);
    return status;
}

static ucp_worker_h open_worker(void)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker;

    WANT(UCS_OK, ucp_worker_create(context, &params, &worker));
    return worker;
}

/* No device executes this in one step: the owner does, when it progresses. */
static ucs_status_ptr_t atomic_xor(ucp_ep_h ep, ucp_rkey_h key)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    return ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_XOR, &one, 1, (uintptr_t)words, key, &param);
}

static void run_round(ucp_ep_h kept_ep, ucp_rkey_h key, const void *packed)
{
    uint64_t         before    = words[0];
    ucp_ep_h         closed_ep = connect_workers(here, there, on_failure, NULL);
    ucs_status_ptr_t flush, gets[GETS];
    ucp_rkey_h       other;

    WANT(UCS_OK, ucp_ep_rkey_unpack(closed_ep, packed, &other));
    WANT(UCS_OK, finish_with_both(ucp_ep_flush_nbx(closed_ep, &none)));
    finish_with_both(atomic_xor(kept_ep, key));
    flush = ucp_ep_flush_nbx(kept_ep, &none);
    progress_here();
    /* Operations after this one are sent as messages, as those before it. */
    WANT(UCS_OK, ucp_worker_fence(here));
    for (int i = 0; i < GETS; i++) {
        gets[i] = ucp_get_nbx(closed_ep, &read[i], sizeof(read[i]), (uintptr_t)&words[1], other, &none);
    }
    progress_here();
    ucp_rkey_destroy(other);
    finish_with_both(ucp_ep_close_nbx(closed_ep, &force));
    for (int i = 0; i < GETS; i++) {
        finish_with_both(gets[i]);
    }
    WANT(UCS_OK, finish_with_both(flush));
    WANT_TRUE(words[0] == (before ^ 1));
}

static void flush_beside_forced_close(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64};
    ucp_mem_map_params_t map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = words,
                                   .length     = sizeof(words)};
    ucp_mem_h  memh;
    ucp_rkey_h key;
    ucp_ep_h   kept_ep;
    size_t     length;
    void      *packed;

    WANT(UCS_OK, ucp_init(&params, NULL, &context));
    here  = open_worker();
    there = open_worker();
    kept_ep = connect_workers(here, there, on_failure, NULL);
    WANT(UCS_OK, ucp_mem_map(context, &map, &memh));
    WANT(UCS_OK, ucp_rkey_pack(context, memh, &packed, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(kept_ep, packed, &key));
    for (int i = 0; i < ROUNDS; i++) {
        run_round(kept_ep, key, packed);
    }
    ucp_rkey_destroy(key);
    ucp_rkey_buffer_release(packed);
    finish_with_both(ucp_ep_close_nbx(kept_ep, &none));
    WANT(UCS_OK, ucp_mem_unmap(context, memh));
    ucp_worker_destroy(here);
    ucp_worker_destroy(there);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"force_closed: a flush of another endpoint waits for the operations before it", flush_beside_forced_close},
};

CHECK_MAIN(cases)
