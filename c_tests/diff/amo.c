/* Atomics: every operation, 32 and 64 bits, fetching or not, old functions, and one counter shared by several. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW 65536

static const char *const op_names[] = {"add", "swap", "cswap", "and", "or", "xor"};

/* Fetching and, or, xor are wrong in 1.13.1: they apply the reply buffer, not the operand. */
#if UCP_API_MINOR > 13
#define FETCHABLE UCP_ATOMIC_OP_LAST
#else
#define FETCHABLE (UCP_ATOMIC_OP_CSWAP + 1)
#endif

static void on_done(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static ucs_status_t flush(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
}

static void window_set(bed_t *bed, window_t *window, uint64_t value)
{
    bed_sync(bed);
    if (bed->b != NULL) {
        *(uint64_t *)window->memory = value;
    }
    bed_sync(bed);
}

static void window_fact(bed_t *bed, window_t *window, const char *what)
{
    bed_sync(bed);
    if (bed->b != NULL) {
        fact(bed->b, "%s: %#lx", what, *(unsigned long *)window->memory);
    }
}

static void post_facts(bed_t *bed, window_t *window, ucp_atomic_op_t op, size_t size)
{
    uint64_t            operand = 0x0f0f0f0ff0f0f0f1;
    ucp_request_param_t param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(size)};

    window_set(bed, window, 0x1234567887654321);
    if (bed->a != NULL) {
        ucs_status_ptr_t result = ucp_atomic_op_nbx(bed->a->ep, op, &operand, 1, window->remote, window->rkey, &param);
        rule(bed->a, "2.9.3", "%s%zu: %s, flush %s",
             op_names[op], size * 8, ptr_status_name(result), status_name(flush(bed)));
    }
    window_fact(bed, window, op_names[op]);
}

/* For a compare-and-swap the operand is compared and the reply buffer holds the new value. */
static void fetch_facts(bed_t *bed, window_t *window, ucp_atomic_op_t op, size_t size, uint64_t operand, uint32_t flags)
{
    uint64_t            reply = 0x7777777799999999;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER | flags,
        .datatype     = ucp_dt_make_contig(size),
        .reply_buffer = &reply,
    };

    window_set(bed, window, 0x1234567887654321);
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_atomic_op_nbx(bed->a->ep, op, &operand, 1, window->remote, window->rkey,
                                                              &param));
        rule(bed->a, "2.9.3", "fetch %s%zu: %s, %#lx, flush %s", op_names[op], size * 8, status_name(status),
             (unsigned long)reply, status_name(flush(bed)));
    }
    window_fact(bed, window, op_names[op]);
}

static void every_operation(bed_t *bed, window_t *window)
{
    static const ucp_atomic_op_t posted[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR};

    for (size_t size = 4; size <= 8; size += 4) {
        for (int i = 0; i < 4; i++) {
            post_facts(bed, window, posted[i], size);
        }
        for (int op = 0; op < FETCHABLE; op++) {
            fetch_facts(bed, window, op, size, 0x0f0f0f0ff0f0f0f1, 0);
        }
        fetch_facts(bed, window, UCP_ATOMIC_OP_CSWAP, size, size == 4 ? 0x87654321 : 0x1234567887654321, 0);
        fetch_facts(bed, window, UCP_ATOMIC_OP_ADD, size, 1, UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    }
}

static void old_posts(bed_t *bed, window_t *window)
{
    static const struct {
        const char          *name;
        ucp_atomic_post_op_t op;
    } posts[] = {
        {"add", UCP_ATOMIC_POST_OP_ADD},
        {"and", UCP_ATOMIC_POST_OP_AND},
        {"or", UCP_ATOMIC_POST_OP_OR},
        {"xor", UCP_ATOMIC_POST_OP_XOR},
    };

    for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++) {
        for (size_t size = 4; size <= 8; size += 4) {
            window_set(bed, window, 0x1234567887654321);
            if (bed->a != NULL) {
                ucs_status_t status = ucp_atomic_post(bed->a->ep, posts[i].op, 0x0f0f0f0ff0f0f0f1, size,
                                                      window->remote, window->rkey);
                fact(bed->a, "atomic_post %s, %zu: %s, flush %s", posts[i].name, size, status_name(status),
                     status_name(flush(bed)));
            }
            window_fact(bed, window, "atomic_post");
        }
    }
}

