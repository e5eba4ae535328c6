/*
 * Fields outside of the mask: not read, as they may not exist (callers that were built with older headers pass
 * shorter structs, here cut off by memory that may not be touched), and not written.
 */
#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <string.h>

static void context_params(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h context;

#define TRY(last_field, mask)                                                                                         \
    do {                                                                                                              \
        params.field_mask = UCP_PARAM_FIELD_FEATURES | (mask);                                                        \
        WANT(UCS_OK, ucp_init(EDGE_STRUCT(ucp_params_t, last_field, params), NULL, &context));                        \
        ucp_cleanup(context);                                                                                         \
    } while (0)
    TRY(features, 0);
    TRY(request_size, UCP_PARAM_FIELD_REQUEST_SIZE);
    TRY(request_init, UCP_PARAM_FIELD_REQUEST_INIT);
    TRY(request_cleanup, UCP_PARAM_FIELD_REQUEST_CLEANUP);
    TRY(tag_sender_mask, UCP_PARAM_FIELD_TAG_SENDER_MASK);
    TRY(mt_workers_shared, UCP_PARAM_FIELD_MT_WORKERS_SHARED);
    TRY(estimated_num_eps, UCP_PARAM_FIELD_ESTIMATED_NUM_EPS);
    TRY(estimated_num_ppn, UCP_PARAM_FIELD_ESTIMATED_NUM_PPN);
    params.name = "name";
    TRY(name, UCP_PARAM_FIELD_NAME);
    TRY(node_local_id, UCP_PARAM_FIELD_NODE_LOCAL_ID);
#undef TRY
    params.field_mask = 0;
    WANT(UCS_OK, ucp_init(EDGE_STRUCT(ucp_params_t, field_mask, params), NULL, &context));
    ucp_cleanup(context);
}

/* Fields that are not requested, named or not, keep their bytes. */
static int only_written(const void *now, size_t length, size_t from, size_t to)
{
    for (size_t i = sizeof(uint64_t); i < length; i++) {
        if ((i < from || i >= to) && ((const uint8_t *)now)[i] != 0xa5) {
            return 0;
        }
    }
    return 1;
}

/* Queries one field: first in a struct that ends with it, then in a whole one. */
#define QUERY(type, first_field, last_field, mask, call)                                                              \
    do {                                                                                                              \
        type whole_, *attr;                                                                                           \
        memset(&whole_, 0xa5, sizeof(whole_));                                                                        \
        whole_.field_mask = (mask);                                                                                   \
        attr              = EDGE_STRUCT(type, last_field, whole_);                                                    \
        WANT(UCS_OK, call);                                                                                           \
        attr = &whole_;                                                                                               \
        WANT(UCS_OK, call);                                                                                           \
        WANT_TRUE(only_written(&whole_, sizeof(whole_), offsetof(type, first_field),                                  \
                               offsetof(type, last_field) + sizeof(whole_.last_field)));                              \
    } while (0)

static void context_attributes(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);

#define TRY(field, mask) QUERY(ucp_context_attr_t, field, field, mask, ucp_context_query(fixture.context, attr))
    TRY(field_mask, 0);
    TRY(request_size, UCP_ATTR_FIELD_REQUEST_SIZE);
    TRY(thread_mode, UCP_ATTR_FIELD_THREAD_MODE);
    TRY(memory_types, UCP_ATTR_FIELD_MEMORY_TYPES);
    TRY(name, UCP_ATTR_FIELD_NAME);
#undef TRY
    QUERY(ucp_lib_attr_t, field_mask, field_mask, 0, ucp_lib_query(attr));
    QUERY(ucp_lib_attr_t, max_thread_level, max_thread_level, UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL, ucp_lib_query(attr));
    fixture_close(&fixture);
}

static void worker_params(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_worker_params_t params;
    ucp_worker_h        worker;

    memset(&params, 0, sizeof(params));
#define TRY(last_field, mask)                                                                                         \
    do {                                                                                                              \
        params.field_mask = (mask);                                                                                   \
        WANT(UCS_OK, ucp_worker_create(fixture.context, EDGE_STRUCT(ucp_worker_params_t, last_field, params),         \
                                       &worker));                                                                     \
        ucp_worker_destroy(worker);                                                                                   \
    } while (0)
    TRY(field_mask, 0);
    TRY(thread_mode, UCP_WORKER_PARAM_FIELD_THREAD_MODE);
    UCS_CPU_SET(0, &params.cpu_mask);
    TRY(cpu_mask, UCP_WORKER_PARAM_FIELD_CPU_MASK);
    params.events = UCP_WAKEUP_RX;
    TRY(events, UCP_WORKER_PARAM_FIELD_EVENTS);
    TRY(user_data, UCP_WORKER_PARAM_FIELD_USER_DATA);
    TRY(flags, UCP_WORKER_PARAM_FIELD_FLAGS);
    params.name = "worker";
    TRY(name, UCP_WORKER_PARAM_FIELD_NAME);
    params.am_alignment = 64;
    TRY(am_alignment, UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT);
    TRY(client_id, UCP_WORKER_PARAM_FIELD_CLIENT_ID);
#undef TRY
    fixture_close(&fixture);
}

