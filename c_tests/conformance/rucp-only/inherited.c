/*
 * What a forked child finds of its parent's: a call of progress in whose callback it was forked ends with that
 * callback, requests that had not ended are cancelled, handlers of fork() that the program registered before it
 * initialised the library find all of it disabled, and so does a child that was made without such handlers. The parent
 * misses nothing.
 */
#define _GNU_SOURCE
#include "party.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW = 16, FORK_AT = 4 /* so that a call of progress has more */, AM_ID = 3, TAG = 1, UNSENT = 7, LATE = 8 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static party_t  parent; /* what a child inherits */
static pid_t    forked = -1;
static unsigned came; /* messages that callbacks have seen */

static void destroy_all(void)
{
    SURVIVE(ucp_ep_close_nbx(parent.ep, &force));
    SURVIVE_VOID(ucp_worker_destroy(parent.worker));
    SURVIVE_VOID(ucp_cleanup(parent.context));
}

/* --- the other process --- */

static void send_back(party_t *self)
{
    uint64_t value = 0;

    WANT(UCS_OK, finish(self, receive_tag(self, &value, sizeof(value), TAG)));
    WANT(UCS_OK, finish(self, send_tag(self, &value, sizeof(value))));
}

static void send_active_messages(party_t *self)
{
    WANT_TRUE(wait_notified(self));
    for (uint64_t i = 0; i < ROW; i++) {
        WANT(UCS_OK, finish(self, ucp_am_send_nbx(self->ep, AM_ID, NULL, 0, &i, sizeof(i), &plain)));
    }
    notify_peer(self);
    send_back(self);
}

static void send_tagged(party_t *self)
{
    WANT_TRUE(wait_notified(self));
    for (uint64_t i = 0; i < ROW; i++) {
        WANT(UCS_OK, finish(self, send_tag(self, &i, sizeof(i))));
    }
    notify_peer(self);
    send_back(self);
}

/* Receives what the parent has sent before it forked, and sends what it has posted a receive for. */
static void receive_late(party_t *self)
{
    uint64_t value = 0;

    WANT_TRUE(wait_notified(self));
    WANT(UCS_OK, finish(self, receive_tag(self, &value, sizeof(value), LATE)));
    WANT_TRUE(value == LATE);
    WANT(UCS_OK, finish(self, ucp_tag_send_nbx(self->ep, &value, sizeof(value), LATE, &plain)));
    send_back(self);
}

/* --- the parent --- */

/* The child has found what it should, and the connection is as it was. */
static void check_end(pid_t child)
{
    uint64_t out = 42, in = 0;
    int      status;

    WANT_TRUE(waitpid(child, &status, 0) == child && status == 0);
    WANT(UCS_OK, finish(&parent, send_tag(&parent, &out, sizeof(out))));
    WANT(UCS_OK, finish(&parent, receive_tag(&parent, &in, sizeof(in), TAG)));
    WANT_TRUE(in == out && parent.failures == 0);
    kill_other(&parent);
    ucp_worker_destroy(parent.worker);
    ucp_cleanup(parent.context);
}

/* A message has come: in its turn, and to the child only the one in whose callback it was forked. */
static void count(const void *data)
{
    uint64_t number;

    memcpy(&number, data, sizeof(number));
    WANT_TRUE(forked != 0 && number == came);
    if (++came == FORK_AT) {
        forked = fork();
    }
}

static void progress_until_all_came(void)
{
    notify_peer(&parent);
    wait_notified_blocking(&parent);
    for (int i = 0; i < 10000000 && came < ROW && forked != 0; i++) {
        ucp_worker_progress(parent.worker);
    }
}

static void progress_in_child(void)
{
    unsigned events = 0;

    for (int i = 0; i < 100000; i++) {
        events += ucp_worker_progress(parent.worker);
    }
    WANT_TRUE(events == 0 && came == FORK_AT);
}

static ucs_status_t on_active_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                                      const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)param;
    WANT_TRUE(length == sizeof(uint64_t));
    count(data);
    return UCS_OK;
}

static void in_a_handler(void)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id         = AM_ID,
                                      .cb         = on_active_message};

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, send_active_messages);
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(parent.worker, &handler));
    progress_until_all_came();
    if (forked == 0) {
        progress_in_child();
        destroy_all();
        exit(check_failed());
    }
    WANT_TRUE(came == ROW);
    check_end(forked);
}

static void in_a_handler_of_threads(void)
{
    party_thread_mode = UCS_THREAD_MODE_MULTI;
    in_a_handler();
}

static void on_tagged(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)info;
    WANT(UCS_OK, status);
    count(user_data);
}

static void in_a_receive(void)
{
    static uint64_t     values[ROW];
    ucs_status_ptr_t    receives[ROW];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                 .cb           = {.recv = on_tagged}};

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, send_tagged);
    memset(values, 255, sizeof(values));
    for (int i = 0; i < ROW; i++) {
        param.user_data = &values[i];
        receives[i]     = ucp_tag_recv_nbx(parent.worker, &values[i], sizeof(values[i]), TAG, -1, &param);
        WANT_TRUE(UCS_PTR_IS_PTR(receives[i]));
    }
    progress_until_all_came();
    if (forked == 0) {
        progress_in_child();
        for (int i = 0; i < ROW; i++) {
            WANT(i < FORK_AT ? UCS_OK : UCS_ERR_CANCELED, ucp_request_check_status(receives[i]));
            WANT_TRUE(i < FORK_AT || values[i] == UINT64_MAX);
            ucp_request_free(receives[i]);
        }
        destroy_all();
        exit(check_failed());
    }
    WANT_TRUE(came == ROW);
    for (int i = 0; i < ROW; i++) {
        WANT(UCS_OK, finish(&parent, receives[i]));
    }
    check_end(forked);
}

