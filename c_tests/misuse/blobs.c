/* Worker addresses and packed keys with damaged bytes: rejected, and never read beyond their end. */
#define _GNU_SOURCE
#include "check.h"
#include "../random.h"
#include "../transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All that the transport can have. */
static uint64_t features(void)
{
    return transport_has("wakeup") ? ALL_FEATURES : ALL_FEATURES & ~(uint64_t)UCP_FEATURE_WAKEUP;
}

static int refusal(ucs_status_t status)
{
    return status == UCS_ERR_INVALID_ADDR || status == UCS_ERR_UNREACHABLE;
}

static ucs_status_t connect_to(fixture_t *fixture, const void *address)
{
    ucp_ep_params_t     params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address};
    ucp_request_param_t close  = {.op_attr_mask = 0};
    ucp_ep_h            ep;
    ucs_status_t        status = ucp_ep_create(fixture->worker, &params, &ep);

    if (status == UCS_OK) {
        fixture_wait(fixture, ucp_ep_close_nbx(ep, &close));
    }
    return status;
}

static ucs_status_t uid_of(const void *address)
{
    ucp_worker_address_attr_t attr = {.field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID};

    return ucp_worker_address_query((ucp_address_t *)address, &attr);
}

/* The address of another worker than the fixture's, so that every lane is checked. */
static void *address_of_another(fixture_t *fixture, ucp_worker_h *another, size_t *length)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_address_t      *address;

    WANT(UCS_OK, ucp_worker_create(fixture->context, &params, another));
    WANT(UCS_OK, ucp_worker_get_address(*another, &address, length));
    void *copy = malloc(*length);
    memcpy(copy, address, *length);
    ucp_worker_release_address(*another, address);
    return copy;
}

/* Every byte changed in several ways, the blob ending where memory ends. */
static void damaged_address(void)
{
    fixture_t            fixture = fixture_open(features());
    ucp_worker_h         another;
    size_t               length;
    uint8_t             *address   = address_of_another(&fixture, &another, &length);
    static const uint8_t damages[] = {0x01, 0x80, 0xff, 0x10};

    WANT(UCS_OK, connect_to(&fixture, edge_copy(address, length)));
    for (size_t at = 0; at < length; at++) {
        for (int i = 0; i < 4; i++) {
            uint8_t *copy = edge_copy(address, length);
            copy[at] ^= damages[i];
            WANT_TRUE(refusal(connect_to(&fixture, copy)));
            WANT_TRUE(uid_of(copy) != UCS_OK);
        }
    }
    fixture_works(&fixture);
    ucp_worker_destroy(another);
    free(address);
    fixture_close(&fixture);
}

/* A wrong beginning must be detected before any later byte is read. */
static void short_address(void)
{
    enum { BEGINNING = 4 };
    fixture_t    fixture = fixture_open(features());
    ucp_worker_h another;
    size_t       length;
    uint8_t     *address = address_of_another(&fixture, &another, &length);
    uint8_t      beginning[BEGINNING];

    for (int bit = 0; bit < BEGINNING * 8; bit++) {
        memcpy(beginning, address, BEGINNING);
        beginning[bit / 8] ^= (uint8_t)(1u << bit % 8);
        WANT_TRUE(refusal(connect_to(&fixture, edge_copy(beginning, BEGINNING))));
    }
    memset(beginning, 0, BEGINNING);
    WANT_TRUE(refusal(connect_to(&fixture, edge_copy(beginning, BEGINNING))));
    memset(beginning, 0xff, BEGINNING);
    WANT_TRUE(refusal(connect_to(&fixture, edge_copy(beginning, BEGINNING))));
    ucp_worker_destroy(another);
    free(address);
    fixture_close(&fixture);
}

static void random_address(void)
{
    fixture_t fixture = fixture_open(features());
    unsigned  state   = 12345;
    uint8_t   noise[1024];

    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (uint8_t)(next_random(&state) >> 16);
        }
        WANT_TRUE(refusal(connect_to(&fixture, noise)));
    }
    fixture_close(&fixture);
}