static void worker_attributes(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);

#define TRY(first, last, mask) QUERY(ucp_worker_attr_t, first, last, mask, ucp_worker_query(fixture.worker, attr))
    TRY(field_mask, field_mask, 0);
    TRY(thread_mode, thread_mode, UCP_WORKER_ATTR_FIELD_THREAD_MODE);
    TRY(address, address_length, UCP_WORKER_ATTR_FIELD_ADDRESS);
    TRY(max_am_header, max_am_header, UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER);
    TRY(name, name, UCP_WORKER_ATTR_FIELD_NAME);
    TRY(max_debug_string, max_debug_string, UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING);
#undef TRY
    fixture_close(&fixture);
}

static void endpoint_params(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_ep_params_t     params;
    ucp_request_param_t close = {.op_attr_mask = 0};
    ucp_address_t      *address;
    size_t              length;
    ucp_ep_h            ep;

    memset(&params, 0, sizeof(params));
    WANT(UCS_OK, ucp_worker_get_address(fixture.worker, &address, &length));
    params.address = address;
#define TRY(last_field, mask)                                                                                         \
    do {                                                                                                              \
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | (mask);                                               \
        WANT(UCS_OK, ucp_ep_create(fixture.worker, EDGE_STRUCT(ucp_ep_params_t, last_field, params), &ep));           \
        WANT(UCS_OK, fixture_wait(&fixture, ucp_ep_close_nbx(ep, &close)));                                           \
    } while (0)
    TRY(address, 0);
    TRY(err_mode, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
    TRY(err_handler, UCP_EP_PARAM_FIELD_ERR_HANDLER);
    TRY(user_data, UCP_EP_PARAM_FIELD_USER_DATA);
    TRY(flags, UCP_EP_PARAM_FIELD_FLAGS);
    params.name = "endpoint";
    TRY(name, UCP_EP_PARAM_FIELD_NAME);
#undef TRY
    params.field_mask = 0;
    WANT(INVALID, ucp_ep_create(fixture.worker, EDGE_STRUCT(ucp_ep_params_t, field_mask, params), &ep));
    ucp_worker_release_address(fixture.worker, address);
    fixture_close(&fixture);
}

static void endpoint_attributes(void)
{
    fixture_t fixture = fixture_open(ALL_FEATURES);

#define TRY(field, mask) QUERY(ucp_ep_attr_t, field, field, mask, ucp_ep_query(fixture.ep, attr))
    TRY(field_mask, 0);
    TRY(name, UCP_EP_ATTR_FIELD_NAME);
    TRY(user_data, UCP_EP_ATTR_FIELD_USER_DATA);
#undef TRY
    /* entries of another size: a later caller's longer ones, an earlier one's that hold one name */
    char          entries[64];
    ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                          .transports = {.entries = (void *)entries, .num_entries = 2, .entry_size = 32}};
    memset(entries, 0xa5, sizeof(entries));
    WANT(UCS_OK, ucp_ep_query(fixture.ep, &attr));
    WANT_TRUE(attr.transports.num_entries >= 1 && attr.transports.num_entries <= 2);
    WANT_TRUE(((ucp_transport_entry_t *)entries)->transport_name[0] != '\0');
    char *names                 = edge_copy(entries, 8);
    attr.transports.entries     = (void *)names;
    attr.transports.num_entries = 1;
    attr.transports.entry_size  = 8;
    WANT(UCS_OK, ucp_ep_query(fixture.ep, &attr));
    WANT_TRUE(attr.transports.num_entries == 1 && (*(const char **)names)[0] != '\0');
    fixture_close(&fixture);
}

static void memory_structs(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES);
    ucp_mem_map_params_t params  = {.length = 4096, .address = fixture.memory, .memory_type = UCS_MEMORY_TYPE_HOST};
    ucp_mem_h            memh;
    static char          ours[4096];

    params.address = ours;
#define TRY(last_field, mask)                                                                                         \
    do {                                                                                                              \
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | (mask);                \
        WANT(UCS_OK, ucp_mem_map(fixture.context, EDGE_STRUCT(ucp_mem_map_params_t, last_field, params), &memh));     \
        WANT(UCS_OK, ucp_mem_unmap(fixture.context, memh));                                                           \
    } while (0)
    TRY(length, 0);
    TRY(flags, UCP_MEM_MAP_PARAM_FIELD_FLAGS);
    TRY(prot, UCP_MEM_MAP_PARAM_FIELD_PROT);
    TRY(memory_type, UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE);
