/* Uses of the headers in the common subset of C and C++. */

#include <ucp/api/ucp.h>
#include <ucp/api/device/ucp_host.h>
#include <ucm/api/ucm.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>
#include <string.h>

/* Tags and typedefs are those of UCX. */
struct tags {
    struct ucp_context *context;
    struct ucp_worker *worker;
    struct ucp_ep *ep;
    struct ucp_mem *mem;
    struct ucp_rkey *rkey;
    struct ucp_recv_desc *message;
    struct ucp_address *address;
    struct ucp_params params;
    struct ucp_ep_params ep_params;
    struct ucp_tag_recv_info info;
    enum ucp_feature feature;
    enum ucp_params_field field;
    enum ucp_dt_type dt;
    enum ucp_ep_close_mode mode;
    enum ucs_memory_type memory;
    ucp_wakeup_event_t event;
};

/* The same handles, by both names. */
static inline void same_names(struct tags *tags, ucp_context_h context, ucp_ep_h ep, ucp_tag_message_h message) {
    tags->context = context;
    tags->ep = ep;
    tags->message = message;
}

static inline void sent(void *request, ucs_status_t status, void *user_data) {
    (void)request;
    (void)status;
    (void)user_data;
}

static inline void received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data) {
    (void)request;
    (void)status;
    (void)info;
    (void)user_data;
}

static inline ucs_status_t handled(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                   const ucp_am_recv_param_t *param) {
    (void)arg;
    (void)header;
    (void)header_length;
    (void)data;
    (void)length;
    return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) ? UCS_INPROGRESS : UCS_OK;
}

/* Masks are made with |, unions are reached by member, names of variables may be those of tags. */
static inline const char *parameters(size_t *length, ucp_tag_recv_info_t *info) {
    ucp_params_t ucp_params;
    ucp_request_param_t param;
    ucp_am_handler_param_t handler;
    ucp_ep_attr_t ep_attr;
    ucp_context_h ucp_context = NULL;
    ucs_cpu_set_t cpus;
    ucs_status_ptr_t pointer = UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);

    memset(&ucp_params, 0, sizeof(ucp_params));
    ucp_params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_NAME;
    ucp_params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA;
    if (ucp_init(&ucp_params, NULL, &ucp_context) != UCS_OK) {
        return ucs_status_string(UCS_PTR_STATUS(pointer));
    }
    memset(&param, 0, sizeof(param));
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.send = sent;
    param.cb.recv = received;
    param.recv_info.length = length;
    param.recv_info.tag_info = info;
    param.datatype = ucp_dt_make_contig(sizeof(int));
    param.memory_type = UCS_MEMORY_TYPE_UNKNOWN;
    handler.cb = handled;
    handler.id = UCP_AM_SEND_REPLY;
    (void)handler;
    ep_attr.transports.entry_size = sizeof(ucp_transport_entry_t);
    ep_attr.local_sockaddr.ss_family = 0;
    (void)ep_attr;
    UCS_CPU_ZERO(&cpus);
    UCS_CPU_SET(3, &cpus);
    UCS_CPU_CLR(3, &cpus);
    UCS_STATIC_ASSERT(sizeof(ucs_status_t) == 1);
    UCS_STATIC_ASSERT(sizeof(param) == 96);
    switch (UCS_PTR_RAW_STATUS(pointer)) {
    case UCS_OK:
    case UCS_INPROGRESS:
        break;
    default:
        *length = UCS_MASK(64) & UCS_BIT(3);
    }
    if (UCS_PTR_IS_ERR(pointer) || UCS_PTR_IS_PTR(pointer) || !ucs_cpu_set_is_empty(&cpus)) {
        return ucs_memory_type_names[UCS_MEMORY_TYPE_HOST];
    }
    ucp_cleanup(ucp_context);
    return NULL;
}

static inline void logged(ucs_log_component_config_t *config) {
    ucs_log_component(UCS_LOG_LEVEL_WARN, config, "one %d two %s", 1, "2");
    ucs_log_component(UCS_LOG_LEVEL_WARN, config, "none");
    ucm_set_external_event(UCM_EVENT_VM_UNMAPPED);
}

#if UCP_API_VERSION < UCP_VERSION(1, 22) || UCT_API >= UCT_VERSION(1, 0)
#error "the preprocessor must see the versions"
#endif
