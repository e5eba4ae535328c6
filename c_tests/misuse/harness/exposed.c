/* Exposes memory that both processes map, and accesses it. */
#define _GNU_SOURCE
#include "exposed.h"

#include <sys/mman.h>
#include <sys/socket.h>

static const ucp_request_param_t plain = {.op_attr_mask = 0};

unsigned char *there;
static size_t  there_size;

void register_length(party_t *self, size_t length)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = there,
        .length     = length,
    };
    ucp_mem_h memh;
    void     *packed;
    size_t    packed_length;

    WANT(UCS_OK, ucp_mem_map(self->context, &params, &memh));
    WANT(UCS_OK, ucp_rkey_pack(self->context, memh, &packed, &packed_length));
    WANT_TRUE(send(self->link, packed, packed_length, 0) == (ssize_t)packed_length);
}

void register_memory(party_t *self)
{
    register_length(self, there_size);
}

ucp_rkey_h open_memory(party_t *self, size_t size, void (*act)(party_t *))
{
    char       key[1024];
    ucp_rkey_h rkey;

    there = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    there_size = size;
    start(self, UCP_ERR_HANDLING_MODE_PEER, act);
    WANT_TRUE(recv(self->link, key, sizeof(key), 0) > 0);
    WANT(UCS_OK, ucp_ep_rkey_unpack(self->ep, key, &rkey));
    return rkey;
}

void close_memory(party_t *self, ucp_rkey_h rkey)
{
    ucp_rkey_destroy(rkey);
    notify_peer(self);
    kill_and_check(self);
    munmap(there, there_size);
}

ucs_status_ptr_t put(party_t *self, const void *data, size_t size, size_t offset, ucp_rkey_h rkey)
{
    return ucp_put_nbx(self->ep, data, size, (uintptr_t)there + offset, rkey, &plain);
}

ucs_status_ptr_t get(party_t *self, void *data, size_t size, size_t offset, ucp_rkey_h rkey)
{
    return ucp_get_nbx(self->ep, data, size, (uintptr_t)there + offset, rkey, &plain);
}
