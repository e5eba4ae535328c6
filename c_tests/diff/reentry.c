/* Calls from within callbacks: clients post, cancel, probe, flush, connect and close there. */
#define _GNU_SOURCE
#include "bed.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_PING = 1, TAG_PONG = 2, TAG_TOKEN = 3, AM_PING = 1, AM_PONG = 2 };

#ifndef FEW
#define ROUNDS 500
#else /* where every packet is made by an emulated processor: c_tests/rxe */
#define ROUNDS 20
#endif
#define LONG (200 * 1024)

/* A player on one side: it receives, and replies from inside the callback. */
typedef struct {
    side_t           *side;
    ucp_tag_t         receive_tag, send_tag;
    size_t            size;
    char             *in, *out;
    volatile unsigned received, sent, bad;
} player_t;

static void post_next(player_t *player);

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    player_t *player = user_data;

    player->sent++;
    player->bad += status != UCS_OK;
    ucp_request_free(request);
}

static void answer(player_t *player)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.send      = on_sent,
        .user_data    = player,
    };

    ucp_tag_send_nbx(player->side->ep, player->out, player->size, player->send_tag, &param);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    player_t *player = user_data;

    player->received++;
    player->bad += status != UCS_OK || info->length != player->size ||
                   data_check(player->in, player->size, 1)[0] != 'g';
    memset(player->in, 0, player->size);
    if (player->received < ROUNDS) {
        post_next(player);
    }
    if (player->received < ROUNDS || player->receive_tag == TAG_PING) {
        answer(player);
    }
    ucp_request_free(request);
}

static void post_next(player_t *player)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv      = on_received,
        .user_data    = player,
    };

    ucp_tag_recv_nbx(player->side->worker, player->in, player->size, player->receive_tag, -1, &param);
}

static void player_fact(const player_t *player, const char *what)
{
    rule(player->side, "2.2.3", "%s of %zu: received %u, sent %u, bad %u",
         what, player->size, player->received, player->sent,
         player->bad);
}

/* Ping and pong, each posted from inside the callback of the other. A begins. */
static void tag_game(bed_t *bed, size_t size)
{
    player_t a = {.side = bed->a, .receive_tag = TAG_PONG, .send_tag = TAG_PING, .size = size, .in = malloc(size + 1),
                  .out = data_make(size, 1)};
    player_t b = {.side = bed->b, .receive_tag = TAG_PING, .send_tag = TAG_PONG, .size = size, .in = malloc(size + 1),
                  .out = data_make(size, 1)};

    if (b.side != NULL) {
        post_next(&b);
    }
    bed_sync(bed);
    if (a.side != NULL) {
        post_next(&a);
        answer(&a);
    }
    BED_UNTIL(bed, (a.side == NULL || (a.received == ROUNDS && a.sent == ROUNDS)) &&
                       (b.side == NULL || (b.received == ROUNDS && b.sent == ROUNDS)));
    player_fact(&a, "tags");
    player_fact(&b, "tags");
    bed_sync(bed);
    free(a.in);
    free(a.out);
    free(b.in);
    free(b.out);
}

/* Handlers that send: B replies to every message on the endpoint that came with it, A sends the next. */
typedef struct {
    side_t           *side;
    volatile unsigned calls;
} am_player_t;

static am_player_t am_a, am_b;

static void am_send(ucp_ep_h ep, unsigned id, uint32_t flags, unsigned number)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags        = flags,
        .cb.send      = on_sent,
    };
    static player_t no_player;
    static unsigned headers[ROUNDS + 1]; /* each lives until its message has been sent */

    param.user_data = &no_player;
    headers[number] = number;
    if (UCS_PTR_IS_ERR(ucp_am_send_nbx(ep, id, &headers[number], sizeof(number), NULL, 0, &param))) {
        am_a.calls = 1u << 30;
    }
}

static ucs_status_t on_am_ping(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header_length, (void)data, (void)length;
    am_b.calls++;
    am_send(param->reply_ep, AM_PONG, 0, *(const unsigned *)header);
    return UCS_OK;
}

