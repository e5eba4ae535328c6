/* Requests at the wrong time: canceled when complete, freed early, queried without room, left behind. */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>

static unsigned calls;

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)status, (void)info, (void)user_data;
    calls++;
}

static void *post(fixture_t *fixture, void *got, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | flags, .cb.recv = on_received};

    return ucp_tag_recv_nbx(fixture->worker, got, 8, 1, -1, &param);
}

static void complete(fixture_t *fixture)
{
    uint64_t            value = 1;
    ucp_request_param_t param = {.op_attr_mask = 0};

    WANT(UCS_OK, fixture_wait(fixture, ucp_tag_send_nbx(fixture->ep, &value, 8, 1, &param)));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(fixture->worker);
    }
}

static void cancel_of_completed(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    uint64_t  got     = 0;
    void     *request = post(&fixture, &got, 0);

    complete(&fixture);
    WANT(UCS_OK, ucp_request_check_status(request));
    ucp_request_cancel(fixture.worker, request);
    ucp_request_cancel(fixture.worker, request);
    WANT(UCS_OK, ucp_request_check_status(request));
    WANT_TRUE(calls == 1);
    ucp_request_free(request);
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* MPICH 5 cancels sends by a field that it never set: an address that is no receive must not be touched. */
static void cancel_of_anything(void)
{
    enum { WORDS = 80, HANDLE = 60 };
    fixture_t             fixture = fixture_open(ALL_FEATURES);
    static const uint64_t fills[] = {0, ~(uint64_t)0, 0x4141414141414141, ~(uint64_t)1};
    uint64_t              memory[WORDS];

    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < WORDS; j++) {
            memory[j] = fills[i];
        }
        ucp_request_cancel(fixture.worker, memory + HANDLE);
        for (int j = 0; j < WORDS; j++) {
            WANT_TRUE(memory[j] == fills[i]);
        }
    }
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* Freed twice in a row, before and after completion: the second call must not release the memory twice. */
static void freed_early(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    uint64_t  got[3]  = {0};
    void     *request = post(&fixture, &got[0], 0);

    ucp_request_free(request);
    ucp_request_free(request);
    complete(&fixture);
    WANT_TRUE(got[0] == 1 && calls == 0);
    void *one = post(&fixture, &got[1], 0), *two = post(&fixture, &got[2], 0);
    WANT_TRUE(one != two);
    complete(&fixture);
    complete(&fixture);
    WANT_TRUE(got[1] == 1 && got[2] == 1 && calls == 2);
    ucp_request_free(one);
    ucp_request_free(two);
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void canceled_and_released(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    uint64_t  got     = 0;
    void     *request = post(&fixture, &got, 0);

    ucp_request_cancel(fixture.worker, request);
    WANT(UCS_ERR_CANCELED, ucp_request_check_status(request));
    WANT_TRUE(calls == 1);
    ucp_request_release(request);
    request = post(&fixture, &got, 0);
    ucp_request_release(request);
    ucp_request_cancel(fixture.worker, request); /* still the user's: a released receive can be canceled */
    WANT_TRUE(calls == 2);
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void query(void)
{
    fixture_t          fixture = fixture_open(ALL_FEATURES);
    uint64_t           got     = 0;
    void              *request = post(&fixture, &got, 0);
    char               text[64];
    ucp_request_attr_t attr = {.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING, .debug_string = text};
    const uint64_t     both = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE;

    WANT(INVALID, ucp_request_query(request, &attr));
    attr.field_mask = both;
    for (size_t size = 1; size < sizeof(text); size++) {
        memset(text, 0x5a, sizeof(text));
        attr.debug_string_size = size;
        WANT(UCS_OK, ucp_request_query(request, &attr));
        WANT_TRUE(memchr(text, '\0', size) != NULL);
        WANT_TRUE(text[size] == 0x5a);
    }
    attr.debug_string_size = 0;
    SURVIVE(ucp_request_query(request, &attr));
    attr.debug_string      = NULL;
    attr.debug_string_size = 64;
    WANT(INVALID, ucp_request_query(request, &attr));
    ucp_request_cancel(fixture.worker, request);
    ucp_request_free(request);
    fixture_close(&fixture);
}

/* Unmatched receives and messages, endpoints and requests that are not closed or freed. */
static void left_behind(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = 0};
    uint64_t            got     = 0;
    static char         out[1 << 20];

    post(&fixture, &got, 0);
    ucp_tag_send_nbx(fixture.ep, out, 8, 77, &param);
    ucp_tag_send_nbx(fixture.ep, out, sizeof(out), 77, &param);
    ucp_tag_send_sync_nbx(fixture.ep, out, 8, 77, &param);
    for (int i = 0; i < 100; i++) {
        ucp_worker_progress(fixture.worker);
    }
    ucp_rkey_destroy(fixture.rkey);
    ucp_rkey_buffer_release(fixture.packed);
    SURVIVE_VOID(ucp_worker_destroy(fixture.worker));
    WANT(UCS_OK, ucp_mem_unmap(fixture.context, fixture.memh));
    SURVIVE_VOID(ucp_cleanup(fixture.context));
}

/* Memory and worker still exist when the context is destroyed. */
static void context_first(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);

    SURVIVE_VOID(ucp_cleanup(fixture.context));
}

static const case_t cases[] = {
    {"requests: cancel of completed", cancel_of_completed},
    {"requests: cancel of anything", cancel_of_anything},
    {"requests: freed early", freed_early},
    {"requests: canceled and released", canceled_and_released},
    {"requests: query", query},
    {"requests: left behind", left_behind},
    {"requests: context first", context_first},
};

CHECK_MAIN(cases)
