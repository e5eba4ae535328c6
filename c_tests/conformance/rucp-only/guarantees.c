/* Guarantees that rucp keeps and UCX does not: its releases crash, leak or misreport here, so there is no reference. */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <string.h>

/* A generic datatype that only counts its calls. */
static unsigned started, finished;

static void *start(void *context, const void *buffer, size_t count)
{
    (void)context, (void)count;
    started++;
    return (void *)buffer;
}

static void *start_unpack(void *context, void *buffer, size_t count)
{
    return start(context, buffer, count);
}

static size_t packed_size(void *state)
{
    (void)state;
    return 10000;
}

static size_t pack(void *state, size_t offset, void *dest, size_t length)
{
    (void)state, (void)offset;
    length = length < 10000 - offset ? length : 10000 - offset;
    memset(dest, 1, length);
    return length;
}

static ucs_status_t unpack(void *state, size_t offset, const void *source, size_t length)
{
    (void)state, (void)offset, (void)source, (void)length;
    return UCS_ERR_IO_ERROR;
}

static void finish(void *state)
{
    (void)state;
    finished++;
}

static ucp_request_param_t counting_param(void)
{
    static const ucp_generic_dt_ops_t ops = {start, start_unpack, packed_size, pack, unpack, finish};
    ucp_request_param_t               param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE};

    WANT(UCS_OK, ucp_dt_create_generic(&ops, NULL, &param.datatype));
    return param;
}

/* finish() is called once in every case: canceled, failed to unpack, never matched. */
static void datatype_of_canceled(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = counting_param();
    char                buffer[8];

    void *request = ucp_tag_recv_nbx(fixture.worker, buffer, 1, 1, -1, &param);
    ucp_request_cancel(fixture.worker, request);
    WANT(UCS_ERR_CANCELED, fixture_wait(&fixture, request));
    WANT_TRUE(started == 1 && finished == 1);
    ucp_dt_destroy(param.datatype);
    fixture_close(&fixture);
}

static void datatype_of_failed(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t typed   = counting_param(), plain = {.op_attr_mask = 0};
    static char         data[10000], buffer[8];
    static const size_t sizes[] = {1, 1000, 9000, 10000};

    for (unsigned i = 0; i < 4; i++) {
        void *request = ucp_tag_recv_nbx(fixture.worker, buffer, 1, 1, -1, &typed);
        void *sent    = ucp_tag_send_nbx(fixture.ep, data, sizes[i], 1, &plain);
        WANT(UCS_ERR_IO_ERROR, fixture_wait(&fixture, request));
        WANT(UCS_OK, fixture_wait(&fixture, sent));
        WANT_TRUE(started == i + 1 && finished == i + 1);
    }
    ucp_dt_destroy(typed.datatype);
    fixture_close(&fixture);
}

static void datatype_of_unmatched(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = counting_param();
    char                buffer[8];

    ucp_tag_recv_nbx(fixture.worker, buffer, 1, 1, -1, &param);
    ucp_tag_send_sync_nbx(fixture.ep, buffer, 1, 2, &param);
    for (int i = 0; i < 100; i++) {
        ucp_worker_progress(fixture.worker);
    }
    ucp_rkey_destroy(fixture.rkey);
    ucp_rkey_buffer_release(fixture.packed);
    ucp_worker_destroy(fixture.worker);
    WANT_TRUE(started == 2 && finished == 2);
    ucp_dt_destroy(param.datatype);
    WANT(UCS_OK, ucp_mem_unmap(fixture.context, fixture.memh));
    ucp_cleanup(fixture.context);
}

/* Active messages by rendezvous report the received length, not that of the buffer. */
static void       *descriptor;
static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)length, (void)param;
    descriptor = data;
    return UCS_INPROGRESS;
}

static size_t received_length;
static void   on_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)request, (void)status, (void)user_data;
    received_length = length;
}

