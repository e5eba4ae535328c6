/*
 * Active messages that arrive while their endpoint is being closed (rules.txt 2.7, 2.12): one that is announced
 * by rendezvous is dropped and its send fails, one that has arrived whole is delivered (C5).
 */
#define _GNU_SOURCE
#include "listening.h"

#define ID     3
#define LENGTH 300000

static server_t server;
static client_t client;
static unsigned whole, announced;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        announced++;
    } else {
        whole++;
    }
    return UCS_OK;
}

static void set_handler(side_t *side)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = ID, .cb = on_message};

    must(side, ucp_worker_set_am_recv_handler(side->worker, &handler), "ucp_worker_set_am_recv_handler");
}

static ucs_status_ptr_t send_message(ucp_ep_h ep, int rndv)
{
    static char         data[LENGTH];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = rndv ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER};

    return ucp_am_send_nbx(ep, ID, NULL, 0, data, rndv ? LENGTH : 8, &param);
}

static void progress_alone(const side_t *side)
{
    for (int i = 0; i < 3000; i++) {
        ucp_worker_progress(side->worker);
    }
}

/* `closed_first`: before the other end sends, which has not detected it. Otherwise its messages are in flight. */
static void rndv_rules(bed_t *bed, int closed_first, const char *what)
{
    ucp_request_param_t none     = {.op_attr_mask = 0};
    ucs_status_ptr_t    sent[2]  = {NULL, NULL}, close = NULL;
    ucp_ep_h            accepted = NULL;

    serve(bed, &server, AF_INET, 0);
    if (bed->a != NULL) {
        address_t address = loopback(AF_INET, server.port);
        must(bed->a, connect_to_server(bed->a->worker, &client, &address), "ucp_ep_create");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, server.count > 0);
        must(bed->b, accept_request(&server, bed->b->worker, server.requests[0], &accepted), "ucp_ep_create");
    }
    whole = announced = 0;
    bed_sync(bed);
    if (bed->a != NULL) {
        bed_wait(bed, send_message(client.ep, 0));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, whole == 1);
        bed_wait(bed, send_message(accepted, 0));
    }
    if (bed->a != NULL) {
        BED_UNTIL(bed, whole == (bed->b != NULL ? 2 : 1));
    }
    whole = announced = 0; /* before the other end sends again, which this end may receive while it waits here */
    bed_sync(bed);
    /* The second side is out of bed_sync(), where it progresses: what the first one sends waits for the second step. */
    if ((closed_first ? bed->a : bed->b) != NULL) {
        go_on(bed);
    } else {
        wait_without_progress(bed);
    }
    for (int step = 0; step < 2; step++) {
        side_t *side = step == closed_first ? bed->a : bed->b;
        if (side == NULL) {
            wait_without_progress(bed);
            continue;
        }
        if (side == bed->b) {
            close = ucp_ep_close_nbx(accepted, &none);
        } else {
            sent[0] = send_message(client.ep, 0);
            sent[1] = send_message(client.ep, 1);
        }
        progress_alone(side);
        go_on(bed);
    }
    if (bed->b != NULL) {
        rule(bed->b, "C5", "%s: close: %s", what, status_name(bed_wait(bed, close)));
        BED_UNTIL(bed, whole + announced > 0); /* a lost datagram is retransmitted, perhaps behind the close */
        rule(bed->b, "C5", "%s: whole messages %u, announced %u", what, whole, announced);
    }
    if (bed->a != NULL) {
        rule(bed->a, "C5", "%s: whole message sent: %s", what, status_name(bed_wait(bed, sent[0])));
        rule(bed->a, "C5", "%s: rndv: %s", what, status_name(bed_wait(bed, sent[1])));
        BED_UNTIL(bed, client.failures > 0);
        force_close(bed, client.ep);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_listener_destroy(server.listener);
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_AM};

    bed_open_unconnected(bed, &params);
    if (bed->a != NULL) {
        set_handler(bed->a);
    }
    if (bed->b != NULL) {
        set_handler(bed->b);
    }
    if (bed->topology != TOPOLOGY_SELF) { /* one worker cannot stop progressing while it progresses */
        rndv_rules(bed, 0, "sent before the close");
        rndv_rules(bed, 1, "sent behind the close");
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return listening_main(argc, argv, script);
}
