/*
 * Puts and gets by message whose copies fail, at the initiator and at the owner of the memory: a status, and nothing
 * hangs.
 * WAY: cuda_copy
 */
#include "gpu.h"

#include "window.h"

#define LENGTH (1 << 20)

typedef enum { PUT, GET } verb_t;

static void access_memory(bed_t *bed, verb_t verb, const area_t *mine, uint64_t remote, ucp_rkey_h rkey, size_t length,
                          int may_work, const char *what)
{
    ucp_request_param_t none = {.op_attr_mask = 0};

    if (bed->a != NULL) {
        ucp_ep_h         ep  = bed->a->ep;
        ucs_status_ptr_t end = verb == PUT ? ucp_put_nbx(ep, mine->memory, length, remote, rkey, &none) :
                                             ucp_get_nbx(ep, mine->memory, length, remote, rkey, &none);
        ucs_status_t     status  = bed_wait(bed, end);
        ucs_status_t     flushed = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
        int              worked  = status == UCS_OK && flushed == UCS_OK;
        want(bed->a, may_work ? worked : !worked, "%s %zu, %s: %s, flush %s", verb == PUT ? "put" : "get", length, what,
             status_name(status), status_name(flushed));
    }
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    static const size_t lengths[] = {8, LENGTH};
    bed_params_t        params    = {.features = UCP_FEATURE_RMA};
    char                key[PACKED_KEY_MAX];

    gpu_open();
    bed_open(bed, &params);
    area_t               exposed = area_make(bed->b, GPU0, LENGTH), mine = area_make(bed->a, GPU1, LENGTH);
    uint64_t             remote  = (uint64_t)(uintptr_t)exposed.memory;
    ucp_rkey_h           rkey    = NULL;
    ucp_mem_h            memh    = NULL;
    ucp_mem_map_params_t map     = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = exposed.memory,
        .length     = LENGTH,
    };

    if (bed->b != NULL) {
        must(bed->b, ucp_mem_map(bed->b->context, &map, &memh), "ucp_mem_map");
    }
    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
    }
    area_fill(&mine, 0, LENGTH, 4);
    for (int i = 0; i < 2; i++) {
        for (verb_t verb = PUT; verb <= GET; verb++) {
            access_memory(bed, verb, &mine, remote, rkey, lengths[i], 1, "all is well");
            if (bed->a != NULL) {
                gpu_fault("fail_nth=1,fail_code=2");
            }
            bed_sync(bed);
            access_memory(bed, verb, &mine, remote, rkey, lengths[i], 0, "the initiator's copy fails");
            gpu_fault("fail_nth=0");
            access_memory(bed, verb, &mine, remote, rkey, lengths[i], 1, "afterwards");
            if (bed->b != NULL) {
                gpu_fault("fail_nth=1,fail_code=2");
            }
            bed_sync(bed);
            access_memory(bed, verb, &mine, remote, rkey, lengths[i], 0, "the owner's copy fails");
            gpu_fault("fail_nth=0");
        }
    }
    if (bed->a != NULL) {
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
    }
    area_free(&mine);
    area_free(&exposed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
