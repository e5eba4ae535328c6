/*
 * Memory of a device is freed, and its address named once more: by a put of the peer, by a registration, and by a
 * receive that is cancelled. Other memory of a device that gets the address is used as such.
 * NEEDS: the software driver
 * WAY: cuda_copy
 */
#include "gpu.h"

#include "window.h"

#define LENGTH (1 << 20)

typedef enum { LATE_PUT, LATE_REGISTRATION, LATE_RECEIVE, LATE_ACCESSES } late_t;

static const char *const names[] = {"put", "registration", "receive"};

static ucp_mem_h registered(const side_t *side, void *memory)
{
    ucp_mem_h            memh   = NULL;
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address    = memory,
        .length     = LENGTH,
    };

    must(side, ucp_mem_map(side->context, &params, &memh), "ucp_mem_map");
    return memh;
}

/* A puts 8 bytes; the status of both calls. */
static void put(bed_t *bed, uint64_t remote, ucp_rkey_h rkey, ucs_status_t *status, ucs_status_t *flush)
{
    static char         bytes[8];
    ucp_request_param_t none = {.op_attr_mask = 0};

    *status = bed_wait(bed, ucp_put_nbx(bed->a->ep, bytes, sizeof(bytes), remote, rkey, &none));
    *flush  = bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
}

/* B names the memory that it has freed. */
static void name_again(bed_t *bed, late_t late, void *freed)
{
    ucp_request_param_t none = {.op_attr_mask = 0};

    if (late == LATE_REGISTRATION) {
        must(bed->b, ucp_mem_unmap(bed->b->context, registered(bed->b, freed)), "ucp_mem_unmap");
    }
    if (late == LATE_RECEIVE) {
        ucs_status_ptr_t request = ucp_tag_recv_nbx(bed->b->worker, freed, LENGTH, 2, -1, &none);
        ucp_request_cancel(bed->b->worker, request);
        ucs_status_t status = bed_wait(bed, request);
        want(bed->b, status == UCS_ERR_CANCELED, "late receive: %s", status_name(status));
    }
}

/* B sends its memory to itself: by the processor that would end the process. */
static void use(bed_t *bed, ucp_ep_h to_self, const area_t *area, late_t late)
{
    ucp_request_param_t none = {.op_attr_mask = 0};
    area_t              copy = area_make(bed->b, HOST, LENGTH);

    area_fill(area, 0, LENGTH, 3);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(bed->b->worker, copy.memory, LENGTH, 1, -1, &none);
    ucs_status_t     sent    = bed_wait(bed, ucp_tag_send_nbx(to_self, area->memory, LENGTH, 1, &none));
    ucs_status_t     status  = bed_wait(bed, receive);
    want(bed->b, sent == UCS_OK && status == UCS_OK && area_check(&copy, 0, LENGTH, 0, 3)[0] == 'g',
         "used after a late %s: sent %s, received %s", names[late], status_name(sent), status_name(status));
    area_free(&copy);
}

static void case_of(bed_t *bed, ucp_ep_h to_self, late_t late)
{
    area_t       exposed = area_make(bed->b, GPU0, LENGTH);
    void        *freed   = exposed.memory;
    uint64_t     remote  = (uint64_t)(uintptr_t)freed;
    ucp_mem_h    memh    = bed->b != NULL ? registered(bed->b, freed) : NULL;
    ucp_rkey_h   rkey    = NULL;
    ucs_status_t status, flush;
    char         key[PACKED_KEY_MAX];

    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        put(bed, remote, rkey, &status, &flush);
        want(bed->a, status == UCS_OK && flush == UCS_OK, "put: %s, flush %s", status_name(status), status_name(flush));
    }
    bed_sync(bed);
    area_free(&exposed);
    bed_sync(bed);
    if (bed->a != NULL && late == LATE_PUT) {
        put(bed, remote, rkey, &status, &flush);
        want(bed->a, status != UCS_OK || flush != UCS_OK, "late put: %s, flush %s", status_name(status),
             status_name(flush));
    }
    if (bed->b != NULL) {
        name_again(bed, late, freed);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        exposed = area_make(bed->b, GPU0, LENGTH);
        want(bed->b, exposed.memory == freed, "other memory at the address that was freed");
        use(bed, to_self, &exposed, late);
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
    } else {
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    area_free(&exposed);
}

static void script(bed_t *bed)
{
    static char  to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t params  = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA};
    ucp_ep_h     to_self = NULL;

    gpu_open();
    bed_open(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->b != NULL) {
        ucp_address_t *own;
        size_t         length;

        must(bed->b, ucp_worker_get_address(bed->b->worker, &own, &length), "ucp_worker_get_address");
        to_self = bed_connect(bed->b, own);
        ucp_worker_release_address(bed->b->worker, own);
    }
    for (late_t late = LATE_PUT; late < LATE_ACCESSES; late++) {
        case_of(bed, to_self, late);
    }
    if (bed->b != NULL) {
        bed_disconnect(bed, to_self);
    }
    bed_sync(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
