/* Wrong values: masks, flags, sizes, alignments, missing features. */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>

static void context(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_context_h made;
    ucp_config_t *config;

    /* other versions cause a warning, no error */
    WANT(UCS_OK, ucp_init_version(2, 0, &params, NULL, &made));
    SURVIVE_VOID(ucp_cleanup(made));
    WANT(UCS_OK, ucp_init_version(1, 99, &params, NULL, &made));
    SURVIVE_VOID(ucp_cleanup(made));
    WANT(UCS_OK, ucp_init_version(1, 0, &params, NULL, &made));
    SURVIVE_VOID(ucp_cleanup(made));
    params.features = ~0ull;
    SURVIVE(ucp_init_version(1, 22, &params, NULL, &made));

    WANT(UCS_OK, ucp_config_read(NULL, NULL, &config));
    WANT_TRUE(ucp_config_modify(config, "NO_SUCH_OPTION", "1") != UCS_OK);
    WANT(INVALID, ucp_config_modify(config, "RNDV_THRESH", "a lot"));
    WANT_TRUE(ucp_config_modify(config, "", "") != UCS_OK);
    SURVIVE_VOID(ucp_config_release(config));
}

static void endpoint(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_ep_params_t     params  = {.field_mask = 0};
    ucp_request_param_t force   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_h            ep;

    WANT(INVALID, ucp_ep_create(fixture.worker, &params, &ep));
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS;
    params.flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    WANT(INVALID, ucp_ep_create(fixture.worker, &params, &ep));
    WANT_PTR(INVALID, ucp_ep_close_nbx(fixture.ep, &force));
    WANT_PTR(INVALID, ucp_ep_close_nb(fixture.ep, UCP_EP_CLOSE_MODE_FORCE));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* While an endpoint is being closed a second close is NOT_CONNECTED; afterwards its handle is invalid. */
static void closed_twice(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = 0};
    static char         out[1 << 20], in[1 << 20];

    ucp_rkey_destroy(fixture.rkey);
    ucs_status_ptr_t sent   = ucp_tag_send_sync_nbx(fixture.ep, out, sizeof(out), 1, &param);
    ucs_status_ptr_t closed = ucp_ep_close_nbx(fixture.ep, &param);
    if (UCS_PTR_IS_PTR(closed) && ucp_request_check_status(closed) == UCS_INPROGRESS) {
        WANT_PTR(UCS_ERR_NOT_CONNECTED, ucp_ep_close_nbx(fixture.ep, &param));
    }
    WANT(UCS_OK, fixture_wait(&fixture, ucp_tag_recv_nbx(fixture.worker, in, sizeof(in), 1, -1, &param)));
    WANT(UCS_OK, fixture_wait(&fixture, sent));
    WANT(UCS_OK, fixture_wait(&fixture, closed));
    fixture.ep   = NULL;
    fixture.rkey = NULL;
    fixture_close(&fixture);
}

static void flags(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t param   = {.op_attr_mask = UCP_OP_ATTR_FLAG_FAST_CMPL | UCP_OP_ATTR_FLAG_MULTI_SEND};
    uint64_t            value   = 1;

    WANT_PTR(INVALID, ucp_tag_send_nbx(fixture.ep, &value, 8, 1, &param));
    WANT_PTR(INVALID, ucp_tag_send_sync_nbx(fixture.ep, &value, 8, 1, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, NULL, 0, &value, 8, &param));
    WANT_PTR(INVALID, ucp_put_nbx(fixture.ep, &value, 8, fixture.remote, fixture.rkey, &param));
    WANT_PTR(INVALID, ucp_get_nbx(fixture.ep, &value, 8, fixture.remote, fixture.rkey, &param));
    param = (ucp_request_param_t){.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags        = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_RNDV};
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, NULL, 0, &value, 8, &param));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length, (void)param;
    return UCS_OK;
}