static void old_fetches(bed_t *bed, window_t *window)
{
    static const struct {
        const char           *name;
        ucp_atomic_fetch_op_t op;
    } fetches[] = {
        {"fadd", UCP_ATOMIC_FETCH_OP_FADD},
        {"swap", UCP_ATOMIC_FETCH_OP_SWAP},
        {"cswap", UCP_ATOMIC_FETCH_OP_CSWAP},
#if UCP_API_MINOR > 13
        {"fand", UCP_ATOMIC_FETCH_OP_FAND},
        {"for", UCP_ATOMIC_FETCH_OP_FOR},
        {"fxor", UCP_ATOMIC_FETCH_OP_FXOR},
#endif
    };

    for (size_t i = 0; i < sizeof(fetches) / sizeof(fetches[0]); i++) {
        for (size_t size = 4; size <= 8; size += 4) {
            uint64_t result = 0xabcdabcdabcdabcd;
            window_set(bed, window, 0x1234567887654321);
            if (bed->a != NULL) {
                ucs_status_t status = bed_wait(bed, ucp_atomic_fetch_nb(bed->a->ep, fetches[i].op, 0x1234567887654321,
                                                                        &result, size, window->remote, window->rkey,
                                                                        on_done));
                fact(bed->a, "atomic_fetch_nb %s, %zu: %s, %#lx", fetches[i].name, size, status_name(status),
                     (unsigned long)result);
            }
            window_fact(bed, window, "atomic_fetch_nb");
        }
    }
}

/* The blocking functions progress one worker only, so they are not for two workers of one thread. */
static void old_blocking(bed_t *bed, window_t *window)
{
    uint32_t r32 = 0;
    uint64_t r64 = 0;

    window_set(bed, window, 1000);
    if (bed->a != NULL && bed->topology != TOPOLOGY_PAIR) {
        ucp_ep_h     ep = bed->a->ep;
        uint64_t     at = window->remote;
        ucp_rkey_h   key = window->rkey;
        ucs_status_t status;
        fact(bed->a, "add32 %s", status_name(ucp_atomic_add32(ep, 1, at, key)));
        fact(bed->a, "add64 %s", status_name(ucp_atomic_add64(ep, 1, at, key)));
        ucp_ep_flush(ep);
        status = ucp_atomic_fadd32(ep, 10, at, key, &r32);
        fact(bed->a, "fadd32 %s %u", status_name(status), r32);
        status = ucp_atomic_fadd64(ep, 10, at, key, &r64);
        fact(bed->a, "fadd64 %s %lu", status_name(status), (unsigned long)r64);
        status = ucp_atomic_swap32(ep, 5, at, key, &r32);
        fact(bed->a, "swap32 %s %u", status_name(status), r32);
        status = ucp_atomic_swap64(ep, 6, at, key, &r64);
        fact(bed->a, "swap64 %s %lu", status_name(status), (unsigned long)r64);
        status = ucp_atomic_cswap32(ep, 6, 7, at, key, &r32);
        fact(bed->a, "cswap32 %s %u", status_name(status), r32);
        status = ucp_atomic_cswap64(ep, 6, 8, at, key, &r64);
        fact(bed->a, "cswap64 %s %lu", status_name(status), (unsigned long)r64);
        status = ucp_atomic_cswap64(ep, 7, 9, at, key, &r64);
        fact(bed->a, "cswap64 %s %lu", status_name(status), (unsigned long)r64);
    }
    window_fact(bed, window, "blocking");
}

/* Many posted additions; each must count, and fetched values must all differ. */
static void counter_facts(bed_t *bed, window_t *window)
{
    enum { COUNT = 2000 };
    static uint64_t         replies[COUNT];
    static ucs_status_ptr_t results[COUNT];
    uint64_t                one = 1, sum = 0;
    ucp_request_param_t     param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    window_set(bed, window, 0);
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        bed_wait(bed, ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &one, 1, window->remote, window->rkey, &param));
    }
    if (bed->a != NULL) {
        rule(bed->a, "2.9.4", "flush of many: %s", status_name(flush(bed)));
    }
    window_fact(bed, window, "added");
    window_set(bed, window, 0);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        param.reply_buffer = &replies[i];
        results[i] = ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &one, 1, window->remote, window->rkey, &param);
    }
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        bed_wait(bed, results[i]);
        sum += replies[i];
    }
    rule(bed->a, "2.9.4", "sum of fetched: %lu", (unsigned long)sum);
    window_fact(bed, window, "fetched and added");
}

static void window_script(bed_t *bed, window_kind_t kind)
{
    window_t window;

    window_open(bed, &window, kind, WINDOW);
    fact(bed->a, "-- %s", window_name(kind));
    fact(bed->b, "-- %s", window_name(kind));
    every_operation(bed, &window);
    old_posts(bed, &window);
    old_fetches(bed, &window);
    old_blocking(bed, &window);
    counter_facts(bed, &window);
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    windows_play(bed, UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_RMA, window_script);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
