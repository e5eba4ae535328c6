/* Endpoints, rule by rule: rules that endpoint.c and pairing.c do not cover (rules.txt 2.3, E1 to E12, and 2.4). */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char address_of_a[BED_ADDRESS_MAX], address_of_b[BED_ADDRESS_MAX];

#define PEER_WHY "UCX has no transport with error handling among self and sm; rucp handles errors on them"

static ucs_status_t create(side_t *side, ucp_ep_params_t *params, ucp_ep_h *ep)
{
    *ep = NULL;
    return ucp_ep_create(side->worker, params, ep);
}

static void create_rules(side_t *side)
{
    const char       *ucx = over_sockets() ? NULL : "UNREACHABLE";
    const departure_t net = {.name = "E1", .on_1_13 = ucx, .on_1_22 = ucx,
                             .why  = "whether a network is among the transports is the library's business"};
    ucp_worker_attr_t attr   = {.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
                                .address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY};
    ucp_ep_params_t   params = {.field_mask = 0};
    ucp_ep_h          ep;

    rule(side, "E1", "nowhere: %s", status_name(create(side, &params, &ep)));
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS;
    params.flags      = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    rule(side, "E1", "a client without a server's address: %s", status_name(create(side, &params, &ep)));
    must(side, ucp_worker_query(side->worker, &attr), "ucp_worker_query");
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = attr.address;
    ucs_status_t status = create(side, &params, &ep);
    rule_departs(side, &net, status_name(status));
    if (status == UCS_OK) {
        ucp_ep_destroy(ep);
    }
    ucp_worker_release_address(side->worker, attr.address);
}

/* Sends on an endpoint that cannot be connected yet, as neither side progresses: all arrive, in order. */
static void order_rules(bed_t *bed)
{
    enum { COUNT = 40 };
    static uint64_t     values[COUNT], got[COUNT];
    static char         large[COUNT][40000];
    ucs_status_ptr_t    sent[COUNT];
    ucp_request_param_t param = {.op_attr_mask = 0};
    int                 good  = 0;
    ucp_ep_h            ep    = NULL;

    if (bed->a != NULL) {
        ep = bed_connect(bed->a, address_of_b);
    }
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        values[i] = (uint64_t)i;
        memcpy(large[i], &values[i], 8);
        sent[i] = ucp_tag_send_nbx(ep, large[i], i % 3 == 0 ? sizeof(large[i]) : 8, 0x70, &param);
    }
    for (int i = 0; bed->b != NULL && i < COUNT; i++) {
        static char room[40000];
        bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, room, sizeof(room), 0x70, -1, &param));
        memcpy(&got[i], room, 8);
        good += got[i] == (uint64_t)i;
    }
    rule(bed->b, "2.4.4", "short and long ones in the order of the sends: %d", good);
    for (int i = 0; bed->a != NULL && i < COUNT; i++) {
        good += bed_wait(bed, sent[i]) == UCS_OK;
    }
    if (bed->a != NULL) {
        rule(bed->a, "E2", "sent before there was a connection: close %s", status_name(bed_disconnect(bed, ep)));
    }
    bed_sync(bed);
}

static ucp_ep_h          replied;
static volatile unsigned messages;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    (void)arg, (void)header, (void)header_length, (void)data, (void)length;
    replied = param->reply_ep;
    messages++;
    return UCS_OK;
}

/* To the own worker: one endpoint that leads to itself, or two that lead to each other. */
static void loopback_rules(bed_t *bed, side_t *side)
{
    ucp_address_t         *own;
    size_t                 length;
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = 5, .cb = on_message};
    ucp_request_param_t    param   = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_REPLY};
    ucp_ep_params_t        params  = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_FLAGS,
                                      .address    = NULL};
    ucp_ep_h               eps[3];

    must(side, ucp_worker_set_am_recv_handler(side->worker, &handler), "set handler");
    must(side, ucp_worker_get_address(side->worker, &own, &length), "ucp_worker_get_address");
    params.address = own;
    for (int i = 0; i < 3; i++) {
        params.flags = i == 0 ? 0 : UCP_EP_PARAMS_FLAGS_NO_LOOPBACK;
        must(side, create(side, &params, &eps[i]), "ucp_ep_create");
    }
    for (int i = 0; i < 3; i++) {
        messages = 0;
        ucs_status_t status = bed_wait(bed, ucp_am_send_nbx(eps[i], 5, NULL, 0, NULL, 0, &param));
        BED_UNTIL(bed, messages > 0);
        departure_t half = {.name = "E4", .why = "in UCX the message comes from an endpoint of its own making",
                            .on_1_13 = "another", .on_1_22 = "another", .on_rucp = i == 1 ? "two" : "one"};
        const char *from = replied == eps[0] ? "itself" :
                           replied == eps[1] ? "one" :
                           replied == eps[2] ? "two" :
                                               "another";
        rule(side, "E4", "%s: %s, itself %d", i == 0 ? "loopback" : "no loopback", status_name(status), from[0] == 'i');
        if (i > 0) {
            rule_departs(side, &half, from);
        }
    }
    for (int i = 0; i < 3; i++) {
        bed_disconnect(bed, eps[i]);
    }
    ucp_worker_release_address(side->worker, own);
}