static void am_handler(void)
{
    fixture_t              fixture = fixture_open(ALL_FEATURES);
    ucp_am_handler_param_t param   = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_CB, .cb = on_message};

    WANT(INVALID, ucp_worker_set_am_recv_handler(fixture.worker, &param));
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID;
    WANT(INVALID, ucp_worker_set_am_recv_handler(fixture.worker, &param));
    param.field_mask |= UCP_AM_HANDLER_PARAM_FIELD_CB;
    param.id          = 65536;
    WANT(INVALID, ucp_worker_set_am_recv_handler(fixture.worker, &param));
    param.id         = 1;
    param.field_mask |= UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    param.flags       = 1u << 15;
    WANT(INVALID, ucp_worker_set_am_recv_handler(fixture.worker, &param));
    param.flags = 0;
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(fixture.worker, &param));
    fixture_close(&fixture);
}

static void am_header(void)
{
    fixture_t           fixture = fixture_open(ALL_FEATURES);
    ucp_worker_attr_t   attr    = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucp_request_param_t param   = {.op_attr_mask = 0};
    static char         header[1 << 20];

    WANT(UCS_OK, ucp_worker_query(fixture.worker, &attr));
    WANT_TRUE(attr.max_am_header < sizeof(header));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, header, attr.max_am_header + 1, NULL, 0, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 1, header, (size_t)-1, NULL, 0, &param));
    WANT_PTR(INVALID, ucp_am_send_nbx(fixture.ep, 65536, NULL, 0, header, 8, &param));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* A descriptor can be received once. */
static void       *kept;
static ucs_status_t on_kept(void *arg, const void *header, size_t header_length, void *data, size_t length,
                            const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)length;
    kept = data;
    return param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV ? UCS_INPROGRESS : UCS_OK;
}

static void am_received_twice(void)
{
    fixture_t              fixture = fixture_open(ALL_FEATURES);
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = 1, .cb = on_kept};
    ucp_request_param_t    param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_RNDV};
    ucp_request_param_t    receive = {.op_attr_mask = 0};
    static char            out[300000], in[300000];

    WANT(UCS_OK, ucp_worker_set_am_recv_handler(fixture.worker, &handler));
    ucs_status_ptr_t sent = ucp_am_send_nbx(fixture.ep, 1, NULL, 0, out, sizeof(out), &param);
    for (int i = 0; i < 100000 && kept == NULL; i++) {
        ucp_worker_progress(fixture.worker);
    }
    WANT_TRUE(kept != NULL);
    ucs_status_ptr_t first = ucp_am_recv_data_nbx(fixture.worker, kept, in, sizeof(in), &receive);
    if (UCS_PTR_IS_PTR(first) && ucp_request_check_status(first) == UCS_INPROGRESS) {
        WANT_PTR(INVALID, ucp_am_recv_data_nbx(fixture.worker, kept, in, sizeof(in), &receive));
    }
    WANT(UCS_OK, fixture_wait(&fixture, first));
    WANT(UCS_OK, fixture_wait(&fixture, sent));
    fixture_close(&fixture);
}

static ucs_status_ptr_t atomic(fixture_t *fixture, ucp_atomic_op_t op, size_t count, uint64_t offset, uint32_t mask,
                               ucp_datatype_t type)
{
    static uint64_t     value = 1, reply;
    ucp_request_param_t param = {.op_attr_mask = mask, .datatype = type, .reply_buffer = &reply,
                                 .memh = fixture->memh};

    return ucp_atomic_op_nbx(fixture->ep, op, &value, count, fixture->remote + offset, fixture->rkey, &param);
}

static void atomics(void)
{
    fixture_t      fixture = fixture_open(ALL_FEATURES);
    const uint32_t type    = UCP_OP_ATTR_FIELD_DATATYPE, reply = UCP_OP_ATTR_FIELD_REPLY_BUFFER;
    ucp_datatype_t eight = ucp_dt_make_contig(8), four = ucp_dt_make_contig(4);

    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, 0, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 2, 0, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 0, 0, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, type, ucp_dt_make_contig(1)));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, type, ucp_dt_make_contig(2)));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, type, ucp_dt_make_contig(16)));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, type, ucp_dt_make_iov()));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 4, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 1, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 2, type, four));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 1, type | reply, four));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_LAST, 1, 0, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, (ucp_atomic_op_t)-1, 1, 0, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_SWAP, 1, 0, type, eight));
    WANT_PTR(INVALID, atomic(&fixture, UCP_ATOMIC_OP_CSWAP, 1, 0, type, eight));
    WANT(INVALID, ucp_atomic_post(fixture.ep, UCP_ATOMIC_POST_OP_ADD, 1, 3, fixture.remote, fixture.rkey));
    WANT(INVALID, ucp_atomic_post(fixture.ep, UCP_ATOMIC_POST_OP_LAST, 1, 8, fixture.remote, fixture.rkey));
    WANT(INVALID, ucp_atomic_add32(fixture.ep, 1, fixture.remote + 1, fixture.rkey));
    WANT(INVALID, ucp_atomic_add64(fixture.ep, 1, fixture.remote + 4, fixture.rkey));
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(fixture.worker);
    }
    for (size_t i = 0; i < 64; i++) {
        WANT_TRUE(fixture.memory[i] == 0);
    }
    WANT_PTR(UCS_OK, atomic(&fixture, UCP_ATOMIC_OP_ADD, 1, 0, type, eight));
    fixture_close(&fixture);
}

