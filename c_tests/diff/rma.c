/* Put and get: every size into both kinds of memory, flush, fence, the old functions. */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW (5 << 20)

static const size_t sizes[] = {
    1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 127, 255, 256, 1000, 1024, 2048, 2049, 4096, 4097, 8192, 8193, 16384,
    16385, 65536, 65537, 131072, 262144, 1048576, 1048577, 4194304,
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static unsigned callbacks;

static void on_done(void *request, ucs_status_t status, void *user_data)
{
    (void)request;
    callbacks += status == UCS_OK && user_data == &callbacks;
}

static void on_done_nb(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

static ucp_request_param_t param_with_callback(uint32_t flags)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | flags,
        .cb.send      = on_done,
        .user_data    = &callbacks,
    };
}

static ucs_status_t flush(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param));
}

/* One put at an odd offset, flushed: B sees the bytes, and no other changed. */
static void put_facts(bed_t *bed, window_t *window, size_t size, unsigned seed)
{
    size_t              offset = size % 3 * 1021;
    ucp_request_param_t param  = param_with_callback(UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    void               *data   = data_make(size, seed);

    if (bed->b != NULL) {
        memset(window->memory, 0x5a, offset + size + 64);
    }
    callbacks = 0;
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t result = ucp_put_nbx(bed->a->ep, data, size, window->remote + offset, window->rkey, &param);
        int              is_request = UCS_PTR_IS_PTR(result);
        ucs_status_t     status     = bed_wait(bed, result);
        memset(data, 0, size); /* may be reused */
        rule(bed->a, "2.4.1", "put %zu: request %d, %s, calls %u, flush %s",
             size, is_request, status_name(status), callbacks,
             status_name(flush(bed)));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "2.4.1", "put %zu: %s, around it %d", size, data_check(window->memory + offset, size, seed),
             data_is(window->memory, offset, 0x5a) && data_is(window->memory + offset + size, 64, 0x5a));
    }
    free(data);
}

static void get_facts(bed_t *bed, window_t *window, size_t size, unsigned seed)
{
    size_t              offset = size % 5 * 333;
    ucp_request_param_t param  = param_with_callback(UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    uint8_t            *data   = malloc(size + 64);

    if (bed->b != NULL) {
        data_fill(window->memory + offset, size, seed);
    }
    callbacks = 0;
    memset(data, 0x5a, size + 64);
    bed_sync(bed);
    if (bed->a != NULL) {
        ucs_status_ptr_t result = ucp_get_nbx(bed->a->ep, data, size, window->remote + offset, window->rkey, &param);
        int              is_request = UCS_PTR_IS_PTR(result);
        ucs_status_t     status     = bed_wait(bed, result);
        fact(bed->a, "get %zu: request %d, %s, calls %u, data %s, behind it %d", size, is_request, status_name(status),
             callbacks, data_check(data, size, seed), data_is(data + size, 64, 0x5a));
    }
    bed_sync(bed);
    free(data);
}

static void empty_facts(bed_t *bed, window_t *window)
{
    ucp_request_param_t param = param_with_callback(UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    char                byte;

    if (bed->a != NULL) {
        rule(bed->a, "2.9.1", "put of nothing: %s",
             ptr_status_name(ucp_put_nbx(bed->a->ep, &byte, 0, window->remote, window->rkey, &param)));
        rule(bed->a, "2.9.1", "get of nothing: %s",
             ptr_status_name(ucp_get_nbx(bed->a->ep, &byte, 0, window->remote, window->rkey, &param)));
    }
    bed_sync(bed);
}

/* Many at once, each to its own address; then one flush of the worker for all. */
static void many_facts(bed_t *bed, window_t *window, size_t size)
{
    enum { COUNT = 500 };
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint8_t            *data  = data_make(size * COUNT, 4), *back = calloc(COUNT, size);
    ucs_status_ptr_t    results[COUNT];
    int                 good = 0;

    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        size_t at  = (size_t)i * size;
        results[i] = ucp_put_nbx(bed->a->ep, data + at, size, window->remote + at, window->rkey, &param);
    }
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &param));
        for (int i = 0; i < COUNT; i++) {
            good += bed_wait(bed, results[i]) == UCS_OK;
        }
        rule(bed->a, "2.4.2", "many puts of %zu: flush %s, good %d", size, status_name(status), good);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "2.4.2", "many puts of %zu: %s", size, data_check(window->memory, size * COUNT, 4));
    }
    bed_sync(bed);
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        size_t at  = (size_t)i * size;
        results[i] = ucp_get_nbx(bed->a->ep, back + at, size, window->remote + at, window->rkey, &param);
    }
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        bed_wait(bed, results[i]);
    }
    rule(bed->a, "2.4.2", "many gets of %zu: %s", size, data_check(back, size * COUNT, 4));
    bed_sync(bed);
    free(data);
    free(back);
}

