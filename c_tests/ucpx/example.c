/* Two workers: one puts and signals, the other one waits for the signal and reads the data. Returns 0. */
#include <ucp/api/ucpx.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call) ((call) == UCS_OK ? (void)0 : (fprintf(stderr, "failed: %s\n", #call), exit(1)))

static char window[4096];

int main(void)
{
    ucp_params_t         params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t  mode   = {.field_mask = 0};
    ucp_mem_map_params_t map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address    = window,
                                   .length     = sizeof(window)};
    ucp_ep_params_t      to     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_context_h        context;
    ucp_worker_h         origin, target;
    ucp_address_t       *address;
    ucp_mem_h            memh;
    ucp_ep_h             ep;
    ucp_rkey_h           rkey;
    ucpx_cq_h            sent, arrived;
    void                *key;
    size_t               length;

    MUST(ucp_init(&params, NULL, &context));
    MUST(ucp_worker_create(context, &mode, &origin));
    MUST(ucp_worker_create(context, &mode, &target));

    /* The target: registered memory and a queue. Programs exchange worker address and key. */
    MUST(ucp_mem_map(context, &map, &memh));
    MUST(ucp_rkey_pack(context, memh, &key, &length));
    MUST(ucpx_cq_create(target, NULL, &arrived));
    MUST(ucp_worker_get_address(target, &address, &length));

    /* The origin: a put with a signal. The completion of the put goes to a queue of the origin. */
    to.address = address;
    MUST(ucp_ep_create(origin, &to, &ep));
    MUST(ucp_ep_rkey_unpack(ep, key, &rkey));
    MUST(ucpx_cq_create(origin, NULL, &sent));

    const char          text[] = "data in front of a signal";
    ucpx_signal_t       signal = {.field_mask = UCPX_SIGNAL_FIELD_VALUE, .value = 42};
    ucp_request_param_t op     = {
            .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
            .cb.send      = ucpx_cq_push_send,
            .user_data    = &sent,
    };
    ucs_status_ptr_t put = ucpx_put_signal_nbx(ep, text, sizeof(text), (uintptr_t)window, rkey, &signal, &op);
    if (UCS_PTR_IS_ERR(put)) {
        return 1;
    }

    /* The target waits for the signal, the origin for the completion. */
    ucpx_cq_entry_t entry;
    int             completed = 0, signaled = 0;
    while (!completed || !signaled) {
        if (ucpx_cq_poll(sent, &entry, 1) == 1) {
            MUST(entry.status);
            ucp_request_free(entry.request);
            completed = 1;
        }
        if (ucpx_cq_poll(arrived, &entry, 1) == 1) {
            printf("signal %d behind %zu bytes: %s\n", (int)entry.value, entry.length, window);
            signaled = entry.value == 42 && strcmp(window, text) == 0;
        }
    }

    ucpx_cq_destroy(sent);
    ucpx_cq_destroy(arrived);
    ucp_rkey_destroy(rkey);
    ucp_rkey_buffer_release(key);

    /* Both workers progress until the close completes. */
    const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_ptr_t          close = ucp_ep_close_nbx(ep, &plain);
    while (UCS_PTR_IS_PTR(close) && ucp_request_check_status(close) == UCS_INPROGRESS) {
        ucp_worker_progress(origin);
        ucp_worker_progress(target);
    }
    if (UCS_PTR_IS_PTR(close)) {
        ucp_request_free(close);
    }
    ucp_worker_release_address(target, address);
    ucp_worker_destroy(origin);
    ucp_mem_unmap(context, memh);
    ucp_worker_destroy(target);
    ucp_cleanup(context);
    return 0;
}