static void mapping(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES);
    ucp_mem_map_params_t params  = {.field_mask = 0};
    ucp_mem_h            memh;
    static char          ours[8192];
    const uint64_t       length = UCP_MEM_MAP_PARAM_FIELD_LENGTH, address = UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
                         flag = UCP_MEM_MAP_PARAM_FIELD_FLAGS;

#define MAP(mask_, address_, length_, flags_)                                                                         \
    (params = (ucp_mem_map_params_t){.field_mask = (mask_), .address = (void *)(address_), .length = (length_),       \
                                     .flags = (flags_)},                                                              \
     ucp_mem_map(fixture.context, &params, &memh))
    WANT(INVALID, MAP(0, ours, sizeof(ours), 0));
    WANT(INVALID, MAP(address, ours, sizeof(ours), 0));
    WANT(INVALID, MAP(length, ours, sizeof(ours), 0));
    WANT(INVALID, MAP(length | address, NULL, 4096, 0));
    WANT(INVALID, MAP(length | address | flag, NULL, 4096, UCP_MEM_MAP_NONBLOCK));
    WANT(INVALID, MAP(length | address | flag, ours, 4096, UCP_MEM_MAP_FIXED));
    WANT(UCS_ERR_NO_MEMORY, MAP(length | flag, NULL, 4096, UCP_MEM_MAP_FIXED | UCP_MEM_MAP_ALLOCATE));
    WANT(UCS_ERR_NO_MEMORY, MAP(length | address | flag, NULL, 4096, UCP_MEM_MAP_FIXED | UCP_MEM_MAP_ALLOCATE));
    WANT(INVALID, MAP(length | address | flag, 0x7f0000000008, 4096, UCP_MEM_MAP_FIXED | UCP_MEM_MAP_ALLOCATE));
    WANT(INVALID, MAP(length | address | flag, ours, 4096, UCP_MEM_MAP_NONBLOCK | UCP_MEM_MAP_LOCK));
    WANT_TRUE(MAP(length | flag, NULL, (size_t)-1, UCP_MEM_MAP_ALLOCATE) != UCS_OK);
    WANT_TRUE(MAP(length | flag, NULL, (size_t)1 << 60, UCP_MEM_MAP_ALLOCATE) != UCS_OK);
    WANT_TRUE(MAP(length | address, ours, (size_t)-1, 0) != UCS_OK);
#undef MAP
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static void advising(void)
{
    fixture_t               fixture = fixture_open(ALL_FEATURES);
    ucp_mem_advise_params_t advice  = {.address = fixture.memory, .length = 4096, .advice = UCP_MADV_NORMAL};

    for (uint64_t mask = 0; mask < 7; mask++) {
        advice.field_mask = mask;
        WANT(INVALID, ucp_mem_advise(fixture.context, fixture.memh, &advice));
    }
    advice.field_mask = 7;
    WANT(UCS_OK, ucp_mem_advise(fixture.context, fixture.memh, &advice));
    advice.address = fixture.memory - 4096;
    WANT(INVALID, ucp_mem_advise(fixture.context, fixture.memh, &advice));
    advice.address = fixture.memory;
    advice.length  = FIXTURE_MEMORY + 4096;
    WANT(INVALID, ucp_mem_advise(fixture.context, fixture.memh, &advice));
    advice.length = (size_t)-1;
    WANT(INVALID, ucp_mem_advise(fixture.context, fixture.memh, &advice));
    fixture_close(&fixture);
}

