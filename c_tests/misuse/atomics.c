/*
 * Atomic operations on mapped memory, which complete inside of the call: the bytes they change, and those they must
 * not.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { CALLBACK = UCP_OP_ATTR_FIELD_CALLBACK, USER_DATA = UCP_OP_ATTR_FIELD_USER_DATA, MEMH = UCP_OP_ATTR_FIELD_MEMH,
       REQUEST = UCP_OP_ATTR_FIELD_REQUEST, TYPE = UCP_OP_ATTR_FIELD_DATATYPE, REPLY = UCP_OP_ATTR_FIELD_REPLY_BUFFER };

static const uint64_t before = 0x1122334455667788, operand = 0x0f0f0f0ff0f0f0f1, fresh = 0x7777777799999999;

static int calls;

static void on_end(void *request, ucs_status_t status, void *user_data)
{
    (void)request;
    WANT(UCS_OK, status);
    WANT_TRUE(user_data == &calls);
    calls++;
}

/* With every field of the mask; the reply buffer holds `fresh` before. */
static ucs_status_ptr_t change(fixture_t *fixture, ucp_atomic_op_t op, uint64_t addr, size_t size, uint32_t mask,
                               uint64_t *reply)
{
    static char         memory[4096];
    ucp_request_param_t param = {.op_attr_mask = TYPE | mask,
                                 .datatype     = ucp_dt_make_contig(size),
                                 .reply_buffer = reply,
                                 .request      = memory + sizeof(memory),
                                 .cb.send      = on_end,
                                 .user_data    = &calls,
                                 .memh         = fixture->memh};

    *reply = fresh;
    return ucp_atomic_op_nbx(fixture->ep, op, &operand, 1, addr, fixture->rkey, &param);
}

/* Contents of 8 bytes after an operation on the first `size` of them. */
static uint64_t outcome(ucp_atomic_op_t op, size_t size, uint64_t old)
{
    uint64_t mask = size == 4 ? UINT32_MAX : UINT64_MAX, new = old;

    switch (op) {
    case UCP_ATOMIC_OP_ADD: new = old + operand; break;
    case UCP_ATOMIC_OP_SWAP: new = operand; break;
    case UCP_ATOMIC_OP_CSWAP: new = (old & mask) == (operand & mask) ? fresh : old; break;
    case UCP_ATOMIC_OP_AND: new = old & operand; break;
    case UCP_ATOMIC_OP_OR: new = old | operand; break;
    case UCP_ATOMIC_OP_XOR: new = old ^ operand; break;
    default: WANT_TRUE(0);
    }
    return (old & ~mask) | (new & mask);
}

static void changes(fixture_t *fixture, ucp_atomic_op_t op, size_t size, uint32_t mask, uint64_t old)
{
    uint64_t *word = (uint64_t *)fixture->memory + 5, reply, want = outcome(op, size, old);

    *word = old;
    WANT_PTR(UCS_OK, change(fixture, op, (uintptr_t)word, size, mask, &reply));
    WANT_TRUE(*word == want);
    if (mask & REPLY) {
        WANT_TRUE(memcmp(&reply, &old, size) == 0);
        WANT_TRUE(size == 8 || reply >> 32 == fresh >> 32);
    } else {
        WANT_TRUE(reply == fresh);
    }
    WANT_TRUE(word[-1] == 0 && word[1] == 0);
}

static void operations(void)
{
    static const uint32_t others[] = {0, CALLBACK | USER_DATA, REQUEST | CALLBACK | USER_DATA, MEMH,
                                      UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL, UCP_OP_ATTR_FLAG_FAST_CMPL,
                                      UCP_OP_ATTR_FLAG_MULTI_SEND};
    fixture_t fixture = fixture_open(ALL_FEATURES);

    calls = 0;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        for (size_t size = 4; size <= 8; size += 4) {
            for (int op = 0; op < UCP_ATOMIC_OP_LAST; op++) {
                changes(&fixture, op, size, others[i] | REPLY, before);
                changes(&fixture, op, size, others[i] | REPLY, operand);
                if (op != UCP_ATOMIC_OP_SWAP && op != UCP_ATOMIC_OP_CSWAP) {
                    changes(&fixture, op, size, others[i], before);
                }
            }
        }
    }
    WANT_TRUE(calls == 0);
    fixture_close(&fixture);
}