#undef TRY
#define TRY(field, mask) QUERY(ucp_mem_attr_t, field, field, mask, ucp_mem_query(fixture.memh, attr))
    TRY(field_mask, 0);
    TRY(address, UCP_MEM_ATTR_FIELD_ADDRESS);
    TRY(length, UCP_MEM_ATTR_FIELD_LENGTH);
    TRY(mem_type, UCP_MEM_ATTR_FIELD_MEM_TYPE);
#undef TRY
    fixture_close(&fixture);
}

/* The parameters of operations: 24 bytes longer in 1.22 than in 1.13, and often with no field at all. */
static void operations(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t  none    = {.op_attr_mask = 0};
    ucp_request_param_t *param   = EDGE_STRUCT(ucp_request_param_t, flags, none);
    uint64_t             out = 3, in = 0;

    void *receive = ucp_tag_recv_nbx(fixture.worker, &in, 8, 1, -1, param);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_send_nbx(fixture.ep, &out, 8, 1, param)));
    WANT(UCS_OK, fixture_wait(&fixture, receive));
    receive = ucp_tag_recv_nbx(fixture.worker, &in, 8, 1, -1, param);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_send_sync_nbx(fixture.ep, &out, 8, 1, param)));
    WANT(UCS_OK, fixture_wait(&fixture, receive));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_put_nbx(fixture.ep, &out, 8, fixture.remote, fixture.rkey, param)));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_get_nbx(fixture.ep, &in, 8, fixture.remote, fixture.rkey, param)));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_am_send_nbx(fixture.ep, 1, NULL, 0, &out, 8, param)));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_ep_flush_nbx(fixture.ep, param)));
    WANT(UCS_OK, fixture_wait(&fixture, ucp_worker_flush_nbx(fixture.worker, param)));
    none = (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    param = EDGE_STRUCT(ucp_request_param_t, datatype, none);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_atomic_op_nbx(fixture.ep, UCP_ATOMIC_OP_ADD, &out, 1, fixture.remote,
                                                          fixture.rkey, param)));
    none = (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_MEMH, .memh = fixture.memh};
    param = EDGE_STRUCT(ucp_request_param_t, memh, none); /* all fields of 1.13 */
    WANT(UCS_OK, fixture_wait(&fixture, ucp_put_nbx(fixture.ep, fixture.memory + 64, 8, fixture.remote, fixture.rkey,
                                                    param)));
    none  = (ucp_request_param_t){.op_attr_mask = 0};
    param = EDGE_STRUCT(ucp_request_param_t, flags, none);
    ucp_rkey_destroy(fixture.rkey);
    WANT(UCS_OK, fixture_wait(&fixture, ucp_ep_close_nbx(fixture.ep, param)));
    fixture.ep   = NULL;
    fixture.rkey = NULL;
    fixture_close(&fixture);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length, (void)param;
    return UCS_OK;
}

static void small_structs(void)
{
    fixture_t              fixture = fixture_open(ALL_FEATURES);
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = 1, .cb = on_message};
    uint64_t               got;
    ucp_request_param_t    none = {.op_attr_mask = 0};
    ucp_datatype_attr_t    type = {.field_mask = UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE};
    void                  *request = ucp_tag_recv_nbx(fixture.worker, &got, 8, 1, -1, &none);

    WANT(UCS_OK, ucp_worker_set_am_recv_handler(fixture.worker, EDGE_STRUCT(ucp_am_handler_param_t, cb, handler)));
    QUERY(ucp_request_attr_t, status, status, UCP_REQUEST_ATTR_FIELD_STATUS, ucp_request_query(request, attr));
    QUERY(ucp_request_attr_t, mem_type, mem_type, UCP_REQUEST_ATTR_FIELD_MEM_TYPE, ucp_request_query(request, attr));
    QUERY(ucp_request_attr_t, field_mask, field_mask, 0, ucp_request_query(request, attr));
    SURVIVE(ucp_dt_query(ucp_dt_make_contig(8), EDGE_STRUCT(ucp_datatype_attr_t, packed_size, type)));
    ucp_request_cancel(fixture.worker, request);
    ucp_request_free(request);
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"masks: context params", context_params},     {"masks: context attributes", context_attributes},
    {"masks: worker params", worker_params},       {"masks: worker attributes", worker_attributes},
    {"masks: endpoint params", endpoint_params},   {"masks: endpoint attributes", endpoint_attributes},
    {"masks: memory", memory_structs},             {"masks: operations", operations},
    {"masks: small structs", small_structs},
};

CHECK_MAIN(cases)