static void in_a_receive_of_threads(void)
{
    party_thread_mode = UCS_THREAD_MODE_MULTI;
    in_a_receive();
}

/* --- what had not ended --- */

static unsigned called;

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)request, (void)user_data;
    WANT(UCS_OK, status);
    called++;
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)info;
    on_sent(request, status, user_data);
}

static void check_registered(ucp_mem_h memh)
{
    ucp_memh_pack_params_t none = {.field_mask = 0};
    void                  *packed;
    size_t                 length;

    WANT(UCS_ERR_UNSUPPORTED, ucp_rkey_pack(parent.context, memh, &packed, &length));
    WANT(UCS_ERR_UNSUPPORTED, ucp_memh_pack(memh, &none, &packed, &length));
    WANT(UCS_ERR_UNSUPPORTED, ucp_worker_fence(parent.worker));
    WANT(UCS_OK, ucp_mem_unmap(parent.context, memh));
}

static void requests(void)
{
    static uint64_t     in, out = LATE, never, memory[512];
    ucp_request_param_t sent     = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb = {.send = on_sent}};
    ucp_request_param_t received = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb = {.recv = on_received}};
    ucp_mem_map_params_t map     = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                    .address    = memory,
                                    .length     = sizeof(memory)};
    ucs_status_ptr_t    all[3];
    ucp_mem_h           memh;

    start(&parent, UCP_ERR_HANDLING_MODE_PEER, receive_late);
    WANT(UCS_OK, ucp_mem_map(parent.context, &map, &memh));
    all[0] = ucp_tag_recv_nbx(parent.worker, &in, sizeof(in), LATE, -1, &received);
    all[1] = ucp_tag_send_sync_nbx(parent.ep, &out, sizeof(out), LATE, &sent);
    all[2] = ucp_tag_recv_nbx(parent.worker, &never, sizeof(never), UNSENT, -1, &plain);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            ucp_request_cancel(parent.worker, all[i]);
            WANT(UCS_ERR_CANCELED, finish(&parent, all[i]));
        }
        WANT_TRUE(called == 0);
        check_registered(memh);
        destroy_all();
        exit(check_failed());
    }
    notify_peer(&parent);
    WANT(UCS_OK, finish(&parent, all[0]));
    WANT(UCS_OK, finish(&parent, all[1]));
    WANT_TRUE(called == 2 && in == LATE);
    WANT(UCS_INPROGRESS, ucp_request_check_status(all[2]));
    ucp_request_cancel(parent.worker, all[2]);
    WANT(UCS_ERR_CANCELED, finish(&parent, all[2]));
    WANT(UCS_OK, ucp_mem_unmap(parent.context, memh));
    check_end(child);
}

/* --- handlers of fork() that the program registered first --- */

static int handles; /* whether this case's handler does anything, and whether it has */

static void in_child(void)
{
    static const size_t lengths[] = {0, 8, 64, 1000, 20000, 300000};
    static char         message[300000];
    unsigned            events = 0;

    if (!handles) {
        return;
    }
    for (int i = 0; i < 1000; i++) {
        events += ucp_worker_progress(parent.worker);
        WANT_PTR(UCS_ERR_NOT_CONNECTED, send_tag(&parent, message, lengths[i % 6]));
        WANT_PTR(UCS_ERR_UNSUPPORTED, receive_tag(&parent, message, lengths[i % 6], TAG));
    }
    WANT_TRUE(events == 0);
    destroy_all();
    fixture_t own = fixture_open(ALL_FEATURES);
    fixture_works(&own);
    fixture_close(&own);
    handles = 2;
}

static void receive_row(void)
{
    for (uint64_t i = 0; i < ROW; i++) {
        uint64_t value = UINT64_MAX;
        WANT(UCS_OK, finish(&parent, receive_tag(&parent, &value, sizeof(value), TAG)));
        WANT_TRUE(value == i);
    }
}

static void with_a_handler(void)
{
    start(&parent, UCP_ERR_HANDLING_MODE_PEER, send_tagged);
    notify_peer(&parent);
    wait_notified_blocking(&parent); /* the messages are here, or on their way */
    handles     = 1;
    pid_t child = fork();
    if (child == 0) {
        WANT_TRUE(handles == 2);
        exit(check_failed());
    }
    receive_row();
    check_end(child);
}

/* --- no handlers at all --- */

static void without_handlers(void)
{
    /* scripts/processor */
    if (getenv("RUN_UNDER") != NULL) {
        check_skip("QEMU has no MADV_WIPEONFORK, by which such a child is known");
    }
    start(&parent, UCP_ERR_HANDLING_MODE_PEER, send_tagged);
    notify_peer(&parent);
    wait_notified_blocking(&parent);
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        destroy_all();
        fixture_t own = fixture_open(ALL_FEATURES);
        fixture_works(&own);
        fixture_close(&own);
        _exit(check_failed());
    }
    receive_row();
    check_end(child);
}

int main(int argc, char **argv)
{
    static const case_t cases[] = {
        {"inherited: in a handler of active messages", in_a_handler},
        {"inherited: in such a handler of a worker of threads", in_a_handler_of_threads},
        {"inherited: in a receive's callback", in_a_receive},
        {"inherited: in such a callback of a worker of threads", in_a_receive_of_threads},
        {"inherited: requests", requests},
        {"inherited: with a handler of fork", with_a_handler},
        {"inherited: without handlers", without_handlers},
    };

    WANT_TRUE(pthread_atfork(NULL, NULL, in_child) == 0);
    return check_main(cases, sizeof(cases) / sizeof(cases[0]), argc > 1 ? argv[1] : NULL);
}
