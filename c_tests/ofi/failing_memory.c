/*
 * Access to memory of peers that fails: completions of reads and writes end with errors, keys are refused, keys are
 * those of another domain. Two workers of this process on the restricted fabric: an operation that is said to be
 * complete was executed, one whose completion was an error fails its endpoint in time; endpoints that are opened then
 * work.
 */
#define _GNU_SOURCE
#include "two_workers.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 60, LONGEST = 120000 };

/* Memory that is registered in a context. */
typedef struct {
    uint8_t       bytes[LONGEST];
    ucp_context_h owner;
    ucp_mem_h     handle;
    void         *key;
    size_t        key_length;
} memory_t;

static memory_t memory;
static uint8_t  local[LONGEST];
static unsigned executed, refused;

static void map(memory_t *m, ucp_context_h owner)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = m->bytes,
                                   .length     = sizeof(m->bytes)};

    m->owner = owner;
    must(ucp_mem_map(owner, &params, &m->handle), "ucp_mem_map");
    must(ucp_rkey_pack(owner, m->handle, &m->key, &m->key_length), "ucp_rkey_pack");
}

static void unmap(memory_t *m)
{
    must(ucp_mem_unmap(m->owner, m->handle), "ucp_mem_unmap");
}

/* The status of an operation, behind which its endpoint is flushed. */
static ucs_status_t flushed(end_t *end, ucs_status_ptr_t request)
{
    ucs_status_ptr_t flush = ucp_ep_flush_nbx(end->ep, &plain);
    time_t           limit = time(NULL) + SECONDS;

    while ((is_pending(request) || is_pending(flush)) && time(NULL) < limit) {
        progress();
    }
    WANT_TRUE(!is_pending(request) && !is_pending(flush));
    ucs_status_t done = end_of(end->worker, request), all = end_of(end->worker, flush);
    return done != UCS_OK ? done : all;
}

/* Writes or reads so many bytes of the memory by the endpoint of one of the workers. Returns the status; UCS_OK: it was
 * executed. */
static ucs_status_t use(int from, memory_t *m, int is_put, size_t size)
{
    static uint8_t number;
    end_t         *end = &ends[from];
    ucp_rkey_h     key;

    number++;
    memset(m->bytes, is_put ? 0 : number, size);
    memset(local, is_put ? number : 0, size);
    must(ucp_ep_rkey_unpack(end->ep, m->key, &key), "ucp_ep_rkey_unpack");
    ucs_status_ptr_t request = is_put ? ucp_put_nbx(end->ep, local, size, (uintptr_t)m->bytes, key, &plain)
                                      : ucp_get_nbx(end->ep, local, size, (uintptr_t)m->bytes, key, &plain);
    ucs_status_t     status  = flushed(end, request);
    ucp_rkey_destroy(key);
    if (status == UCS_OK) {
        WANT_TRUE(memcmp(m->bytes, local, size) == 0 && local[size - 1] == number);
        executed++;
        return UCS_OK;
    }
    refused++;
    return status;
}

/* Progresses until the endpoint of one of the workers has failed. */
static ucs_status_t failure_of(int i)
{
    for (time_t limit = time(NULL) + SECONDS; !ends[i].failed && time(NULL) < limit;) {
        progress();
    }
    WANT_TRUE(ends[i].failed);
    return ends[i].why;
}

/* Every n-th completion is an error. `why`: endpoints fail with this status, too, beside those of lost connections. */
static void errors(int nth, int code, ucs_status_t why)
{
    unsigned seen = 0;
    static const size_t sizes[] = {8, 5000, LONGEST};
    char                rules[64];

    snprintf(rules, sizeof(rules), "error_nth=%d,error_code=%d", nth, code);
    begin(rules, UCP_FEATURE_RMA);
    map(&memory, context);
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        if (use(round % 2, &memory, round / 2 % 2, sizes[round / 4 % 3]) != UCS_OK) {
            ucs_status_t of = failure_of(round % 2);
            WANT_TRUE(of == why || is_connection_lost(&ends[round % 2]));
            seen += of == why;
        }
        replace_failed();
    }
    WANT_TRUE(executed > 0 && refused > 0 && seen > 0);
    unmap(&memory);
    end();
}

