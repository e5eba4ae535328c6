/*
 * Byte streams: invalid calls, and rucp's behaviour where UCX's releases differ from each other or from the
 * documentation:
 * elements, completions inside of the call, empty sends.
 */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void send_now(fixture_t *fixture, const void *data, size_t length)
{
    WANT(UCS_OK, fixture_wait(fixture, ucp_stream_send_nbx(fixture->ep, data, length, &plain)));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(fixture->worker);
    }
}

static void wrong_parameters(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES), none = fixture_open(UCP_FEATURE_TAG);
    ucp_stream_poll_ep_t ready;
    char                 data[8] = {0};
    size_t               length;

    WANT_PTR(INVALID, ucp_stream_send_nbx(NULL, data, 8, &plain));
    WANT_PTR(INVALID, ucp_stream_send_nbx(fixture.ep, data, 8, NULL));
    WANT_PTR(INVALID, ucp_stream_send_nbx(fixture.ep, NULL, 8, &plain));
    WANT_PTR(INVALID, ucp_stream_recv_nbx(NULL, data, 8, &length, &plain));
    WANT_PTR(INVALID, ucp_stream_recv_nbx(fixture.ep, data, 8, &length, NULL));
    WANT_PTR(INVALID, ucp_stream_recv_nbx(fixture.ep, NULL, 8, &length, &plain));
    WANT_PTR(INVALID, ucp_stream_recv_data_nb(NULL, &length));
    WANT_PTR(INVALID, ucp_stream_recv_data_nb(fixture.ep, NULL));
    SURVIVE_VOID(ucp_stream_data_release(NULL, data));
    SURVIVE_VOID(ucp_stream_data_release(fixture.ep, NULL));
    SURVIVE_VOID(ucp_stream_data_release(fixture.ep, data));
    WANT_TRUE(ucp_stream_worker_poll(NULL, &ready, 1, 0) == INVALID);
    WANT_TRUE(ucp_stream_worker_poll(fixture.worker, NULL, 1, 0) == INVALID);
    WANT_TRUE(ucp_stream_worker_poll(fixture.worker, NULL, 0, 0) == 0);
    WANT(INVALID, ucp_stream_recv_request_test(NULL, &length));
    WANT_PTR(INVALID, ucp_stream_send_nbx(none.ep, data, 8, &plain));
    WANT_PTR(INVALID, ucp_stream_recv_nbx(none.ep, data, 8, &length, &plain));
    WANT_PTR(INVALID, ucp_stream_recv_data_nb(none.ep, &length));
    WANT_TRUE(ucp_stream_worker_poll(none.worker, &ready, 1, 0) == INVALID);
    fixture_works(&fixture);
    fixture_close(&fixture);
    fixture_close(&none);
}

static void given_back_twice(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    size_t    length;

    send_now(&fixture, "abcdefgh", 8);
    char *data = ucp_stream_recv_data_nb(fixture.ep, &length);
    WANT_TRUE(UCS_PTR_IS_PTR(data) && length == 8);
    SURVIVE_VOID(ucp_stream_data_release(fixture.ep, data + 1));
    ucp_stream_data_release(fixture.ep, data);
    SURVIVE_VOID(ucp_stream_data_release(fixture.ep, data));
    send_now(&fixture, "abcdefgh", 8);
    data = ucp_stream_recv_data_nb(fixture.ep, &length); /* kept: freed with the worker */
    WANT_TRUE(UCS_PTR_IS_PTR(data) && length == 8 && memcmp(data, "abcdefgh", 8) == 0);
    fixture_close(&fixture);
}

/* Whole elements are received as soon as there is one; the rest of another one waits for its remaining bytes. */
static void elements(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t words   = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    char                data[32] = "0123456789abcdefghijklmnopqrstu", got[40] = {0};
    size_t              length = 0;

    ucs_status_ptr_t r = ucp_stream_recv_nbx(fixture.ep, got, 4, &length, &words);
    send_now(&fixture, data, 12);
    WANT(UCS_OK, ucp_stream_recv_request_test(r, &length));
    WANT_TRUE(length == 8 && memcmp(got, data, 8) == 0 && got[8] == 0);
    ucp_request_free(r);
    r = ucp_stream_recv_nbx(fixture.ep, got, 4, &length, &words);
    WANT(UCS_INPROGRESS, ucp_stream_recv_request_test(r, &length));
    /* data reserved for the receive is not given to another caller */
    WANT_PTR(UCS_OK, ucp_stream_recv_data_nb(fixture.ep, &length));
    send_now(&fixture, data + 12, 13);
    WANT(UCS_OK, ucp_stream_recv_request_test(r, &length));
    WANT_TRUE(length == 16 && memcmp(got, data + 8, 16) == 0);
    ucp_request_free(r);
    /* empty elements are nothing, and all of them have arrived */
    ucp_request_param_t nothing = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(0)};
    WANT_PTR(UCS_OK, ucp_stream_recv_nbx(fixture.ep, got, 4, &length, &nothing));
    WANT_TRUE(length == 0);
    WANT_PTR(UCS_OK, ucp_stream_recv_nbx(fixture.ep, got, 40, &length, &plain));
    WANT_TRUE(length == 1 && got[0] == data[24]);
    fixture_close(&fixture);
}

