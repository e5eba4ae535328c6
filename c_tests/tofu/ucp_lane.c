#include "ucp_lane.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static ucp_context_h context;
static struct ucp_lane lanes_ucp[DIRECT_THREADS];

#define FINE(call) EQUAL(call, UCS_OK)

static void send_bytes(int socket, const void *bytes, size_t length)
{
    EQUAL(write(socket, &length, sizeof(length)), sizeof(length));
    EQUAL(write(socket, bytes, length), length);
}

static void *receive_bytes(int socket)
{
    size_t length;
    void *bytes;

    EQUAL(recv(socket, &length, sizeof(length), MSG_WAITALL), sizeof(length));
    bytes = malloc(length);
    CHECK(bytes != NULL);
    EQUAL(recv(socket, bytes, length, MSG_WAITALL), length);
    return bytes;
}

/* One context for the process; the first lane makes it. */
static void open_context(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_config_t *config;

    FINE(ucp_config_read(NULL, NULL, &config));
    FINE(ucp_init(&params, config, &context));
    ucp_config_release(config);
}

void ucp_lane_open(struct lane *lane, int number)
{
    const struct direct *direct = lane->direct;
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = direct->shared ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SERIALIZED};
    int socket = direct->socket;
    struct ucp_lane *ucp = lane->ucp = &lanes_ucp[number];
    ucp_mem_map_params_t map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                .length = DIRECT_SLOT};
    ucp_address_t *address;
    size_t length;
    void *key;

    if (number == 0)
        open_context();
    if (direct->shared && number > 0)
        ucp->worker = lanes_ucp[0].worker;
    else
        FINE(ucp_worker_create(context, &params, &ucp->worker));
    map.address = lane->buffer = memory(DIRECT_SLOT);
    FINE(ucp_mem_map(context, &map, &ucp->memh));
    FINE(ucp_worker_get_address(ucp->worker, &address, &length));
    send_bytes(socket, address, length);
    ucp_worker_release_address(ucp->worker, address);
    FINE(ucp_rkey_pack(context, ucp->memh, &key, &length));
    send_bytes(socket, key, length);
    ucp_rkey_buffer_release(key);
    send_bytes(socket, &lane->buffer, sizeof(lane->buffer));
}

void ucp_lane_connect(struct lane *lane)
{
    struct ucp_lane *ucp = lane->ucp;
    int socket = lane->direct->socket;
    void *address = receive_bytes(socket), *key = receive_bytes(socket), *at = receive_bytes(socket);
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};

    FINE(ucp_ep_create(ucp->worker, &params, &ucp->ep));
    FINE(ucp_ep_rkey_unpack(ucp->ep, key, &ucp->rkey));
    memcpy(&ucp->remote, at, sizeof(ucp->remote));
    free(address);
    free(key);
    free(at);
}

bool ucp_has_ended(void *request)
{
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        FINE(UCS_PTR_STATUS(request));
        return true;
    }
    status = ucp_request_check_status(request);
    if (status == UCS_INPROGRESS)
        return false;
    FINE(status);
    ucp_request_free(request);
    return true;
}

void ucp_lanes_settle(struct lane *lanes, int count)
{
    int left = count, socket = lanes[0].direct->socket;
    char byte = 0;

    for (int i = 0; i < count; i++) {
        struct ucp_lane *ucp = lanes[i].ucp;

        CHECK(!UCS_PTR_IS_ERR(ucp_put_nbx(ucp->ep, ucp->data, 8, ucp->remote, ucp->rkey, &ucp_plain)));
        ucp->request = ucp_ep_flush_nbx(ucp->ep, &ucp_plain);
    }
    do { /* the other process needs this one's progress until it is done */
        for (int i = 0; i < count; i++) {
            struct ucp_lane *ucp = lanes[i].ucp;

            ucp_worker_progress(ucp->worker);
            if (ucp->request == &ucp->request || !ucp_has_ended(ucp->request))
                continue;
            ucp->request = &ucp->request; /* seen */
            if (--left == 0)
                EQUAL(write(socket, &byte, 1), 1);
        }
    } while (left > 0 || recv(socket, &byte, 1, MSG_DONTWAIT) != 1);
    for (int i = 0; i < count; i++)
        lanes[i].ucp->request = NULL;
}
