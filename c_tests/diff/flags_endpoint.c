/*
 * Flags and fields of endpoints that no other program names: names, local addresses, modes of error handling,
 * ucp_ep_modify_nb(), ucp_ep_close_nb() by force; and ucp_worker_wait_mem().
 */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 4096, TAG = 5 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static char address_of_b[BED_ADDRESS_MAX], address_of_a[BED_ADDRESS_MAX];

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
}

/* A message by `ep` to B. */
static void message_rule(bed_t *bed, const char *what, ucp_ep_h ep)
{
    uint64_t         out = 4711, in = 0;
    ucs_status_ptr_t received = bed->b == NULL ? NULL :
                                ucp_tag_recv_nbx(bed->b->worker, &in, sizeof(in), TAG, -1, &plain);

    if (bed->a != NULL) {
        rule(bed->a, "F4", "%s: sent %s", what,
             status_name(bed_wait(bed, ucp_tag_send_nbx(ep, &out, sizeof(out), TAG, &plain))));
    }
    ucs_status_t status = bed_wait(bed, received);
    rule(bed->b, "F4", "%s: received %s, %d", what, status_name(status), (int)in);
    bed_sync(bed);
}

/* An endpoint with `params` beside B's address; it is left open. */
static ucp_ep_h created(bed_t *bed, const char *what, ucp_ep_params_t params)
{
    ucp_ep_h ep = NULL;

    bed_sync(bed);
    if (bed->a != NULL) {
        params.field_mask |= UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address     = (const ucp_address_t *)address_of_b;
        ucs_status_t status = ucp_ep_create(bed->a->worker, &params, &ep);
        rule(bed->a, "F4", "%s: %s", what, status_name(status));
        must(bed->a, status, "ucp_ep_create");
    }
    message_rule(bed, what, ep);
    return ep;
}

static void close_rule(bed_t *bed, const char *what, ucp_ep_h ep)
{
    if (bed->a != NULL) {
        rule(bed->a, "F4", "%s: closed %s", what, status_name(bed_disconnect(bed, ep)));
    }
    bed_sync(bed);
}

/* UCP_EP_PARAM_FIELD_NAME: the query returns it, cut to the size of the buffer. */
static void name_rules(bed_t *bed)
{
    static const struct {
        const char *given;
        departure_t departure;
    } names[] = {
        {"an endpoint's own name",
         {.name = "F4", .on_rucp = "an endpoint's own name",
          .why  = "UCX keeps names of endpoints in debug builds alone, and answers with an address"}},
        {"a name that is longer than the room for it",
         {.name = "F4", .on_rucp = "a name that is longer than the ",
          .why  = "UCX keeps names of endpoints in debug builds alone, and answers with an address"}},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_NAME, .name = names[i].given};
        ucp_ep_attr_t   attr   = {.field_mask = UCP_EP_ATTR_FIELD_NAME};
        ucp_ep_h        ep     = created(bed, "with a name", params);
        if (bed->a != NULL) {
            must(bed->a, ucp_ep_query(ep, &attr), "ucp_ep_query");
            rule_departs(bed->a, &names[i].departure, attr.name);
        }
        close_rule(bed, "with a name", ep);
    }
}

/* A local address has no effect on an endpoint that is created by a worker's address. */
static void local_address_rules(bed_t *bed)
{
    struct sockaddr_in in     = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_ep_params_t    params = {.field_mask     = UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR,
                                 .local_sockaddr = {.addr = (struct sockaddr *)&in, .addrlen = sizeof(in)}};

    close_rule(bed, "with a local address", created(bed, "with a local address", params));
}

/* UCP_ERR_HANDLING_MODE_NONE given explicitly, with a handler and without. */
static void mode_rules(bed_t *bed)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = UCP_ERR_HANDLING_MODE_NONE};

    close_rule(bed, "mode NONE", created(bed, "mode NONE", params));
    params.field_mask    |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_handler.cb = on_error;
    close_rule(bed, "mode NONE, a handler", created(bed, "mode NONE, a handler", params));
}