static void features(void)
{
    fixture_t           none   = fixture_open(UCP_FEATURE_RMA);
    ucp_request_param_t param  = {.op_attr_mask = 0};
    ucp_request_param_t typed  = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    uint64_t            value  = 1;
    size_t              length = 8;
    int                 fd;

    WANT_PTR(INVALID, ucp_tag_send_nbx(none.ep, &value, 8, 1, &param));
    WANT_PTR(INVALID, ucp_tag_send_sync_nbx(none.ep, &value, 8, 1, &param));
    WANT_PTR(INVALID, ucp_tag_recv_nbx(none.worker, &value, 8, 1, -1, &param));
    WANT_TRUE(ucp_tag_probe_nb(none.worker, 1, -1, 0, &(ucp_tag_recv_info_t){0}) == NULL);
    WANT_PTR(INVALID, ucp_am_send_nbx(none.ep, 1, NULL, 0, &value, 8, &param));
    WANT(INVALID, ucp_worker_set_am_handler(none.worker, 1, NULL, NULL, 0));
    WANT_TRUE(UCS_PTR_IS_ERR(ucp_stream_send_nbx(none.ep, &value, 8, &param)));
    WANT_TRUE(UCS_PTR_IS_ERR(ucp_stream_recv_nbx(none.ep, &value, 8, &length, &param)));
    WANT_TRUE(UCS_PTR_IS_ERR(ucp_stream_recv_data_nb(none.ep, &length)));
    WANT_PTR(INVALID, ucp_atomic_op_nbx(none.ep, UCP_ATOMIC_OP_ADD, &value, 1, none.remote, none.rkey, &typed));
    WANT(INVALID, ucp_worker_get_efd(none.worker, &fd));
    WANT(INVALID, ucp_worker_arm(none.worker));
    WANT(INVALID, ucp_worker_wait(none.worker));
    WANT(INVALID, ucp_worker_signal(none.worker));
    fixture_close(&none);

    fixture_t tags = fixture_open(UCP_FEATURE_TAG | UCP_FEATURE_AMO32);
    WANT_PTR(INVALID, ucp_put_nbx(tags.ep, &value, 8, tags.remote, tags.rkey, &param));
    WANT_PTR(INVALID, ucp_get_nbx(tags.ep, &value, 8, tags.remote, tags.rkey, &param));
    WANT_PTR(INVALID, ucp_atomic_op_nbx(tags.ep, UCP_ATOMIC_OP_ADD, &value, 1, tags.remote, tags.rkey, &typed));
    fixture_works(&tags);
    fixture_close(&tags);
}

static void datatypes(void)
{
    fixture_t            fixture = fixture_open(ALL_FEATURES);
    ucp_request_param_t  param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE};
    ucp_generic_dt_ops_t ops     = {NULL};
    ucp_datatype_t       type;
    char                 data[64] = {0};
    static const ucp_datatype_t unknown[] = {UCP_DATATYPE_STRIDED, 3, 5, 6};

    for (int i = 0; i < 4; i++) {
        param.datatype = unknown[i];
        WANT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(fixture.ep, data, 1, 1, &param)));
        WANT_TRUE(UCS_PTR_IS_ERR(ucp_tag_recv_nbx(fixture.worker, data, 1, 1, -1, &param)));
    }
    /* a length that does not fit */
    param.datatype = ucp_dt_make_contig(1ull << 40);
    WANT_TRUE(UCS_PTR_IS_ERR(ucp_tag_send_nbx(fixture.ep, data, 1ull << 40, 1, &param)));
    SURVIVE(ucp_dt_create_generic(&ops, NULL, &type));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"parameters: context", context},     {"parameters: endpoint", endpoint},
    {"parameters: closed twice", closed_twice}, {"parameters: flags", flags},
    {"parameters: am handler", am_handler}, {"parameters: am header", am_header},
    {"parameters: am received twice", am_received_twice}, {"parameters: atomics", atomics},
    {"parameters: mapping", mapping},     {"parameters: advising", advising},
    {"parameters: features", features},   {"parameters: datatypes", datatypes},
};

CHECK_MAIN(cases)
