/* Registered memory of one side: see exposed.h. */
#include "exposed.h"

#include <string.h>

static side_t *owner_of(bed_t *bed, int is_a)
{
    return is_a ? bed->a : bed->b;
}

void expose(bed_t *bed, int is_a, place_t place, size_t length, exposed_t *exposed)
{
    side_t              *owner  = owner_of(bed, is_a);
    void                *packed = NULL;
    size_t               bytes  = 0;
    ucp_mem_map_params_t map    = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .length     = length,
    };

    *exposed        = (exposed_t){.area = area_make(owner, place, length)};
    map.address     = exposed->area.memory;
    exposed->remote = (uint64_t)(uintptr_t)exposed->area.memory;
    if (owner != NULL) {
        must(owner, ucp_mem_map(owner->context, &map, &exposed->memh), "ucp_mem_map");
        must(owner, ucp_rkey_pack(owner->context, exposed->memh, &packed, &bytes), "ucp_rkey_pack");
        memcpy(exposed->key, packed, bytes);
    }
    bed_transfer(bed, owner, &exposed->remote, sizeof(exposed->remote), &exposed->remote, sizeof(exposed->remote));
    bed_transfer(bed, owner, packed, bytes, exposed->key, sizeof(exposed->key));
    if (owner != NULL) {
        ucp_rkey_buffer_release(packed);
    }
}

ucp_rkey_h exposed_key(const side_t *side, ucp_ep_h ep, const exposed_t *exposed)
{
    ucp_rkey_h rkey = NULL;

    must(side, ucp_ep_rkey_unpack(ep, exposed->key, &rkey), "ucp_ep_rkey_unpack");
    return rkey;
}

void hide(bed_t *bed, int is_a, exposed_t *exposed)
{
    side_t *owner = owner_of(bed, is_a);

    if (owner != NULL && exposed->memh != NULL) {
        must(owner, ucp_mem_unmap(owner->context, exposed->memh), "ucp_mem_unmap");
        exposed->memh = NULL;
    }
    area_free(&exposed->area);
}
