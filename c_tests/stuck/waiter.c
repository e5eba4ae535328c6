/* The calls that hang, or that wait for nothing. */
#define _GNU_SOURCE
#include "hang.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

char *big;

static ucp_rkey_h rkey;

static char in[LONG];

static void await_other(void)
{
    while (__atomic_load_n(&shared->begin, __ATOMIC_ACQUIRE) == 0) {
        progress();
    }
}

void receives(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    hang();
}

void receives_and_stops(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    raise(SIGSTOP);
}

void receives_and_blocks(void)
{
    int ends[2];

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    for (int i = 0; i < 2000; i++) {
        progress();
    }
    CHECK(pipe(ends) == 0 && read(ends[0], in, 1) == 1);
}

void receives_asleep(void)
{
    struct pollfd events = {.events = POLLIN};

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    OK(ucp_worker_get_efd(worker, &events.fd));
    for (;;) {
        while (ucp_worker_progress(worker) != 0) {
        }
        ucs_status_t status = ucp_worker_arm(worker);
        CHECK(status == UCS_OK || status == UCS_ERR_BUSY);
        if (status == UCS_OK) {
            poll(&events, 1, -1);
        }
    }
}

void fills(void)
{
    for (int i = 0; i < 2000; i++) {
        CHECK(!UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep, big, EAGER, 7, &none)));
    }
    hang();
}

void sends_long(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_send_nbx(ep, big, LONG, 7, &none)));
    hang();
}

void sends_short(void)
{
    CHECK(!UCS_PTR_IS_ERR(ucp_tag_send_nbx(ep, big, 8, 7, &none)));
    hang();
}

void sends_short_later(void)
{
    await_other();
    sends_short();
}

void sends_sync(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_send_sync_nbx(ep, big, 8, 7, &none)));
    hang();
}

void sends_message(void)
{
    ucp_request_param_t rndv = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_RNDV};

    await_other();
    CHECK(UCS_PTR_IS_PTR(ucp_am_send_nbx(ep, HANDLER, NULL, 0, big, LONG, &rndv)));
    hang();
}

static void unpack(void)
{
    OK(ucp_ep_rkey_unpack(ep, shared->key, &rkey));
}

void puts_much(void)
{
    unpack();
    for (int i = 0; i < 50000; i++) {
        CHECK(!UCS_PTR_IS_ERR(ucp_put_nbx(ep, big, sizeof(shared->words), (uintptr_t)shared->words, rkey, &none)));
    }
    hang();
}

void gets(void)
{
    unpack();
    CHECK(UCS_PTR_IS_PTR(ucp_get_nbx(ep, in, sizeof(shared->words), (uintptr_t)shared->words, rkey, &none)));
    hang();
}

void fetches(void)
{
    static uint64_t     one = 1, result;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
                                 .datatype = ucp_dt_make_contig(8), .reply_buffer = &result};

    unpack();
    CHECK(UCS_PTR_IS_PTR(
        ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)shared->words, rkey, &param)));
    hang();
}

void flushes(void)
{
    static uint64_t     one   = 1;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};

    unpack();
    CHECK(!UCS_PTR_IS_ERR(
        ucp_atomic_op_nbx(ep, UCP_ATOMIC_OP_ADD, &one, 1, (uintptr_t)shared->words, rkey, &param)));
    CHECK(UCS_PTR_IS_PTR(ucp_ep_flush_nbx(ep, &none)));
    hang();
}

void reads_stream(void)
{
    size_t length;

    CHECK(UCS_PTR_IS_PTR(ucp_stream_recv_nbx(ep, in, 8, &length, &none)));
    hang();
}

static void connect_as_client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_ep_params_t    params  = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                  .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER, .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                  .err_handler.cb = on_failure,
                                  .sockaddr = {(struct sockaddr *)&address, sizeof(address)}};

    while ((address.sin_port = __atomic_load_n(&shared->port, __ATOMIC_ACQUIRE)) == 0) {
        usleep(500);
    }
    OK(ucp_ep_create(worker, &params, &ep));
}

void is_not_accepted(void)
{
    connect_as_client();
    sends_short();
}

void closes(void)
{
    char             byte;
    ucs_status_ptr_t receive;

    connect_as_client();
    receive = ucp_tag_recv_nbx(worker, &byte, 1, 1, ~0ul, &none);
    finish(ucp_tag_send_nbx(ep, "z", 1, 1, &none));
    finish(receive);
    while (__atomic_load_n(&shared->met, __ATOMIC_ACQUIRE) == 0) {
        progress();
    }
    CHECK(UCS_PTR_IS_PTR(ucp_ep_close_nbx(ep, &none)));
    hang();
}

/* Jobs that wait for nothing. Messages of all kinds, and a receive that is never matched. */
void is_busy(void)
{
    static char      out[LONG];
    ucs_status_ptr_t receive;
    char             one;

    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, &one, 1, 77, ~0ul, &none)));
    for (uint64_t round = 0;; round++) {
        size_t length = round % 7 == 0 ? LONG : 8 << round % 9;
        receive       = ucp_tag_recv_nbx(worker, in, length, 1, ~0ul, &none);
        finish(ucp_tag_send_nbx(ep, out, length, 1, &none));
        finish(receive);
        usleep(100);
    }
}

/* A receive that is posted while the process computes. */
void receives_and_computes(void)
{
    CHECK(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(worker, in, 8, 1, ~0ul, &none)));
    for (int i = 0; i < 400; i++) {
        progress();
    }
    computes();
}
