/* NULL pointers: rejected with INVALID_PARAM, or ignored by functions that return nothing. */
#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <string.h>
#include <ucp/api/device/ucp_host.h>

static void library(void)
{
    ucp_config_t *config = NULL;
    unsigned      number;

    WANT(INVALID, ucp_lib_query(NULL));
    WANT(INVALID, ucp_config_read(NULL, NULL, NULL));
    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    WANT(INVALID, ucp_config_modify(NULL, "TLS", "self"));
    WANT(INVALID, ucp_config_modify(config, NULL, "self"));
    WANT(INVALID, ucp_config_modify(config, "TLS", NULL));
    SURVIVE_VOID(ucp_config_print(NULL, stdout, NULL, UCS_CONFIG_PRINT_CONFIG));
    SURVIVE_VOID(ucp_config_print(config, NULL, NULL, UCS_CONFIG_PRINT_CONFIG));
    SURVIVE_VOID(ucp_config_release(NULL));
    SURVIVE_VOID(ucp_config_release(config));
    SURVIVE_VOID(ucp_get_version(NULL, NULL, NULL));
    SURVIVE_VOID(ucp_get_version(&number, NULL, NULL));
}

static void context(void)
{
    ucp_params_t       params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_attr_t attr   = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    ucp_context_h      made;
    fixture_t          fixture = fixture_open(ALL_FEATURES);

    WANT(INVALID, ucp_init(NULL, NULL, &made));
    WANT(INVALID, ucp_init(&params, NULL, NULL));
    WANT(INVALID, ucp_context_query(NULL, &attr));
    WANT(INVALID, ucp_context_query(fixture.context, NULL));
    SURVIVE_VOID(ucp_context_print_info(NULL, stdout));
    SURVIVE_VOID(ucp_context_print_info(fixture.context, NULL));
    SURVIVE_VOID(ucp_cleanup(NULL));
    fixture_close(&fixture);
}

static void worker(void)
{
    fixture_t                 fixture = fixture_open(ALL_FEATURES);
    ucp_worker_params_t       params  = {.field_mask = 0};
    ucp_worker_attr_t         attr    = {.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE};
    ucp_worker_address_attr_t address_attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};
    ucp_worker_h              made;
    ucp_address_t            *address;
    size_t                    length;

    WANT(INVALID, ucp_worker_create(NULL, &params, &made));
    WANT(INVALID, ucp_worker_create(fixture.context, NULL, &made));
    WANT(INVALID, ucp_worker_create(fixture.context, &params, NULL));
    WANT(INVALID, ucp_worker_query(NULL, &attr));
    WANT(INVALID, ucp_worker_query(fixture.worker, NULL));
    WANT(INVALID, ucp_worker_get_address(NULL, &address, &length));
    WANT(INVALID, ucp_worker_get_address(fixture.worker, NULL, &length));
    WANT(INVALID, ucp_worker_get_address(fixture.worker, &address, NULL));
    WANT(INVALID, ucp_worker_address_query(NULL, &address_attr));
    WANT(UCS_OK, ucp_worker_get_address(fixture.worker, &address, &length));
    WANT(INVALID, ucp_worker_address_query(address, NULL));
    SURVIVE_VOID(ucp_worker_release_address(fixture.worker, NULL));
    SURVIVE_VOID(ucp_worker_release_address(fixture.worker, address));
    SURVIVE_VOID(ucp_worker_print_info(NULL, stdout));
    SURVIVE_VOID(ucp_worker_print_info(fixture.worker, NULL));
    WANT(INVALID, ucp_worker_fence(NULL));
    WANT(INVALID, ucp_worker_flush(NULL));
    WANT_PTR(INVALID, ucp_worker_flush_nb(NULL, 0, NULL));
    SURVIVE_VOID(ucp_worker_destroy(NULL));
    fixture_close(&fixture);
}

static void wakeup(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);
    int       fd;

    WANT(INVALID, ucp_worker_get_efd(NULL, &fd));
    WANT(INVALID, ucp_worker_get_efd(fixture.worker, NULL));
    WANT(INVALID, ucp_worker_arm(NULL));
    WANT(INVALID, ucp_worker_wait(NULL));
    WANT(INVALID, ucp_worker_signal(NULL));
    SURVIVE_VOID(ucp_worker_wait_mem(NULL, &fd));
    fixture_close(&fixture);
}