/* A fence between data and flag: a reader that sees the flag sees the data. */
static void fence_facts(bed_t *bed, window_t *window)
{
    enum { ROUNDS = 200 };
    static uint64_t     values[ROUNDS + 1];
    volatile uint64_t  *flag   = (volatile uint64_t *)(window->memory + 4096);
    ucp_request_param_t param  = {.op_attr_mask = 0};
    int                 good   = 0;
    void               *data   = malloc(2048);
    char                go = 'g';

    for (uint64_t i = 1; i <= ROUNDS; i++) {
        values[i] = i;
        if (bed->a != NULL) {
            data_fill(data, 2048, (unsigned)i);
            ucs_status_ptr_t first = ucp_put_nbx(bed->a->ep, data, 2048, window->remote, window->rkey, &param);
            ucp_worker_fence(bed->a->worker);
            ucs_status_ptr_t second =
                ucp_put_nbx(bed->a->ep, &values[i], 8, window->remote + 4096, window->rkey, &param);
            bed_wait(bed, first);
            bed_wait(bed, second);
            if (bed->b == NULL) {
                flush(bed);
            }
        }
        if (bed->b != NULL) {
            BED_UNTIL(bed, *flag == i);
            good += data_check(window->memory, 2048, (unsigned)i)[0] == 'g';
        }
        bed_transfer(bed, bed->b, &go, 1, &go, 1);
    }
    rule(bed->b, "2.4.3", "fenced: %d good", good);
    bed_sync(bed);
    free(data);
}

/* The deprecated functions. Blocking ones progress one worker only, so not for two workers of one thread. */
static void old_facts(bed_t *bed, window_t *window)
{
    uint64_t value = 0x1122334455667788, got = 0;
    ucs_status_t status;

    if (bed->a != NULL) {
        status = ucp_put_nbi(bed->a->ep, &value, 8, window->remote, window->rkey);
        rule(bed->a, "2.9.2", "put_nbi: fine %d", status == UCS_OK || status == UCS_INPROGRESS);
        rule(bed->a, "2.9.2", "flush: %s", status_name(flush(bed)));
        status = ucp_get_nbi(bed->a->ep, &got, 8, window->remote, window->rkey);
        rule(bed->a, "2.9.2", "get_nbi: fine %d, flush %s", status == UCS_OK || status == UCS_INPROGRESS,
             status_name(flush(bed)));
        rule(bed->a, "2.9.2", "got it: %d", got == value);
        value  = 99;
        status = bed_wait(bed, ucp_put_nb(bed->a->ep, &value, 8, window->remote + 8, window->rkey, on_done_nb));
        rule(bed->a, "2.9.2", "put_nb: %s, flush %s", status_name(status), status_name(flush(bed)));
        status = bed_wait(bed, ucp_get_nb(bed->a->ep, &got, 8, window->remote + 8, window->rkey, on_done_nb));
        rule(bed->a, "2.9.2", "get_nb: %s, %d", status_name(status), (int)got);
    }
    if (bed->a != NULL && bed->topology != TOPOLOGY_PAIR) {
        value = 100;
        rule(bed->a, "2.9.2", "put: %s", status_name(ucp_put(bed->a->ep, &value, 8, window->remote, window->rkey)));
        rule(bed->a, "2.9.2", "ep_flush: %s", status_name(ucp_ep_flush(bed->a->ep)));
        status = ucp_get(bed->a->ep, &got, 8, window->remote, window->rkey);
        rule(bed->a, "2.9.2", "get: %s, %d, worker_flush %s", status_name(status), (int)got,
             status_name(ucp_worker_flush(bed->a->worker)));
    }
    bed_sync(bed);
}

static void window_script(bed_t *bed, window_kind_t kind)
{
    window_t window;

    window_open(bed, &window, kind, WINDOW);
    fact(bed->a, "-- %s", window_name(kind));
    fact(bed->b, "-- %s", window_name(kind));
    for (size_t i = 0; i < SIZES; i++) {
        put_facts(bed, &window, sizes[i], (unsigned)i);
        get_facts(bed, &window, sizes[i], (unsigned)i + 100);
    }
    empty_facts(bed, &window);
    many_facts(bed, &window, 8);
    many_facts(bed, &window, 9000);
    fence_facts(bed, &window);
    old_facts(bed, &window);
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    windows_play(bed, UCP_FEATURE_RMA, window_script);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