static void ended_operations(void)
{
    errors(17, FI_EIO, UCS_ERR_CONNECTION_RESET);
}

static void canceled_operations(void)
{
    errors(19, FI_ECANCELED, UCS_ERR_CONNECTION_RESET);
}

static void refused_keys(void)
{
    errors(13, FI_EKEYREJECTED, UCS_ERR_INVALID_ADDR);
}

/* Memory that is no longer registered. The provider tcp ends its connection for that. */
static void stale_keys(void)
{
    begin("error_nth=1000000", UCP_FEATURE_RMA);
    map(&memory, context);
    WANT(UCS_OK, use(0, &memory, 1, LONGEST));
    unmap(&memory);
    for (int is_put = 0; is_put < 2; is_put++) {
        WANT_TRUE(use(0, &memory, is_put, LONGEST) != UCS_OK);
        WANT_TRUE(!is_put || memory.bytes[0] == 0);
        failure_of(0);
        replace_failed();
    }
    map(&memory, context);
    /* The connections of the provider end one after the other. */
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    for (time_t limit = time(NULL) + SECONDS; status != UCS_OK && time(NULL) < limit; replace_failed()) {
        status = use(0, &memory, 0, LONGEST);
    }
    WANT_TRUE(status == UCS_OK);
    unmap(&memory);
    end();
}

/* A key of memory of another context, whose worker has a domain of its own: the access goes by message, and the peer
 * refuses it. */
static void keys_of_another_domain(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h       other;
    ucp_worker_h        worker;

    begin("error_nth=1000000", UCP_FEATURE_RMA);
    must(ucp_init(&params, NULL, &other), "ucp_init");
    must(ucp_worker_create(other, &worker_params, &worker), "ucp_worker_create");
    map(&memory, other);
    for (int i = 0; i < 6; i++) {
        static const size_t sizes[] = {8, 5000, LONGEST};
        WANT_TRUE(use(0, &memory, i % 2, sizes[i / 2]) == UCS_ERR_INVALID_ADDR);
        WANT_TRUE(i % 2 == 0 || memory.bytes[0] == 0);
        replace_failed();
    }
    unmap(&memory);
    ucp_worker_destroy(worker);
    ucp_cleanup(other);
    end();
}

/* The provider of a worker that sleeps works no more, and its endpoint cannot be closed at once: a read of the user's
 * memory ends when it is closed. */
static void dead_provider_of_sleeper(void)
{
    ucp_rkey_h rkey;
    int        descriptor;

    setenv("UCX_KEEPALIVE_INTERVAL", "inf", 1); /* no probe wakes it */
    begin("dies_at_read=1,busy_closes=2", UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP);
    map(&memory, context);
    must(ucp_worker_get_efd(ends[0].worker, &descriptor), "ucp_worker_get_efd");
    must(ucp_ep_rkey_unpack(ends[0].ep, memory.key, &rkey), "ucp_ep_rkey_unpack");
    ucs_status_ptr_t get = ucp_get_nbx(ends[0].ep, local, LONGEST, (uintptr_t)memory.bytes, rkey, &plain);
    while (is_pending(get) && !check_failed()) {
        progress();
        WANT_TRUE(!is_pending(get) || ucp_worker_arm(ends[0].worker) != UCS_OK || wakes_within(descriptor, 2000));
    }
    WANT_TRUE(UCS_PTR_IS_PTR(get) && ucp_request_check_status(get) != UCS_OK && ends[0].failed);
    ucp_request_free(get);
    ucp_rkey_destroy(rkey);
    unmap(&memory);
    end();
}

static const case_t cases[] = {
    {"failing memory: operations", ended_operations},
    {"failing memory: canceled operations", canceled_operations},
    {"failing memory: refused keys", refused_keys},
    {"failing memory: stale keys", stale_keys},
    {"failing memory: keys of another domain", keys_of_another_domain},
    {"failing memory: a dead provider of a sleeping worker", dead_provider_of_sleeper},
};

CHECK_MAIN(cases)