static ucs_status_t on_am_pong(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header_length, (void)data, (void)length, (void)param;
    am_a.calls += *(const unsigned *)header == am_a.calls;
    if (am_a.calls < ROUNDS) {
        am_send(am_a.side->ep, AM_PING, UCP_AM_SEND_FLAG_REPLY, am_a.calls);
    }
    return UCS_OK;
}

static void set_handler(side_t *side, unsigned id, ucp_am_recv_callback_t cb)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                    .id = id, .cb = cb};

    must(side, ucp_worker_set_am_recv_handler(side->worker, &param), "set handler");
}

static void am_game(bed_t *bed)
{
    am_a.side = bed->a;
    am_b.side = bed->b;
    if (bed->a != NULL) {
        set_handler(bed->a, AM_PONG, on_am_pong);
    }
    if (bed->b != NULL) {
        set_handler(bed->b, AM_PING, on_am_ping);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        am_send(bed->a->ep, AM_PING, UCP_AM_SEND_FLAG_REPLY, 0);
    }
    BED_UNTIL(bed, (bed->a == NULL || am_a.calls >= ROUNDS) && (bed->b == NULL || am_b.calls >= ROUNDS));
    rule(bed->a, "2.2.3", "pongs in order: %u", am_a.calls);
    rule(bed->b, "2.2.3", "pings: %u", am_b.calls);
    bed_sync(bed);
}

/* A callback that makes every other permitted call. */
typedef struct {
    bed_t            *bed;
    void             *to_cancel; /* a receive to cancel */
    const void       *address;
    volatile unsigned canceled, flushed, closed, calls;
} busy_t;

static void on_canceled(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request, (void)info;
    ((busy_t *)user_data)->canceled += status == UCS_ERR_CANCELED;
}

static void on_busy_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    busy_t             *busy  = user_data;
    side_t             *side  = busy->bed->b;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_tag_recv_info_t other;

    (void)request, (void)status, (void)info;
    ucp_request_cancel(side->worker, busy->to_cancel);
    busy->calls += ucp_tag_probe_nb(side->worker, 0xdead, -1, 0, &other) == NULL;
    ucp_ep_h ep = bed_connect(side, busy->address);
    ucs_status_ptr_t flushed = ucp_ep_flush_nbx(ep, &param);
    busy->flushed += !UCS_PTR_IS_ERR(flushed);
    ucs_status_ptr_t closed = ucp_ep_close_nbx(ep, &param);
    busy->closed += !UCS_PTR_IS_ERR(closed);
    if (UCS_PTR_IS_PTR(flushed)) {
        ucp_request_free(flushed);
    }
    if (UCS_PTR_IS_PTR(closed)) {
        ucp_request_free(closed);
    }
}

static void busy_callback(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    uint64_t            value = 1, got = 0, never = 0;
    ucs_status_ptr_t    sent = NULL, received = NULL;
    busy_t              busy  = {.bed = bed, .address = to_a};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .user_data = &busy};

    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->b != NULL) {
        param.cb.recv = on_canceled;
        busy.to_cancel   = ucp_tag_recv_nbx(bed->b->worker, &never, 8, 0xbeef, -1, &param);
        param.cb.recv = on_busy_received;
        received      = ucp_tag_recv_nbx(bed->b->worker, &got, 8, TAG_TOKEN, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        param.op_attr_mask = 0;
        sent               = ucp_tag_send_nbx(bed->a->ep, &value, 8, TAG_TOKEN, &param);
    }
    if (bed->b != NULL) {
        rule(bed->b, "2.2.3", "busy callback: %s", status_name(bed_wait(bed, received)));
        rule(bed->b, "2.2.3", "canceled %u, probed %u, flushed %u, closed %u", busy.canceled, busy.calls, busy.flushed,
             busy.closed);
        ucp_request_free(busy.to_cancel);
    }
    rule(bed->a, "2.2.3", "token: %s", status_name(bed_wait(bed, sent)));
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM};

    bed_open(bed, &params);
    tag_game(bed, 8);
    tag_game(bed, 5000);
    tag_game(bed, LONG);
    am_game(bed);
    busy_callback(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
