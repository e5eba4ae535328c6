/* A worker with an endpoint to itself and memory with a key: arguments for misusing every function. */
#include "check.h"
#include "finish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fixture_map(fixture_t *fixture)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length     = FIXTURE_MEMORY,
        .flags      = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    must(ucp_mem_map(fixture->context, &params, &fixture->memh), "ucp_mem_map");
    must(ucp_mem_query(fixture->memh, &attr), "ucp_mem_query");
    fixture->memory = attr.address;
    fixture->remote = (uint64_t)(uintptr_t)attr.address;
    must(ucp_rkey_pack(fixture->context, fixture->memh, &fixture->packed, &fixture->packed_length), "ucp_rkey_pack");
    must(ucp_ep_rkey_unpack(fixture->ep, fixture->packed, &fixture->rkey), "ucp_ep_rkey_unpack");
}

fixture_t fixture_open(uint64_t features)
{
    fixture_t           fixture       = {NULL};
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = features};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t     ep_params     = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t      *address;
    size_t              length;

    must(ucp_init(&params, NULL, &fixture.context), "ucp_init");
    must(ucp_worker_create(fixture.context, &worker_params, &fixture.worker), "ucp_worker_create");
    must(ucp_worker_get_address(fixture.worker, &address, &length), "ucp_worker_get_address");
    ep_params.address = address;
    must(ucp_ep_create(fixture.worker, &ep_params, &fixture.ep), "ucp_ep_create");
    ucp_worker_release_address(fixture.worker, address);
    fixture_map(&fixture);
    return fixture;
}

void fixture_close(fixture_t *fixture)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    ucp_rkey_destroy(fixture->rkey);
    ucp_rkey_buffer_release(fixture->packed);
    WANT(UCS_OK, ucp_mem_unmap(fixture->context, fixture->memh));
    if (fixture->ep != NULL) {
        WANT(UCS_OK, fixture_wait(fixture, ucp_ep_close_nbx(fixture->ep, &param)));
    }
    ucp_worker_destroy(fixture->worker);
    ucp_cleanup(fixture->context);
}

ucs_status_t fixture_wait(fixture_t *fixture, ucs_status_ptr_t request)
{
    return finish_on(fixture->worker, request, 5);
}

void fixture_works(fixture_t *fixture)
{
    uint64_t            value = 0x123456789abcdef, got = 0;
    ucp_request_param_t param   = {.op_attr_mask = 0};
    ucs_status_ptr_t    receive = ucp_tag_recv_nbx(fixture->worker, &got, sizeof(got), 0xfeed, -1, &param);

    WANT(UCS_OK, fixture_wait(fixture, ucp_tag_send_nbx(fixture->ep, &value, sizeof(value), 0xfeed, &param)));
    WANT(UCS_OK, fixture_wait(fixture, receive));
    WANT_TRUE(got == value);
}