static void am_into_more_room(void)
{
    fixture_t              fixture = fixture_open(ALL_FEATURES);
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = 1, .cb = on_message};
    ucp_request_param_t    param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_RNDV};
    ucp_request_param_t    receive = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                      .cb.recv_am = on_received};
    static char            out[20000], in[30000];

    WANT(UCS_OK, ucp_worker_set_am_recv_handler(fixture.worker, &handler));
    ucs_status_ptr_t sent = ucp_am_send_nbx(fixture.ep, 1, NULL, 0, out, sizeof(out), &param);
    for (int i = 0; i < 100000 && descriptor == NULL; i++) {
        ucp_worker_progress(fixture.worker);
    }
    WANT_TRUE(descriptor != NULL);
    memset(in, 0x5a, sizeof(in));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_am_recv_data_nbx(fixture.worker, descriptor, in, sizeof(in), &receive)));
    WANT_TRUE(received_length == sizeof(out));
    WANT_TRUE(in[sizeof(out)] == 0x5a);
    WANT(UCS_OK, fixture_wait(&fixture, sent));
    fixture_close(&fixture);
}

/* Closing flushes messages to the own worker as it does others, whatever their length. */
static void close_behind_oneself(void)
{
    static const size_t sizes[] = {8, 9000, 300000, 4 << 20};

    for (int i = 0; i < 4; i++) {
        fixture_t           fixture = fixture_open(ALL_FEATURES);
        ucp_request_param_t param   = {.op_attr_mask = 0};
        char               *out     = calloc(1, sizes[i]), *in = calloc(1, sizes[i]);
        out[sizes[i] - 1]           = 'x';
        ucp_rkey_destroy(fixture.rkey);
        ucs_status_ptr_t sent   = ucp_tag_send_nbx(fixture.ep, out, sizes[i], 1, &param);
        ucs_status_ptr_t closed = ucp_ep_close_nbx(fixture.ep, &param);
        WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_recv_nbx(fixture.worker, in, sizes[i], 1, -1, &param)));
        WANT_TRUE(in[sizes[i] - 1] == 'x');
        WANT(UCS_OK, fixture_wait(&fixture, sent));
        WANT(UCS_OK, fixture_wait(&fixture, closed));
        fixture.ep   = NULL;
        fixture.rkey = NULL;
        fixture_close(&fixture);
        free(out);
        free(in);
    }
}

/* Hundreds of workers in a process, each with an endpoint to the next. */
static void many_workers(void)
{
    enum { COUNT = 100 };
    static fixture_t    fixtures[COUNT];
    static ucp_ep_h     next[COUNT];
    ucp_request_param_t param = {.op_attr_mask = 0};
    uint64_t            value, got;

    for (int i = 0; i < COUNT; i++) {
        fixtures[i] = fixture_open(ALL_FEATURES);
    }
    for (int i = 0; i < COUNT; i++) {
        ucp_address_t *address;
        size_t         length;
        WANT(UCS_OK, ucp_worker_get_address(fixtures[(i + 1) % COUNT].worker, &address, &length));
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
        WANT(UCS_OK, ucp_ep_create(fixtures[i].worker, &params, &next[i]));
        ucp_worker_release_address(fixtures[i].worker, address);
    }
    for (int i = 0; i < COUNT; i++) {
        int to    = (i + 1) % COUNT;
        value     = (uint64_t)i;
        void *out = ucp_tag_send_nbx(next[i], &value, 8, 1, &param);
        WANT(UCS_OK, fixture_wait(&fixtures[to], ucp_tag_recv_nbx(fixtures[to].worker, &got, 8, 1, -1, &param)));
        WANT(UCS_OK, fixture_wait(&fixtures[i], out));
        WANT_TRUE(got == value);
    }
    for (int i = 0; i < COUNT; i++) {
        WANT(UCS_OK, fixture_wait(&fixtures[i], ucp_ep_close_nbx(next[i], &param)));
    }
    for (int i = 0; i < COUNT; i++) {
        fixture_close(&fixtures[i]);
    }
}

static const case_t cases[] = {
    {"guarantees: datatype of a canceled receive", datatype_of_canceled},
    {"guarantees: datatype of a failed receive", datatype_of_failed},
    {"guarantees: datatype of an unmatched operation", datatype_of_unmatched},
    {"guarantees: active message into more room", am_into_more_room},
    {"guarantees: close behind messages to the own worker", close_behind_oneself},
    {"guarantees: many workers", many_workers},
};

CHECK_MAIN(cases)