static unsigned     errors;
static void        *error_arg;
static ucs_status_t error_status;

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    errors++;
    error_arg    = arg;
    error_status = status;
}

static ucs_status_t create_peer(side_t *side, const char *address, void *user_data, ucp_ep_h *ep)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                       UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error, .arg = &errors},
        .user_data   = user_data,
    };

    if (user_data != NULL) {
        params.field_mask |= UCP_EP_PARAM_FIELD_USER_DATA;
    }
    return create(side, &params, ep);
}

/* Two workers of one context with endpoints that handle errors, for facts that only one process can see. */
static void peer_rules(bed_t *bed, side_t *side)
{
    const char              *ucx  = over_sockets() ? "OK" : "UNREACHABLE"; /* TCP is its only transport */
    const departure_t        mode = {.name = "E6", .why = PEER_WHY, .on_1_13 = ucx, .on_1_22 = ucx, .on_rucp = "OK"};
    static const departure_t argument = {.name = "E5", .why = PEER_WHY, .on_rucp = "user data"};
    static const departure_t twice    = {.name = "E7", .why = "in UCX the handle is gone", .on_rucp = "NOT_CONNECTED"};
    static const departure_t forced   = {.name = "E8", .why = PEER_WHY, .on_rucp = "OK, its send CANCELED"};
    static const departure_t other    = {.name = "E8", .why = PEER_WHY, .on_rucp = "CONNECTION_RESET, once"};
    static const departure_t closed   = {.name = "E9", .why = PEER_WHY, .on_rucp = "0 after the close"};
    static const departure_t differ   = {.name = "E6", .why = PEER_WHY, .on_rucp = "UNSUPPORTED"};
    static char              data[300000];
    ucp_worker_params_t      worker_params = {.field_mask = 0};
    ucp_request_param_t      force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_request_param_t      none = {.op_attr_mask = 0};
    side_t                   two[2] = {*side, *side};
    bed_t                    both   = {.topology = TOPOLOGY_PAIR, .a = &two[0], .b = &two[1], .link = -1};
    char                     to[2][BED_ADDRESS_MAX], text[64] = "";
    ucp_ep_h                 eps[2];
    int                      mark;

    (void)bed;
    for (int i = 0; i < 2; i++) {
        must(side, ucp_worker_create(side->context, &worker_params, &two[i].worker), "ucp_worker_create");
    }
    bed_exchange_addresses(&both, to[1], to[0]);
    ucs_status_t status = create_peer(&two[0], to[1], &mark, &eps[0]);
    rule_departs(side, &mode, status_name(status));
    if (on_rucp() && status == UCS_OK) {
        must(side, create_peer(&two[1], to[0], &mark, &eps[1]), "ucp_ep_create");
        ucs_status_ptr_t sent = ucp_tag_send_nbx(eps[0], data, sizeof(data), 1, &none);
        ucp_tag_recv_info_t info;
        BED_UNTIL(&both, ucp_tag_probe_nb(two[1].worker, 1, -1, 0, &info) != NULL);
        bed_wait(&both, ucp_tag_send_nbx(eps[1], data, 8, 2, &none));
        /* Before: the send may be completed by the peer's reply, which may contain its reaction to the close. */
        unsigned before = errors;
        ucs_status_ptr_t result = ucp_ep_close_nbx(eps[0], &force);
        snprintf(text, sizeof(text), "%s, its send %s", ptr_status_name(result), status_name(bed_wait(&both, sent)));
        BED_UNTIL(&both, errors > before);
        for (int i = 0; i < 1000; i++) {
            bed_progress(&both);
        }
    }
    rule_departs(side, &forced, text);
    rule_departs(side, &argument, error_arg == &mark ? "user data" : "the handler's");
    snprintf(text, sizeof(text), "%s, %s", status_name(error_status), errors == 1 ? "once" : "not once");
    rule_departs(side, &other, text);
    if (on_rucp()) {
        bed_wait(&both, ucp_ep_close_nbx(eps[1], &force));
        rule_departs(side, &twice, ptr_status_name(ucp_ep_close_nbx(eps[1], &force)));
        snprintf(text, sizeof(text), "%u after the close", errors - 1);
        rule_departs(side, &closed, text);
        /* one end handles errors, the other does not */
        must(side, create_peer(&two[0], to[1], NULL, &eps[0]), "ucp_ep_create");
        bed_wait(&both, ucp_tag_send_nbx(eps[0], data, 8, 3, &none));
        eps[1] = bed_connect(&two[1], (const void *)to[0]);
        bed_wait(&both, ucp_tag_send_nbx(eps[1], data, 8, 4, &none));
        errors = 0;
        BED_UNTIL(&both, errors > 0);
        rule_departs(side, &differ, status_name(error_status));
        bed_wait(&both, ucp_ep_close_nbx(eps[0], &force));
        bed_wait(&both, ucp_ep_close_nbx(eps[1], &none));
    } else {
        rule_departs(side, &twice, "");
        rule_departs(side, &closed, "");
        rule_departs(side, &differ, "");
    }
    ucp_worker_destroy(two[0].worker);
    ucp_worker_destroy(two[1].worker);
}