static void endpoint(void)
{
    fixture_t                    fixture = fixture_open(ALL_FEATURES);
    ucp_ep_params_t              params  = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = NULL};
    ucp_request_param_t          param   = {.op_attr_mask = 0};
    ucp_ep_attr_t                attr    = {.field_mask = UCP_EP_ATTR_FIELD_NAME};
    ucp_ep_evaluate_perf_param_t perf    = {.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE};
    ucp_ep_evaluate_perf_attr_t  result  = {.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME};
    ucp_ep_h                     made;

    WANT(INVALID, ucp_ep_create(fixture.worker, NULL, &made));
    WANT(INVALID, ucp_ep_create(fixture.worker, &params, NULL));
    WANT(INVALID, ucp_ep_create(fixture.worker, &params, &made));
    WANT(INVALID, ucp_ep_create(NULL, &params, &made));
    WANT(INVALID, ucp_ep_query(NULL, &attr));
    WANT(INVALID, ucp_ep_query(fixture.ep, NULL));
    WANT(INVALID, ucp_ep_evaluate_perf(NULL, &perf, &result));
    WANT(INVALID, ucp_ep_evaluate_perf(fixture.ep, NULL, &result));
    WANT(INVALID, ucp_ep_evaluate_perf(fixture.ep, &perf, NULL));
    WANT_PTR(INVALID, ucp_ep_flush_nbx(NULL, &param));
    WANT_PTR(INVALID, ucp_ep_flush_nb(NULL, 0, NULL));
    WANT(INVALID, ucp_ep_flush(NULL));
    WANT_PTR(INVALID, ucp_ep_close_nbx(NULL, &param));
    WANT_PTR(INVALID, ucp_ep_close_nb(NULL, UCP_EP_CLOSE_MODE_FLUSH));
    WANT_PTR(INVALID, ucp_disconnect_nb(NULL));
    SURVIVE_VOID(ucp_ep_destroy(NULL));
    SURVIVE_VOID(ucp_ep_print_info(NULL, stdout));
    SURVIVE_VOID(ucp_ep_print_info(fixture.ep, NULL));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void listener(void)
{
    fixture_t               fixture = fixture_open(ALL_FEATURES);
    ucp_listener_params_t   params  = {.field_mask = 0};
    ucp_listener_attr_t     attr    = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_conn_request_attr_t request = {.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR};
    ucp_listener_h          made;

    WANT(INVALID, ucp_listener_create(NULL, &params, &made));
    WANT(INVALID, ucp_listener_create(fixture.worker, NULL, &made));
    WANT(INVALID, ucp_listener_create(fixture.worker, &params, NULL));
    WANT(INVALID, ucp_listener_create(fixture.worker, &params, &made));
    WANT(INVALID, ucp_listener_query(NULL, &attr));
    WANT(INVALID, ucp_conn_request_query(NULL, &request));
    WANT(INVALID, ucp_listener_reject(NULL, NULL));
    SURVIVE_VOID(ucp_listener_destroy(NULL));
    fixture_close(&fixture);
}

static void memory(void)
{
    fixture_t               fixture = fixture_open(ALL_FEATURES);
    ucp_mem_map_params_t    params  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                       .length = 4096, .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t          attr    = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucp_mem_advise_params_t advice  = {.field_mask = 7, .address = fixture.memory, .length = 4096};
    ucp_memh_pack_params_t  pack    = {.field_mask = 0};
    ucp_mem_h               memh;
    ucp_rkey_h              rkey;
    void                   *pointer;
    size_t                  size;
    int                     order;

    WANT(INVALID, ucp_mem_map(NULL, &params, &memh));
    WANT(INVALID, ucp_mem_map(fixture.context, NULL, &memh));
    WANT(INVALID, ucp_mem_map(fixture.context, &params, NULL));
    WANT(INVALID, ucp_mem_unmap(fixture.context, NULL));
    WANT(INVALID, ucp_mem_unmap(NULL, fixture.memh));
    WANT(INVALID, ucp_mem_query(NULL, &attr));
    WANT(INVALID, ucp_mem_query(fixture.memh, NULL));
    WANT(INVALID, ucp_mem_advise(fixture.context, NULL, &advice));
    WANT(INVALID, ucp_mem_advise(fixture.context, fixture.memh, NULL));
    WANT(INVALID, ucp_rkey_pack(fixture.context, NULL, &pointer, &size));
    WANT(INVALID, ucp_rkey_pack(fixture.context, fixture.memh, NULL, &size));
    WANT(INVALID, ucp_rkey_pack(fixture.context, fixture.memh, &pointer, NULL));
    SURVIVE_VOID(ucp_rkey_buffer_release(NULL));
    WANT(INVALID, ucp_memh_pack(NULL, &pack, &pointer, &size));
    WANT(INVALID, ucp_memh_pack(fixture.memh, &pack, NULL, &size));
    WANT(INVALID, ucp_memh_pack(fixture.memh, &pack, &pointer, NULL));
    SURVIVE_VOID(ucp_memh_buffer_release(NULL, NULL));
    WANT(INVALID, ucp_ep_rkey_unpack(NULL, fixture.packed, &rkey));
    WANT(INVALID, ucp_ep_rkey_unpack(fixture.ep, NULL, &rkey));
    WANT(INVALID, ucp_ep_rkey_unpack(fixture.ep, fixture.packed, NULL));
    WANT(INVALID, ucp_rkey_ptr(NULL, fixture.remote, &pointer));
    WANT(INVALID, ucp_rkey_ptr(fixture.rkey, fixture.remote, NULL));
    WANT(INVALID, ucp_rkey_compare(fixture.worker, NULL, fixture.rkey, &(ucp_rkey_compare_params_t){0}, &order));
    WANT(INVALID, ucp_rkey_compare(fixture.worker, fixture.rkey, fixture.rkey, NULL, &order));
    WANT(INVALID, ucp_rkey_compare(fixture.worker, fixture.rkey, fixture.rkey, &(ucp_rkey_compare_params_t){0}, NULL));
    SURVIVE_VOID(ucp_rkey_destroy(NULL));
    SURVIVE_VOID(ucp_mem_print_info(NULL, fixture.context, stdout));
    SURVIVE_VOID(ucp_mem_print_info("4k", NULL, stdout));
    fixture_close(&fixture);
}

