/*
 * Ten thousand endpoints of one worker: the provider gets no address before the first use of its endpoint, of which
 * there are few; the memory of an unused endpoint is bounded, and printed.
 */
#define _GNU_SOURCE
#include "check.h"
#include "connect.h"
#include "finish.h"

#include "../resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENDPOINTS = 10000, USED = 3, ROOM = 1024, MOST_BYTES = 2048, SECONDS = 10 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

static ucp_context_h context;
static ucp_ep_h      endpoints[ENDPOINTS];

static uint32_t checksum(const uint8_t *bytes, size_t length)
{
    uint32_t sum = UINT32_MAX;

    for (size_t i = 0; i < length; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        }
    }
    return ~sum;
}

/* The address of a worker that does not exist, in place of one that does. */
static void rename_worker(uint8_t *address, size_t length, uint64_t uid)
{
    memcpy(address + 4, &uid, sizeof(uid));
    uint32_t sum = checksum(address, length - 4);
    memcpy(address + length - 4, &sum, sizeof(sum));
}

static ucp_worker_h open_worker(void)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        worker = NULL;

    must(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
    return worker;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
    WANT_TRUE(!"an endpoint has failed");
}

static void progress_both(void *workers)
{
    ucp_worker_progress(((ucp_worker_h *)workers)[0]);
    ucp_worker_progress(((ucp_worker_h *)workers)[1]);
}

static void send_to(ucp_worker_h from, ucp_worker_h to)
{
    ucp_worker_h     both[] = {from, to};
    uint64_t         number = 5, got = 0;
    ucp_ep_h         ep      = connect_workers(from, to, on_failure, NULL);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(to, &got, sizeof(got), 1, UINT64_MAX, &plain);

    WANT(UCS_OK, finish_with(ucp_tag_send_nbx(ep, &number, sizeof(number), 1, &plain), SECONDS, progress_both, both));
    WANT(UCS_OK, finish_with(receive, SECONDS, progress_both, both));
    WANT_TRUE(got == number);
    WANT(UCS_OK, finish_with(ucp_ep_close_nbx(ep, &plain), SECONDS, progress_both, both));
}

static void unused(void)
{
    ucp_params_t    params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_h    worker, others[USED];
    ucp_address_t  *address;
    static uint8_t  copy[ROOM];
    ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (ucp_address_t *)copy};
    size_t          length;

    setenv("SOFT_OFI_RULES", "av_most=3", 1);
    must(ucp_init(&params, NULL, &context), "ucp_init");
    worker = open_worker();
    for (int i = 0; i < USED; i++) {
        others[i] = open_worker();
    }
    WANT(UCS_OK, ucp_worker_get_address(others[0], &address, &length));
    memcpy(copy, address, length);
    ucp_worker_release_address(others[0], address);
    size_t before = resources_in_use().bytes;
    for (int i = 0; i < ENDPOINTS; i++) {
        rename_worker(copy, length, 0x1234567800000000u + (unsigned)i);
        must(ucp_ep_create(worker, &ep_params, &endpoints[i]), "ucp_ep_create");
    }
    size_t bytes = (resources_in_use().bytes - before) / ENDPOINTS;
    printf("    %zu bytes of an endpoint that is not used\n", bytes);
    WANT_TRUE(bytes < MOST_BYTES);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(worker);
    }
    /* One address more would end this process. */
    for (int i = 0; i < USED; i++) {
        send_to(worker, others[i]);
    }
    for (int i = 0; i < ENDPOINTS; i++) {
        WANT(UCS_OK, finish_on(worker, ucp_ep_close_nbx(endpoints[i], &plain), SECONDS));
    }
    for (int i = 0; i < USED; i++) {
        ucp_worker_destroy(others[i]);
    }
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"many_endpoints: unused", unused},
};

CHECK_MAIN(cases)