/* UCP_ERR_HANDLING_MODE_FAILOVER at both ends, of workers that have no other endpoints. */
static void failover_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 22
    ucp_worker_params_t worker_params = {.field_mask = 0};
    side_t              two[2];
    side_t             *from[2] = {bed->a, bed->b};
    bed_t               both    = {.topology = bed->topology, .link = bed->link};
    static char         to[2][BED_ADDRESS_MAX];
    ucp_ep_params_t     params = {.field_mask  = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                                 UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .err_mode    = UCP_ERR_HANDLING_MODE_FAILOVER,
                                  .err_handler = {.cb = on_error}};
    ucp_request_param_t force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_t        status = UCS_OK, sent = UCS_OK, closed = UCS_OK;
    int                 got    = 1;
    const departure_t   made   = {.name = "F4", .on_1_22 = over_sockets() ? "OK" : "UNREACHABLE", .on_rucp = "OK",
                                  .why  = "UCX has no transport with error handling among self and sm"};
    const departure_t   used   = {.name = "F4", .on_rucp = "good",
                                  .why  = "UCX 1.22 has FAILOVER nowhere but where no message of it arrives (tcp)"};

    for (int i = 0; i < 2; i++) {
        if (from[i] == NULL) {
            continue;
        }
        two[i]                        = *from[i];
        *(i == 0 ? &both.a : &both.b) = &two[i];
        if (i == 1 && bed->topology == TOPOLOGY_SELF) {
            two[1].worker = two[0].worker;
        } else {
            must(from[i], ucp_worker_create(two[i].context, &worker_params, &two[i].worker), "ucp_worker_create");
        }
    }
    bed_exchange_addresses(&both, to[1], to[0]);
    for (int i = 0; i < 2; i++) {
        if (from[i] == NULL || (i == 1 && bed->topology == TOPOLOGY_SELF)) {
            continue;
        }
        params.address = (const ucp_address_t *)to[1 - i];
        two[i].ep      = NULL;
        status         = ucp_ep_create(two[i].worker, &params, &two[i].ep);
        rule_departs(from[i], &made, status_name(status));
    }
    if (on_rucp()) {
        uint64_t            out = 4711, in = 0;
        ucs_status_ptr_t    received = both.b == NULL ? NULL :
                                       ucp_tag_recv_nbx(both.b->worker, &in, sizeof(in), TAG, -1, &plain);
        if (both.a != NULL) {
            sent = bed_wait(&both, ucp_tag_send_nbx(both.a->ep, &out, sizeof(out), TAG, &plain));
        }
        got = bed_wait(&both, received) == UCS_OK && (both.b == NULL || in == out);
        bed_sync(&both);
        if (both.a != NULL) {
            closed = bed_disconnect(&both, both.a->ep);
        }
        bed_sync(&both);
        if (both.b != NULL && bed->topology != TOPOLOGY_SELF) {
            bed_wait(&both, ucp_ep_close_nbx(both.b->ep, &force));
        }
    }
    rule_departs(bed->a, &used, sent == UCS_OK && closed == UCS_OK ? "good" : "bad");
    rule_departs(bed->b, &used, got ? "good" : "bad");
    bed_sync(&both);
    for (int i = 0; i < 2; i++) {
        if (from[i] != NULL && (i == 0 || bed->topology != TOPOLOGY_SELF)) {
            ucp_worker_destroy(two[i].worker);
        }
    }
    bed_sync(bed);
#else
    (void)bed;
#endif
}

/* ucp_ep_modify_nb(): user data and handler can change, the connection and the error handling mode cannot. */
static void modify_rules(bed_t *bed)
{
    static const struct {
        const char *name;
        uint64_t    mask;
    } changes[] = {
        {"nothing", 0},
        {"user data", UCP_EP_PARAM_FIELD_USER_DATA},
        {"handler", UCP_EP_PARAM_FIELD_ERR_HANDLER},
        {"address", UCP_EP_PARAM_FIELD_REMOTE_ADDRESS},
        {"mode", UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE},
        {"socket address", UCP_EP_PARAM_FIELD_SOCK_ADDR},
        {"name", UCP_EP_PARAM_FIELD_NAME},
    };
    ucp_ep_params_t empty = {.field_mask = 0};
    ucp_ep_h        ep    = created(bed, "to be modified", empty);

    for (size_t i = 0; bed->a != NULL && i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct sockaddr_in in     = {.sin_family = AF_INET};
        ucp_ep_params_t    params = {.field_mask     = changes[i].mask,
                                     .address        = (const ucp_address_t *)address_of_b,
                                     .user_data      = address_of_b,
                                     .err_mode       = UCP_ERR_HANDLING_MODE_NONE,
                                     .err_handler    = {.cb = on_error, .arg = address_of_a},
                                     .name           = "new",
                                     .sockaddr       = {.addr = (struct sockaddr *)&in, .addrlen = sizeof(in)}};
        rule(bed->a, "F4", "modified, %s: %s", changes[i].name,
             status_name(bed_wait(bed, ucp_ep_modify_nb(ep, &params))));
    }
#if UCP_API_MINOR >= 18
    if (bed->a != NULL) {
        ucp_ep_attr_t attr = {.field_mask = UCP_EP_ATTR_FIELD_USER_DATA};
        must(bed->a, ucp_ep_query(ep, &attr), "ucp_ep_query");
        rule(bed->a, "E5", "modified, user data and then the handler: %s",
             attr.user_data == address_of_b ? "user data" : attr.user_data == address_of_a ? "argument" : "none");
    }
#endif
    message_rule(bed, "modified", ep);
    close_rule(bed, "modified", ep);
}