static void tags(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = 0};
    char                byte;

    WANT_PTR(INVALID, ucp_tag_send_nbx(fixture.ep, NULL, 8, 1, &param));
    WANT_PTR(INVALID, ucp_tag_send_sync_nbx(fixture.ep, NULL, 8, 1, &param));
    WANT_PTR(INVALID, ucp_tag_recv_nbx(fixture.worker, NULL, 8, 1, -1, &param));
    WANT_PTR(INVALID, ucp_tag_send_nb(fixture.ep, NULL, 8, ucp_dt_make_contig(1), 1, NULL));
    WANT_PTR(INVALID, ucp_tag_recv_nb(fixture.worker, NULL, 8, ucp_dt_make_contig(1), 1, -1, NULL));
    WANT_PTR(INVALID, ucp_tag_send_nbx(NULL, &byte, 1, 1, &param));
    WANT_PTR(INVALID, ucp_tag_send_nbx(fixture.ep, &byte, 1, 1, NULL));
    WANT_PTR(INVALID, ucp_tag_recv_nbx(NULL, &byte, 1, 1, -1, &param));
    WANT_PTR(INVALID, ucp_tag_recv_nbx(fixture.worker, &byte, 1, 1, -1, NULL));
    WANT_PTR(INVALID, ucp_tag_msg_recv_nbx(fixture.worker, &byte, 1, NULL, &param));
    SURVIVE(ucp_tag_probe_nb(fixture.worker, 0, 0, 0, NULL));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void active_messages(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = 0};
    char                byte;

    WANT(INVALID, ucp_worker_set_am_recv_handler(fixture.worker, NULL));
    WANT(INVALID, ucp_worker_set_am_handler(NULL, 1, NULL, NULL, 0));
    WANT_PTR(INVALID, ucp_am_send_nbx(NULL, 1, NULL, 0, &byte, 1, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, NULL, 8, &byte, 1, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, NULL, 0, NULL, 8, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, NULL, 0, &byte, 1, NULL));
    WANT_PTR(INVALID, ucp_am_send_nb(fixture.ep, 1, NULL, 8, ucp_dt_make_contig(1), NULL, 0));
    WANT_PTR(INVALID, ucp_am_recv_data_nbx(fixture.worker, NULL, &byte, 1, &param));
    SURVIVE_VOID(ucp_am_data_release(fixture.worker, NULL));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void one_sided(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = 0};
    ucp_request_param_t atomic  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    uint64_t            value   = 1;

    WANT_PTR(INVALID, ucp_put_nbx(fixture.ep, NULL, 8, fixture.remote, fixture.rkey, &param));
    WANT_PTR(INVALID, ucp_get_nbx(fixture.ep, NULL, 8, fixture.remote, fixture.rkey, &param));
    WANT_PTR(INVALID, ucp_put_nbx(fixture.ep, &value, 8, fixture.remote, NULL, &param));
    WANT_PTR(INVALID, ucp_get_nbx(fixture.ep, &value, 8, fixture.remote, NULL, &param));
    WANT_PTR(INVALID, ucp_put_nbx(fixture.ep, &value, 8, fixture.remote, fixture.rkey, NULL));
    WANT_PTR(INVALID, ucp_put_nbx(NULL, &value, 8, fixture.remote, fixture.rkey, &param));
    WANT(INVALID, ucp_put(fixture.ep, NULL, 8, fixture.remote, fixture.rkey));
    WANT(INVALID, ucp_get(fixture.ep, NULL, 8, fixture.remote, fixture.rkey));
    WANT(INVALID, ucp_put_nbi(fixture.ep, NULL, 8, fixture.remote, fixture.rkey));
    WANT(INVALID, ucp_get_nbi(fixture.ep, NULL, 8, fixture.remote, fixture.rkey));
    WANT_PTR(INVALID, ucp_atomic_op_nbx(fixture.ep, UCP_ATOMIC_OP_ADD, NULL, 1, fixture.remote, fixture.rkey, &atomic));
    WANT_PTR(INVALID, ucp_atomic_op_nbx(fixture.ep, UCP_ATOMIC_OP_ADD, &value, 1, fixture.remote, NULL, &atomic));
    WANT_PTR(INVALID, ucp_atomic_op_nbx(fixture.ep, UCP_ATOMIC_OP_ADD, &value, 1, fixture.remote, fixture.rkey, NULL));
    WANT(INVALID, ucp_atomic_fadd64(fixture.ep, 1, fixture.remote, fixture.rkey, NULL));
    WANT_TRUE(*(uint64_t *)fixture.memory == 0);
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void requests(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_attr_t  attr    = {.field_mask = UCP_REQUEST_ATTR_FIELD_STATUS};
    ucp_tag_recv_info_t info;
    uint64_t            got;
    ucp_request_param_t param   = {.op_attr_mask = 0};
    void               *request = ucp_tag_recv_nbx(fixture.worker, &got, 8, 1, -1, &param);

    SURVIVE_VOID(ucp_request_free(NULL));
    SURVIVE_VOID(ucp_request_release(NULL));
    SURVIVE_VOID(ucp_request_cancel(fixture.worker, NULL));
    SURVIVE(ucp_request_check_status(NULL));
    SURVIVE(ucp_request_is_completed(NULL));
    SURVIVE(ucp_request_test(NULL, &info));
    SURVIVE(ucp_tag_recv_request_test(NULL, &info));
    SURVIVE(ucp_tag_recv_request_test(request, NULL));
    WANT(INVALID, ucp_request_query(NULL, &attr));
    WANT(INVALID, ucp_request_query(request, NULL));
    WANT_TRUE(ucp_request_alloc(NULL) == NULL);
    ucp_request_cancel(fixture.worker, request);
    WANT(UCS_ERR_CANCELED, ucp_request_check_status(request));
    SURVIVE(ucp_request_test(request, NULL));
    ucp_request_free(request);
    fixture_close(&fixture);
}