/* The attributes of an endpoint, all in one query; entries as far apart as the caller says. */
static void query_rules(side_t *side)
{
#if UCP_API_MINOR >= 18
    struct {
        ucp_transport_entry_t entry;
        char                  after[24];
    } wide[8];
    ucp_ep_attr_t attr = {
        .field_mask = UCP_EP_ATTR_FIELD_NAME | UCP_EP_ATTR_FIELD_TRANSPORTS | UCP_EP_ATTR_FIELD_USER_DATA,
        .transports = {.entries = &wide[0].entry, .num_entries = 1, .entry_size = sizeof(wide[0])},
        .user_data  = side,
    };

    memset(wide, 0xa5, sizeof(wide));
    rule(side, "E11", "all at once: %s, named %d, no user data %d", status_name(ucp_ep_query(side->ep, &attr)),
         attr.name[0] != '\0', attr.user_data == NULL);
    rule(side, "E11", "one entry asked for: %u, second untouched %d", attr.transports.num_entries,
         data_is(&wide[1], sizeof(wide[1]), 0xa5));
    attr.transports.num_entries = 8;
    must(side, ucp_ep_query(side->ep, &attr), "ucp_ep_query");
    int good = 1;
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        good = good && strlen(wide[i].entry.transport_name) > 0 && data_is(wide[i].after, sizeof(wide[i].after), 0xa5);
    }
    rule(side, "E11", "eight: at least one %d, each in its place %d", attr.transports.num_entries >= 1, good);
    attr.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    rule(side, "E11", "socket addresses: %s", status_name(ucp_ep_query(side->ep, &attr)));
#else
    (void)side;
#endif
}

static void perf_rules(side_t *side)
{
    static const departure_t none  = {.name = "E12", .why = "UCX looks at the mask in a way that never fails",
                                      .on_rucp = "INVALID_PARAM"};
    ucp_ep_evaluate_perf_param_t param = {.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE};
    ucp_ep_evaluate_perf_attr_t  attr  = {.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME};
    double                       times[3];

    for (int i = 0; i < 3; i++) {
        param.message_size = (size_t)i << 26;
        must(side, ucp_ep_evaluate_perf(side->ep, &param, &attr), "ucp_ep_evaluate_perf");
        times[i] = attr.estimated_time;
    }
    double slope = (times[2] - times[1]) / (times[1] - times[0]);
    rule(side, "E12", "in proportion to the size %d", slope > 0.99 && slope < 1.01);
    param.field_mask = 0;
    rule_departs(side, &none, on_rucp() ? status_name(ucp_ep_evaluate_perf(side->ep, &param, &attr)) : "");
}

/* A flush of an endpoint completes when the puts have arrived. */
static void flush_rules(bed_t *bed)
{
    enum { LENGTH = 100000 };
    ucp_request_param_t param = {.op_attr_mask = 0};
    void               *data  = data_make(LENGTH, 6);
    window_t            window;

    window_open(bed, &window, WINDOW_MALLOCED, LENGTH);
    if (bed->a != NULL) {
        ucs_status_ptr_t put = ucp_put_nbx(bed->a->ep, data, LENGTH, window.remote, window.rkey, &param);
        rule(bed->a, "E10", "flush behind a put: %s",
             status_name(bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &param))));
        bed_wait(bed, put);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        rule(bed->b, "E10", "it is there: %s", data_check(window.memory, LENGTH, 6));
    }
    window_close(bed, &window);
    free(data);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA};

    bed_open(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    if (bed->a != NULL) {
        create_rules(bed->a);
    }
    bed_sync(bed);
    order_rules(bed);
    flush_rules(bed);
    if (bed->a != NULL) {
        query_rules(bed->a);
        perf_rules(bed->a);
    }
    bed_sync(bed);
    bed_close(bed);
    bed_open_unconnected(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    if (bed->a != NULL) {
        loopback_rules(bed, bed->a);
        peer_rules(bed, bed->a);
        bed->a->ep = NULL;
    }
    if (bed->b != NULL) {
        bed->b->ep = NULL;
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