/* Each completes with a request whose callback was called inside of the call. */
static void with_requests(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    uint64_t *word = (uint64_t *)fixture.memory, reply;

    for (int op = 0; op < UCP_ATOMIC_OP_LAST; op++) {
        calls = 0;
        *word = before;
        ucs_status_ptr_t request = change(&fixture, op, fixture.remote, 8,
                                          REPLY | CALLBACK | USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL, &reply);
        WANT_TRUE(UCS_PTR_IS_PTR(request) && calls == 1);
        WANT(UCS_OK, ucp_request_check_status(request));
        WANT_TRUE(*word == outcome(op, 8, before) && reply == before);
        ucp_request_free(request);
    }
    fixture_close(&fixture);
}

/* The option has the same effect on all operations. */
static void with_requests_by_option(void)
{
    uint64_t reply;

    setenv("UCX_EXTRA_OP_ATTR_FLAGS", "no_imm_cmpl", 1);
    fixture_t fixture = fixture_open(ALL_FEATURES);
    unsetenv("UCX_EXTRA_OP_ATTR_FLAGS");
    ucs_status_ptr_t request = change(&fixture, UCP_ATOMIC_OP_ADD, fixture.remote, 8, REPLY, &reply);
    WANT_TRUE(UCS_PTR_IS_PTR(request));
    WANT(UCS_OK, fixture_wait(&fixture, request));
    WANT_TRUE(*(uint64_t *)fixture.memory == operand && reply == 0);
    fixture_close(&fixture);
}

/* Only the first and the last word of the memory change, bytes beside them do not. */
static void edges(void)
{
    fixture_t      fixture = fixture_open(ALL_FEATURES);
    const uint64_t first = fixture.remote, behind = first + FIXTURE_MEMORY;
    uint64_t       reply;

    for (size_t size = 4; size <= 8; size += 4) {
        for (int op = 0; op < UCP_ATOMIC_OP_LAST; op++) {
            WANT_PTR(UCS_OK, change(&fixture, op, first, size, REPLY, &reply));
            WANT_PTR(UCS_OK, change(&fixture, op, behind - size, size, REPLY, &reply));
            const uint64_t outside[] = {first - size, behind, behind + 4096, 0, -size, first - 4096};
            for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++) {
                WANT_PTR(INVALID, change(&fixture, op, outside[i], size, REPLY, &reply));
                WANT_TRUE(reply == fresh);
            }
            for (uint64_t addr = first + 1; addr < first + size; addr++) {
                WANT_PTR(INVALID, change(&fixture, op, addr, size, REPLY, &reply));
            }
            WANT_PTR(INVALID, change(&fixture, op, behind - size + 1, size, REPLY, &reply));
        }
    }
    fixture_close(&fixture);
}

/* A feature for each width. */
static void widths(void)
{
    static const struct {
        uint64_t feature;
        size_t   size;
    } widths[] = {{UCP_FEATURE_AMO32, 4}, {UCP_FEATURE_AMO64, 8}};
    uint64_t reply;

    for (int i = 0; i < 2; i++) {
        fixture_t fixture = fixture_open(UCP_FEATURE_TAG | widths[i].feature);
        for (int k = 0; k < 2; k++) {
            WANT_PTR(i == k ? UCS_OK : INVALID,
                     change(&fixture, UCP_ATOMIC_OP_ADD, fixture.remote, widths[k].size, 0, &reply));
        }
        WANT_TRUE(memcmp(fixture.memory, &operand, widths[i].size) == 0);
        fixture_close(&fixture);
    }
}

/* An endpoint that was closed changes nothing, as long as its worker lives. */
static void closed(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t plain   = {.op_attr_mask = 0};
    uint64_t            reply;

    WANT_PTR(UCS_OK, change(&fixture, UCP_ATOMIC_OP_ADD, fixture.remote, 8, 0, &reply));
    WANT_PTR(UCS_OK, ucp_ep_flush_nbx(fixture.ep, &plain));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_ep_close_nbx(fixture.ep, &plain)));
    WANT_PTR(UCS_ERR_NOT_CONNECTED, change(&fixture, UCP_ATOMIC_OP_ADD, fixture.remote, 8, 0, &reply));
    WANT_PTR(UCS_ERR_NOT_CONNECTED, change(&fixture, UCP_ATOMIC_OP_ADD, fixture.remote, 4, REPLY, &reply));
    WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_ep_flush_nbx(fixture.ep, &plain));
    WANT_TRUE(*(uint64_t *)fixture.memory == operand);
    fixture.ep = NULL;
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"atomics: operations", operations},
    {"atomics: with requests", with_requests},
    {"atomics: with requests by option", with_requests_by_option},
    {"atomics: edges", edges},
    {"atomics: widths", widths},
    {"atomics: closed", closed},
};

CHECK_MAIN(cases)