static unsigned     calls;
static ucs_status_t last;
static size_t       last_length;

static void on_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)request, (void)user_data;
    calls++;
    last        = status;
    last_length = length;
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)request, (void)user_data;
    calls++;
    last = status;
}

/* NO_IMM_CMPL: a callback and a complete request always. Empty sends have no effect. */
static void inside_of_the_call(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t  always  = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                    .cb.recv_stream = on_received};
    ucp_request_param_t  send    = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                    .cb.send = on_sent};
    ucp_request_param_t  force   = {.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};
    ucp_stream_poll_ep_t ready;
    static char          large[1 << 20];
    char                 got[8];
    size_t               length = 0;

    send_now(&fixture, "abcdefgh", 8);
    ucs_status_ptr_t r = ucp_stream_recv_nbx(fixture.ep, got, 8, &length, &always);
    WANT_TRUE(UCS_PTR_IS_PTR(r) && calls == 1 && last == UCS_OK && last_length == 8);
    WANT(UCS_OK, ucp_stream_recv_request_test(r, &length));
    WANT_TRUE(length == 8);
    ucp_request_free(r);
    r = ucp_stream_send_nbx(fixture.ep, large, 0, &send);
    WANT_TRUE(UCS_PTR_IS_PTR(r) && calls == 2 && last == UCS_OK);
    ucp_request_free(r);
    WANT_PTR(UCS_OK, ucp_stream_send_nbx(fixture.ep, NULL, 0, &plain));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(fixture.worker);
    }
    WANT_TRUE(ucp_stream_worker_poll(fixture.worker, &ready, 1, 0) == 0);
    /* an operation that cannot complete at once has no effect */
    WANT_PTR(UCS_ERR_NO_RESOURCE, ucp_stream_send_nbx(fixture.ep, large, sizeof(large), &force));
    send_now(&fixture, "abcd", 4);
    force.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    WANT_PTR(UCS_ERR_NO_RESOURCE, ucp_stream_recv_nbx(fixture.ep, got, 8, &length, &force));
    WANT_PTR(UCS_OK, ucp_stream_recv_nbx(fixture.ep, got, 8, &length, &plain));
    WANT_TRUE(length == 4 && memcmp(got, "abcd", 4) == 0);
    fixture_close(&fixture);
}

/* A callback receives the rest, and at last closes the endpoint while there are more bytes in the same message. */
static struct {
    fixture_t *fixture;
    unsigned   times;
    char       got[4];
    char       all[64];
} again;

static void on_again(void *request, ucs_status_t status, size_t length, void *user_data)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv_stream = on_again};

    (void)user_data;
    ucp_request_free(request);
    if (status != UCS_OK) {
        return;
    }
    WANT_TRUE(length == 4);
    memcpy(again.all + 4 * again.times++, again.got, 4);
    if (again.times == 5) {
        ucs_status_ptr_t closed = ucp_ep_close_nbx(again.fixture->ep, &plain);
        WANT_TRUE(!UCS_PTR_IS_ERR(closed));
        if (UCS_PTR_IS_PTR(closed)) {
            ucp_request_free(closed);
        }
        return;
    }
    WANT_TRUE(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(again.fixture->ep, again.got, 4, &length, &param)));
}

static void from_callbacks(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv_stream = on_again};
    char                data[]  = "0123456789abcdefghijklmnopqrstuv";
    size_t              length;

    again.fixture = &fixture;
    WANT_TRUE(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(fixture.ep, again.got, 4, &length, &param)));
    send_now(&fixture, data, 32);
    WANT_TRUE(again.times == 5 && memcmp(again.all, data, 20) == 0);
    ucp_worker_destroy(fixture.worker);
    ucp_cleanup(fixture.context);
}

/* A million bytes, unread, take about as much memory as their size; and all of them arrive. */
static void unread(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    uint64_t  sum = 0, want = 0;
    size_t    length;

    for (uint64_t i = 0; i < 200000; i++) {
        want += i;
        WANT(UCS_OK, fixture_wait(&fixture, ucp_stream_send_nbx(fixture.ep, &i, 8, &plain)));
    }
    for (int i = 0; i < 100000; i++) {
        ucp_worker_progress(fixture.worker);
    }
    for (;;) {
        uint64_t *data = ucp_stream_recv_data_nb(fixture.ep, &length);
        if (!UCS_PTR_IS_PTR(data)) {
            break;
        }
        for (size_t i = 0; i < length / 8; i++) {
            sum += data[i];
        }
        ucp_stream_data_release(fixture.ep, data);
    }
    WANT_TRUE(sum == want);
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"stream: wrong parameters", wrong_parameters},
    {"stream: given back twice", given_back_twice},
    {"stream: elements", elements},
    {"stream: inside of the call", inside_of_the_call},
    {"stream: from callbacks", from_callbacks},
    {"stream: unread", unread},
};

CHECK_MAIN(cases)