static void datatypes(void)
{
    ucp_generic_dt_ops_t ops = {NULL};
    ucp_datatype_attr_t  attr = {.field_mask = UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE};
    ucp_datatype_t       type;

    WANT(INVALID, ucp_dt_create_generic(NULL, NULL, &type));
    WANT(INVALID, ucp_dt_create_generic(&ops, NULL, NULL));
    WANT(INVALID, ucp_dt_query(ucp_dt_make_contig(1), NULL));
    WANT(INVALID, ucp_dt_query(ucp_dt_make_iov(), &attr));
    SURVIVE_VOID(ucp_dt_destroy(ucp_dt_make_contig(8)));
    SURVIVE_VOID(ucp_dt_destroy(ucp_dt_make_iov()));
}

/* Endpoints without a callback. */
static void callbacks(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
    static char         out[100000], in[100000];
    void               *receive = ucp_tag_recv_nbx(fixture.worker, in, sizeof(in), 1, -1, &param);

    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_send_nbx(fixture.ep, out, sizeof(out), 1, &param)));
    WANT(UCS_OK, fixture_wait(&fixture, receive));
    receive = ucp_tag_recv_nb(fixture.worker, in, 8, ucp_dt_make_contig(1), 1, -1, NULL);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_send_nb(fixture.ep, out, 8, ucp_dt_make_contig(1), 1, NULL)));
    WANT(UCS_OK, fixture_wait(&fixture, receive));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_put_nb(fixture.ep, out, 8, fixture.remote, fixture.rkey, NULL)));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_ep_flush_nb(fixture.ep, 0, NULL)));
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"null: library", library},     {"null: context", context},     {"null: worker", worker},
    {"null: wakeup", wakeup},       {"null: endpoint", endpoint},   {"null: listener", listener},
    {"null: memory", memory},       {"null: tags", tags},           {"null: active messages", active_messages},
    {"null: one-sided", one_sided}, {"null: requests", requests},   {"null: datatypes", datatypes},
    {"null: callbacks", callbacks},
};

CHECK_MAIN(cases)