/* The user data that the stream poll reports for the other end: A has sent a byte to it. */
static void poll_rule(bed_t *bed, const char *what)
{
    ucp_stream_poll_ep_t ready = {.ep = NULL};
    size_t               length;
    char                 byte;

    bed_sync(bed);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_stream_send_nbx(bed->a->ep, "x", 1, &plain));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, ucp_stream_worker_poll(bed->b->worker, &ready, 1, 0) == 1);
        rule(bed->b, "E5", "%s: %s", what,
             ready.user_data == address_of_a ? "user data" : ready.user_data == address_of_b ? "argument" : "none");
        bed_wait(bed, ucp_stream_recv_nbx(ready.ep, &byte, 1, &length, &plain));
    }
    bed_sync(bed);
}

/* The poll has one place for user data and the argument of the handler: the last one given, of both the user data. */
static void user_data_rules(bed_t *bed)
{
    static const struct {
        const char *name;
        uint64_t    mask;
    } changes[] = {
        {"the handler", UCP_EP_PARAM_FIELD_ERR_HANDLER},
        {"user data", UCP_EP_PARAM_FIELD_USER_DATA},
        {"the handler again", UCP_EP_PARAM_FIELD_ERR_HANDLER},
        {"both", UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_USER_DATA},
        {"neither", 0},
    };

    poll_rule(bed, "as the bed made it");
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        ucp_ep_params_t params = {.field_mask  = changes[i].mask,
                                  .user_data   = address_of_a,
                                  .err_handler = {.cb = on_error, .arg = address_of_b}};
        if (bed->b != NULL) {
            must(bed->b, bed_wait(bed, ucp_ep_modify_nb(bed->b->ep, &params)), "ucp_ep_modify_nb");
        }
        poll_rule(bed, changes[i].name);
    }
}

/* The query's user data, if some were given; the argument of the handler alone does not count there. */
static void created_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 18
    ucp_ep_params_t params = {.field_mask  = UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .user_data   = address_of_a,
                              .err_handler = {.cb = on_error, .arg = address_of_b}};
    ucp_ep_attr_t   attr   = {.field_mask = UCP_EP_ATTR_FIELD_USER_DATA};

    for (int i = 0; i < 2; i++) {
        ucp_ep_h ep = created(bed, "with a handler", params);
        if (bed->a != NULL) {
            must(bed->a, ucp_ep_query(ep, &attr), "ucp_ep_query");
            rule(bed->a, "E5", "made with a handler%s: %s", i == 0 ? "" : " and user data",
                 attr.user_data == address_of_a ? "user data" : attr.user_data == address_of_b ? "argument" : "none");
        }
        close_rule(bed, "with a handler", ep);
        params.field_mask |= UCP_EP_PARAM_FIELD_USER_DATA;
    }
#else
    (void)bed;
#endif
}

/* ucp_ep_close_nb(): FLUSH delivers; FORCE is for endpoints that handle errors. */
static void old_close_rules(bed_t *bed)
{
    ucp_ep_params_t empty = {.field_mask = 0};
    ucp_ep_h        ep    = created(bed, "to be closed by the old function", empty);

    if (bed->a != NULL) {
        rule(bed->a, "F4", "close_nb FLUSH: %s",
             status_name(bed_wait(bed, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH))));
    }
    ep = created(bed, "to be closed by force", empty);
    if (bed->a != NULL) {
        rule(bed->a, "F4", "close_nb FORCE, no error handling: %s",
             ptr_status_name(ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FORCE)));
        rule(bed->a, "F4", "close_nb FLUSH then: %s",
             status_name(bed_wait(bed, ucp_ep_close_nb(ep, UCP_EP_CLOSE_MODE_FLUSH))));
    }
    bed_sync(bed);
}

/* B waits with ucp_worker_wait_mem() for A's puts. */
static void wait_mem_rules(bed_t *bed)
{
    window_t window;
    uint64_t one = 1;

    window_open(bed, &window, WINDOW_ALLOCATED, LENGTH);
    if (bed->a != NULL) {
        bed_wait(bed, ucp_put_nbx(bed->a->ep, &one, sizeof(one), window.remote, window.rkey, &plain));
        if (bed->topology != TOPOLOGY_FORK) {
            bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &plain));
        }
    }
    if (bed->b != NULL) {
        volatile uint64_t *word = (volatile uint64_t *)window.memory;
        BED_UNTIL(bed, (ucp_worker_wait_mem(bed->b->worker, window.memory), *word == 1));
        rule(bed->b, "F5", "wait_mem: %d", (int)*word);
    }
    bed_sync(bed);
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_STREAM};

    bed_open(bed, &params);
    bed_exchange_addresses(bed, address_of_b, address_of_a);
    name_rules(bed);
    local_address_rules(bed);
    mode_rules(bed);
    failover_rules(bed);
    modify_rules(bed);
    user_data_rules(bed);
    created_rules(bed);
    old_close_rules(bed);
    wait_mem_rules(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
