//! Short-lived clients: each connects to a server in the other process, asks it something, tells it something when the
//! answer is there, and goes.
//!
//! ucpbench clients [NUMBER]: so many of them in turn, each with a context and a worker of its own.
//! client_life is all of one, client_close what its end takes: flushing close of the endpoint, destruction of the
//! worker.
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <stdlib.h>

#include <ucp/api/ucp.h>

enum { ID = 7, BYTES = 8, MESSAGES = 2, MILLION = 1000000, MAX_CLIENTS = 100000 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

/** One end of the conversation. */
struct end {
    ucp_context_h context;
    ucp_worker_h worker;
    unsigned char bytes[BYTES];
    int arrived;             /* messages */
    ucs_status_ptr_t answer; /* of the server's, while it is under way */
};

static void wait_for(struct end *end, ucs_status_ptr_t request, const char *call)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            ucp_worker_progress(end->worker);
        }
        ucp_request_free(request);
    }
    check(status, call);
}

static ucs_status_ptr_t post(struct end *end, ucp_ep_h ep, uint32_t flags)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    return ucp_am_send_nbx(ep, ID, NULL, 0, end->bytes, BYTES, &param);
}

static ucs_status_t arrive(void *argument, const void *header, size_t header_length, void *data, size_t length,
                           const ucp_am_recv_param_t *param)
{
    struct end *end = argument;

    (void)header, (void)header_length, (void)data, (void)length;
    end->arrived++;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) {
        /* One client at a time: the answer before this one has arrived. */
        if (UCS_PTR_IS_PTR(end->answer)) {
            ucp_request_free(end->answer);
        }
        end->answer = post(end, param->reply_ep, 0);
    }
    return UCS_OK;
}

static void open_end(struct end *end)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = ID,
                                      .cb = arrive,
                                      .arg = end};

    check(ucp_init(&params, NULL, &end->context), "ucp_init");
    check(ucp_worker_create(end->context, &worker, &end->worker), "ucp_worker_create");
    check(ucp_worker_set_am_recv_handler(end->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static void close_end(struct end *end)
{
    ucp_worker_destroy(end->worker);
    ucp_cleanup(end->context);
}

static void progress(void *end)
{
    ucp_worker_progress(((struct end *)end)->worker);
}

static void serve(struct place place, int number)
{
    struct end end = {.answer = NULL};
    ucp_address_t *address;
    size_t length;
    char nothing;

    open_end(&end);
    check(ucp_worker_get_address(end.worker, &address, &length), "ucp_worker_get_address");
    exchange(place, address, length, &nothing, sizeof(nothing));
    ucp_worker_release_address(end.worker, address);
    meet(place, progress, &end);
    while (end.arrived < MESSAGES * number) {
        ucp_worker_progress(end.worker);
    }
    meet(place, NULL, NULL);
    close_end(&end);
}

/** Seconds of the whole life and of its end. */
static void live(const void *address, double *life, double *closing)
{
    struct end end = {.answer = NULL};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    double begin = now(), close;
    ucp_ep_h ep;

    open_end(&end);
    check(ucp_ep_create(end.worker, &params, &ep), "ucp_ep_create");
    wait_for(&end, post(&end, ep, UCP_AM_SEND_FLAG_REPLY), "ucp_am_send_nbx");
    while (end.arrived == 0) {
        ucp_worker_progress(end.worker);
    }
    /* Nothing comes back that could confirm it. */
    wait_for(&end, post(&end, ep, 0), "ucp_am_send_nbx");
    close = now();
    wait_for(&end, ucp_ep_close_nbx(ep, &plain), "ucp_ep_close_nbx");
    ucp_worker_destroy(end.worker);
    *closing = now() - close;
    ucp_cleanup(end.context);
    *life = now() - begin;
}

static void play(struct place place, void *argument)
{
    int number = *(int *)argument;
    double *life, *closing;
    static unsigned char address[MAIL_ROOM];

    if (place.index == 1) {
        serve(place, number);
        return;
    }
    life = calloc((size_t)number, sizeof(*life));
    closing = calloc((size_t)number, sizeof(*closing));
    exchange(place, "", 1, address, sizeof(address));
    for (int i = 0; i < number; i++) {
        live(address, &life[i], &closing[i]);
    }
    meet(place, NULL, NULL);
    meet(place, NULL, NULL);
    figure("client_life", -1, median(life, number) * MILLION, "us");
    figure("client_close", -1, median(closing, number) * MILLION, "us");
    figure("client_close_longest", -1, closing[number - 1] * MILLION, "us");
    free(life);
    free(closing);
}

int run_clients(const struct effort *effort, int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : effort->quick ? 20 : 200;

    if (number < 1 || number > MAX_CLIENTS) {
        die("usage: clients [NUMBER] (at most %d)", MAX_CLIENTS);
    }
    return start_pair(play, &number);
}
