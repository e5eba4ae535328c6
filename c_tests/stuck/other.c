/* What the process does for which the waiter waits. */
#define _GNU_SOURCE
#include "hang.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

static ucs_status_t keep_data(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length;
    CHECK(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    return UCS_INPROGRESS;
}

void progresses(void)
{
    hang();
}

void sleeps(void)
{
    for (;;) {
        pause();
    }
}

void computes(void)
{
    for (volatile uint64_t n = 0;; n++) {
    }
}

void sends_tag_2(void)
{
    finish(ucp_tag_send_nbx(ep, "y", 1, 2, &none));
    hang();
}

void dies(void)
{
    _exit(0);
}

void keeps_messages(void)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = HANDLER, .cb = keep_data};

    OK(ucp_worker_set_am_recv_handler(worker, &handler));
    __atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
    hang();
}

void lacks_descriptors(void)
{
    struct rlimit limit;

    OK(getrlimit(RLIMIT_NOFILE, &limit) == 0 ? UCS_OK : UCS_ERR_IO_ERROR);
    limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (open("/dev/null", O_RDONLY) >= 0) {
    }
    __atomic_store_n(&shared->begin, 1, __ATOMIC_RELEASE);
    hang();
}

static void on_client(ucp_conn_request_h request, void *arg)
{
    *(ucp_conn_request_h *)arg = request;
}

static ucp_conn_request_h client;

static void listen_here(void)
{
    struct sockaddr_in   address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_attr_t  attr    = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_listener_params_t params = {
        .field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr     = {(struct sockaddr *)&address, sizeof(address)},
        .conn_handler = {on_client, &client},
    };
    ucp_listener_h listener;

    OK(ucp_listener_create(worker, &params, &listener));
    OK(ucp_listener_query(listener, &attr));
    __atomic_store_n(&shared->port, ((struct sockaddr_in *)&attr.sockaddr)->sin_port, __ATOMIC_RELEASE);
}

void accepts_nobody(void)
{
    listen_here();
    hang();
}

void on_failure(void *arg, ucp_ep_h failed, ucs_status_t status)
{
    (void)arg, (void)failed, (void)status;
}

void accepts_and_sleeps(void)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER, .err_handler.cb = on_failure};
    ucp_ep_h        accepted;
    char            in;

    listen_here();
    while (client == NULL) {
        progress();
    }
    params.conn_request = client;
    OK(ucp_ep_create(worker, &params, &accepted));
    finish(ucp_tag_recv_nbx(worker, &in, 1, 1, ~0ul, &none));
    finish(ucp_tag_send_nbx(accepted, "z", 1, 1, &none));
    for (int i = 0; i < 200; i++) {
        progress();
    }
    __atomic_store_n(&shared->met, 1, __ATOMIC_RELEASE);
    sleeps();
}
