/* A typical program of a library's user: sends itself a message and prints the library it used. */

#include <ucp/api/ucp.h>
#include <stdio.h>
#include <string.h>

static inline void check(ucs_status_t status, const char *what, int *failures) {
    if (status != UCS_OK) {
        fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
        ++*failures;
    }
}

/* Progresses until the request ends, and frees it. */
static inline ucs_status_t wait_for(ucp_worker_h worker, ucs_status_ptr_t request) {
    ucs_status_t status;
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        ucp_worker_progress(worker);
    }
    ucp_request_free(request);
    return status;
}

/* Sends `text` from the worker to itself and compares the received message. */
static inline void talk(ucp_worker_h worker, ucp_ep_h ep, const char *text, int *failures) {
    char arrived[64] = "";
    ucp_request_param_t param;
    ucs_status_ptr_t receive, send;

    param.op_attr_mask = 0;
    receive = ucp_tag_recv_nbx(worker, arrived, sizeof(arrived), 7, ~(ucp_tag_t)0, &param);
    send = ucp_tag_send_nbx(ep, text, strlen(text) + 1, 7, &param);
    check(wait_for(worker, send), "send", failures);
    check(wait_for(worker, receive), "receive", failures);
    if (strcmp(text, arrived) != 0) {
        fprintf(stderr, "sent '%s', received '%s'\n", text, arrived);
        ++*failures;
    }
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = 0;
    check(wait_for(worker, ucp_ep_close_nbx(ep, &param)), "close", failures);
}

/* Prints each mapped file of the UCX libraries. */
static inline void print_maps(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "/libuc") != NULL) {
            printf("mapped %s", strchr(line, '/'));
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
}

static inline int client(const char *text) {
    int failures = 0;
    ucp_params_t params;
    ucp_worker_params_t worker_params;
    ucp_ep_params_t ep_params;
    ucp_worker_attr_t attr;
    ucp_config_t *config = NULL;
    ucp_context_h context = NULL;
    ucp_worker_h worker = NULL;
    ucp_ep_h ep = NULL;

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    worker_params.field_mask = 0;
    attr.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;

    check(ucp_config_read(NULL, NULL, &config), "config_read", &failures);
    check(ucp_init(&params, config, &context), "init", &failures);
    ucp_config_release(config);
    check(ucp_worker_create(context, &worker_params, &worker), "worker_create", &failures);
    check(ucp_worker_query(worker, &attr), "worker_query", &failures);
    ep_params.address = attr.address;
    check(ucp_ep_create(worker, &ep_params, &ep), "ep_create", &failures);
    if (failures == 0) {
        talk(worker, ep, text, &failures);
        ucp_worker_release_address(worker, attr.address);
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        print_maps();
    }
    printf("version %s\n", ucp_get_version_string());
    return failures;
}