/* The worker is destroyed when its address is used. */
static void stale_address(void)
{
    fixture_t    fixture = fixture_open(features());
    ucp_worker_h another;
    size_t       length;
    uint8_t     *address = address_of_another(&fixture, &another, &length);

    ucp_worker_destroy(another);
    WANT(UCS_ERR_UNREACHABLE, connect_to(&fixture, address));
    fixture_works(&fixture);
    free(address);
    fixture_close(&fixture);
}

static ucs_status_t unpack(fixture_t *fixture, const void *packed)
{
    ucp_rkey_h   rkey   = NULL;
    ucs_status_t status = ucp_ep_rkey_unpack(fixture->ep, packed, &rkey);

    if (status == UCS_OK) {
        ucp_rkey_destroy(rkey);
    }
    return status;
}

static void damaged_key(void)
{
    fixture_t            fixture   = fixture_open(features());
    static const uint8_t damages[] = {0x01, 0x80, 0xff, 0x10};

    WANT(UCS_OK, unpack(&fixture, edge_copy(fixture.packed, fixture.packed_length)));
    for (size_t at = 0; at < fixture.packed_length; at++) {
        for (int i = 0; i < 4; i++) {
            uint8_t *copy = edge_copy(fixture.packed, fixture.packed_length);
            copy[at] ^= damages[i];
            ucs_status_t status = unpack(&fixture, copy);
            WANT_TRUE(status == INVALID || refusal(status));
        }
    }
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* A key without memory can be unpacked; operations with it are rejected. */
static void empty_key(void)
{
    fixture_t            fixture = fixture_open(features());
    ucp_mem_map_params_t params  = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS};
    ucp_request_param_t  param   = {.op_attr_mask = 0};
    ucp_mem_h            memh;
    ucp_rkey_h           rkey;
    void                *packed, *pointer;
    size_t               length;
    uint64_t             value = 1;

    WANT(UCS_OK, ucp_mem_map(fixture.context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(fixture.context, memh, &packed, &length));
    WANT(UCS_OK, ucp_ep_rkey_unpack(fixture.ep, edge_copy(packed, length), &rkey));
    WANT_PTR(UCS_OK, ucp_put_nbx(fixture.ep, &value, 0, 0, rkey, &param));
    WANT_TRUE(ucp_rkey_ptr(rkey, 0, &pointer) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_put_nbx(fixture.ep, &value, 8, 0x1000, rkey, &param)) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_get_nbx(fixture.ep, &value, 8, 0x1000, rkey, &param)) != UCS_OK);
    ucp_rkey_destroy(rkey);
    ucp_rkey_buffer_release(packed);
    WANT(UCS_OK, ucp_mem_unmap(fixture.context, memh));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

/* Addresses outside of what a key covers. */
static void out_of_range(void)
{
    fixture_t           fixture = fixture_open(features());
    ucp_request_param_t param   = {.op_attr_mask = 0};
    ucp_request_param_t typed   = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    uint64_t            value   = 1, beyond = fixture.remote + FIXTURE_MEMORY;
    void               *pointer;

    WANT_TRUE(fixture_wait(&fixture, ucp_put_nbx(fixture.ep, &value, 8, beyond, fixture.rkey, &param)) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_put_nbx(fixture.ep, &value, 8, beyond - 4, fixture.rkey, &param)) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_get_nbx(fixture.ep, &value, 8, 8, fixture.rkey, &param)) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_get_nbx(fixture.ep, &value, 8, -4ull, fixture.rkey, &param)) != UCS_OK);
    WANT_TRUE(fixture_wait(&fixture, ucp_atomic_op_nbx(fixture.ep, UCP_ATOMIC_OP_ADD, &value, 1, beyond, fixture.rkey,
                                                       &typed)) != UCS_OK);
    SURVIVE(ucp_rkey_ptr(fixture.rkey, beyond + 4096, &pointer));
    fixture_works(&fixture);
    fixture_close(&fixture);
}

static const case_t cases[] = {
    {"blobs: damaged address", damaged_address}, {"blobs: short address", short_address},
    {"blobs: random address", random_address},   {"blobs: stale address", stale_address},
    {"blobs: damaged key", damaged_key},         {"blobs: empty key", empty_key},
    {"blobs: out of range", out_of_range},
};

CHECK_MAIN(cases)
