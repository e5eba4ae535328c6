/*
 * libfabric that cannot be used: the library is none, has no provider of the name, or the provider's messages are too
 * short for a packet. Workers are made without the transport: others carry the messages, and where there is no other a
 * worker of another process is unreachable. c_tests/ofi/transport sets what is wrong.
 */
#define _GNU_SOURCE
#include "finish.h"
#include "party.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LANES = 8 };

static void nothing(party_t *self)
{
    (void)self;
}

static void other_transports(void)
{
    ucp_transport_entry_t lanes[LANES];
    ucp_ep_attr_t         attr = {
                .field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS,
                .transports = {.entries = lanes, .num_entries = LANES, .entry_size = sizeof(lanes[0])},
    };
    party_t self;

    setenv("UCX_TLS", "ofi,sm,self", 1);
    start(&self, UCP_ERR_HANDLING_MODE_PEER, nothing);
    WANT(UCS_OK, ucp_ep_query(self.ep, &attr));
    WANT_TRUE(attr.transports.num_entries > 0);
    for (unsigned i = 0; i < attr.transports.num_entries; i++) {
        WANT_TRUE(strcmp(lanes[i].transport_name, "ofi") != 0);
    }
    kill_and_check(&self);
}

static ucp_worker_h new_worker(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_context_h       context;
    ucp_worker_h        worker;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    return worker;
}

static void no_other_transport(void)
{
    char           address[4096];
    ucp_address_t *theirs;
    size_t         length;
    int            links[2];
    ucp_ep_h       ep;

    setenv("UCX_TLS", "ofi,self", 1);
    WANT_TRUE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0);
    if (fork() == 0) {
        must(ucp_worker_get_address(new_worker(), &theirs, &length), "ucp_worker_get_address");
        WANT_TRUE(send(links[1], theirs, length, 0) == (ssize_t)length);
        WANT_TRUE(recv(links[1], address, 1, 0) == 1); /* until the other one has tried */
        _exit(check_failed() != 0);
    }
    ucp_worker_h    worker = new_worker();
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)address};
    WANT_TRUE(recv(links[0], address, sizeof(address), 0) > 0);
    WANT(UCS_ERR_UNREACHABLE, ucp_ep_create(worker, &params, &ep));
    WANT_TRUE(send(links[0], "t", 1, 0) == 1);
}

static const case_t cases[] = {
    {"absent: other transports", other_transports},
    {"absent: no other transport", no_other_transport},
};

CHECK_MAIN(cases)
