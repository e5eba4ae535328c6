/*
 * The host's part of the device API where UCX 1.22 gives no answer on the software driver or ends the process: lists of
 * remote memory, null pointers, handles of other contexts, endpoints of other workers, keys of other peers, and
 * counters in memory of a type that is not supported.
 */
#include "gpu.h"

#include "../../driver.h"
#include "window.h"

#include <ucp/api/device/ucp_host.h>

#include <string.h>

enum {
    SIZE   = 1 << 16,
    MEMH   = UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH,
    RKEY   = UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY,
    REMOTE = UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR,
    EP     = UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP,
};

typedef ucp_device_mem_list_elem_t   element_t;
typedef ucp_device_mem_list_params_t list_t;

/* What device code reads at the handle: ucp/api/device/ucp_device_types.h. */
typedef struct {
    uint16_t version, num_lanes;
    uint32_t length;
} header_t;

static uint64_t   remote;
static ucp_rkey_h rkey, own_rkey;
static ucp_ep_h   to_self, to_b_again, of_other;

static list_t list_of(ucp_worker_h worker, const element_t *elements, size_t number)
{
    return (list_t){.field_mask = UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS |
                                  UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE |
                                  UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS |
                                  (worker != NULL ? UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER : 0),
                    .element_size = sizeof(*elements), .num_elements = number, .worker = worker,
                    .elements = elements};
}

static element_t element_of(ucp_ep_h ep, ucp_rkey_h key)
{
    return (element_t){.field_mask = RKEY | REMOTE | EP, .rkey = key, .remote_addr = remote, .ep = ep};
}

/* Device code finds a version that it does not know, no lanes, and the length. */
static int header_is(const void *handle, uint32_t length)
{
    area_t   area   = {.place = GPU0, .memory = (char *)handle};
    header_t header = {1, 1, 1};

    area_read(&area, 0, &header, sizeof(header));
    return header.version == 0 && header.num_lanes == 0 && header.length == length;
}

static void remote_list(const side_t *side, const char *what, const list_t *list, ucs_status_t expected)
{
    ucp_device_remote_mem_list_h handle = NULL;
    ucs_status_t                 status = ucp_device_remote_mem_list_create(list, &handle);
    int                          good   = status == expected && (status == UCS_OK) == (handle != NULL);
    uint32_t                     length = 0;

    if (status == UCS_OK) {
        length = ucp_device_get_mem_list_length(handle);
        good   = good && length == list->num_elements && header_is(handle, length);
        ucp_device_mem_list_release(handle);
        good = good && ucp_device_get_mem_list_length(handle) == 0;
        ucp_device_mem_list_release(handle); /* again: a line, and nothing else */
    }
    want(side, good, "remote, %s: %s, length %u", what, status_name(status), length);
}

static void remote_lists(const side_t *side)
{
    static element_t many[1000];
    element_t        elements[2] = {element_of(side->ep, rkey), element_of(side->ep, rkey)};
    list_t           two         = list_of(side->worker, elements, 2), none = list_of(NULL, elements, 2);

    remote_list(side, "two elements", &two, UCS_OK);
    remote_list(side, "no worker", &none, UCS_OK);
    elements[1] = element_of(to_b_again, rkey);
    remote_list(side, "two endpoints to the peer", &two, UCS_OK);
    elements[1].field_mask = 0;
    remote_list(side, "a gap behind", &two, UCS_OK);
    elements[1]            = elements[0];
    elements[0].field_mask = REMOTE;
    remote_list(side, "a gap in front", &two, UCS_OK);
    elements[0] = element_of(to_self, own_rkey);
    remote_list(side, "two peers", &two, UCS_OK);
    elements[0] = element_of(to_self, rkey);
    remote_list(side, "a key of another peer", &two, UCS_ERR_INVALID_PARAM);
    elements[0] = element_of(of_other, rkey);
    remote_list(side, "an endpoint of another worker", &two, UCS_ERR_INVALID_PARAM);
    elements[0]              = element_of(side->ep, rkey);
    elements[0].field_mask   = RKEY;
    remote_list(side, "a key alone", &two, UCS_ERR_INVALID_PARAM);
    for (int i = 0; i < 1000; i++) {
        many[i] = element_of(side->ep, rkey);
    }
    list_t thousand = list_of(side->worker, many, 1000);
    remote_list(side, "1000 elements", &thousand, UCS_OK);
    thousand.num_elements = (size_t)UINT32_MAX + 1;
    remote_list(side, "more elements than a length says", &thousand, UCS_ERR_INVALID_PARAM);
}

static void null_pointers(const side_t *side)
{
    element_t                    element = element_of(side->ep, rkey);
    list_t                       list    = list_of(side->worker, &element, 1);
    ucp_device_local_mem_list_h  local   = NULL;
    ucp_device_remote_mem_list_h remote_handle = NULL;

    want(side,
         ucp_device_local_mem_list_create(NULL, &local) == UCS_ERR_INVALID_PARAM &&
             ucp_device_local_mem_list_create(&list, NULL) == UCS_ERR_INVALID_PARAM &&
             ucp_device_remote_mem_list_create(NULL, &remote_handle) == UCS_ERR_INVALID_PARAM &&
             ucp_device_remote_mem_list_create(&list, NULL) == UCS_ERR_INVALID_PARAM,
         "null parameters and handles");
    want(side, ucp_device_get_mem_list_length(NULL) == 0 && ucp_device_get_mem_list_length(&element) == 0,
         "the length of what is not a list");
    ucp_device_mem_list_release(NULL);
    ucp_device_mem_list_release(&element);
}

/* One of each device; memory of another context, and freed before its handle. */
static void local_lists(const side_t *side, ucp_context_h other_context)
{
    ucp_device_local_mem_list_h handles[2];
    ucs_status_t                status[2];
    element_t                   element;
    list_t                      list = list_of(side->worker, &element, 1);

    for (int i = 0; i < 2; i++) {
        area_t               area   = area_make(side, i ? GPU1 : GPU0, SIZE);
        ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                       .address = area.memory, .length = SIZE};
        ucp_mem_h            memh;
        must(side, ucp_mem_map(side->context, &params, &memh), "ucp_mem_map");
        element   = (element_t){.field_mask = MEMH, .memh = memh};
        status[i] = ucp_device_local_mem_list_create(&list, &handles[i]);
        int good  = status[i] == UCS_OK && header_is(handles[i], 1);
        int device = -1;
        cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)handles[i]);
        int expected = -2;
        cuPointerGetAttribute(&expected, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)(uintptr_t)area.memory);
        want(side, good && device == expected, "a list of device %d, handle on device %d: %s", expected, device,
             status_name(status[i]));
        area_free(&area);
        ucp_device_local_mem_list_h gone = NULL;
        ucs_status_t freed = ucp_device_local_mem_list_create(&list, &gone);
        want(side, freed == UCS_ERR_UNSUPPORTED && gone == NULL, "memory that is freed: %s", status_name(freed));
        must(side, ucp_mem_unmap(side->context, memh), "ucp_mem_unmap");
        freed = ucp_device_local_mem_list_create(&list, &gone);
        want(side, freed == UCS_ERR_INVALID_PARAM, "a handle that is unmapped: %s", status_name(freed));
        area = area_make(side, GPU0, SIZE);
        params.address = area.memory;
        must(side, ucp_mem_map(other_context, &params, &memh), "ucp_mem_map");
        element.memh = memh;
        freed        = ucp_device_local_mem_list_create(&list, &gone);
        want(side, freed == UCS_ERR_INVALID_PARAM, "a handle of another context: %s", status_name(freed));
        must(side, ucp_mem_unmap(other_context, memh), "ucp_mem_unmap");
        area_free(&area);
    }
    for (int i = 0; i < 2; i++) { /* lists outlive the memory that they are of */
        want(side, ucp_device_get_mem_list_length(handles[i]) == 1, "list %d is there still", i);
        ucp_device_mem_list_release(handles[i]);
    }
}

static void counter(const side_t *side, const char *what, const ucp_device_counter_params_t *params, place_t place,
                    ucs_status_t expected)
{
    area_t   area = area_make(side, place, 64);
    uint64_t word = 5;

    area_set(&area, 0x5a);
    ucs_status_t status = ucp_device_counter_init(side->worker, params, area.memory);
    area_read(&area, 0, &word, sizeof(word));
    uint64_t read = ucp_device_counter_read(side->worker, params, area.memory);
    want(side, status == expected && word == (status == UCS_OK ? 0 : 0x5a5a5a5a5a5a5a5a) && read == 0,
         "counter, %s, %s: %s", what, place_names[place], status_name(status));
    area_free(&area);
}

static void counters(const side_t *side)
{
    ucp_device_counter_params_t params = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE};
    uint64_t                    word   = 7;

    counter(side, "null parameters", NULL, HOST, UCS_OK);
    counter(side, "null parameters", NULL, GPU0, UCS_OK);
    for (int place = HOST; place < PLACES; place++) {
        params.mem_type = UCS_MEMORY_TYPE_UNKNOWN;
        counter(side, "an unknown type", &params, (place_t)place, UCS_OK);
        params.mem_type = UCS_MEMORY_TYPE_ROCM;
        counter(side, "another vendor's type", &params, (place_t)place, UCS_ERR_UNSUPPORTED);
        params.mem_type = (ucs_memory_type_t)77;
        counter(side, "a number without a type", &params, (place_t)place, UCS_ERR_UNSUPPORTED);
    }
    params.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH;
    params.memh       = NULL;
    counter(side, "a null memh", &params, GPU0, UCS_ERR_INVALID_PARAM);
    want(side,
         ucp_device_counter_init(NULL, NULL, &word) == UCS_ERR_INVALID_PARAM && word == 7 &&
             ucp_device_counter_init(side->worker, NULL, NULL) == UCS_ERR_INVALID_PARAM &&
             ucp_device_counter_read(NULL, NULL, &word) == 0 && ucp_device_counter_read(side->worker, NULL, NULL) == 0,
         "null workers and counters");
    area_t area = area_make(side, GPU0, 64);
    gpu_fault("fail_nth=1,fail_code=2");
    ucs_status_t status = ucp_device_counter_init(side->worker, NULL, area.memory);
    gpu_fault("fail_nth=1,fail_code=2");
    uint64_t read = ucp_device_counter_read(side->worker, NULL, area.memory);
    want(side, status == UCS_ERR_IO_ERROR && read == 0 && logged("a copy of a device's memory has failed") == 2,
         "a copy that fails: %s", status_name(status));
    gpu_fault("alloc_nth=1");
    element_t                    element = element_of(side->ep, rkey);
    list_t                       list    = list_of(side->worker, &element, 1);
    ucp_device_remote_mem_list_h handle  = NULL;
    status = ucp_device_remote_mem_list_create(&list, &handle);
    want(side, status == UCS_ERR_NO_MEMORY && handle == NULL, "no memory for a list: %s", status_name(status));
    area_free(&area);
}

static ucp_rkey_h key_of_own(const side_t *side, const area_t *area, ucp_mem_h *memh)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = area->memory, .length = SIZE};
    ucp_rkey_h           key;
    void                *packed;
    size_t               length;

    must(side, ucp_mem_map(side->context, &params, memh), "ucp_mem_map");
    must(side, ucp_rkey_pack(side->context, *memh, &packed, &length), "ucp_rkey_pack");
    must(side, ucp_ep_rkey_unpack(to_self, packed, &key), "ucp_ep_rkey_unpack");
    ucp_rkey_buffer_release(packed);
    return key;
}

static void lists_and_counters(bed_t *bed, const void *to_b, const void *to_a)
{
    side_t              *side   = bed->a;
    ucp_params_t         params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    ucp_worker_params_t  worker = {.field_mask = 0};
    side_t               other  = *side;
    ucp_context_h        context;
    ucp_mem_h            memh;
    area_t               area = area_make(side, GPU0, SIZE);

    must(side, ucp_init(&params, NULL, &context), "ucp_init");
    must(side, ucp_worker_create(side->context, &worker, &other.worker), "ucp_worker_create");
    of_other   = bed_connect(&other, to_b);
    to_b_again = bed_connect(side, to_b);
    to_self    = bed_connect(side, to_a);
    own_rkey   = key_of_own(side, &area, &memh);
    remote_lists(side);
    null_pointers(side);
    local_lists(side, context);
    counters(side);
    bed_disconnect(bed, to_b_again);
    ucp_rkey_destroy(own_rkey);
    must(side, ucp_mem_unmap(side->context, memh), "ucp_mem_unmap");
    area_free(&area);
    bed_disconnect(bed, to_self);
    ucp_worker_destroy(other.worker);
    ucp_cleanup(context);
}

static void script(bed_t *bed)
{
    static char          to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    bed_params_t         params = {.features = UCP_FEATURE_RMA | UCP_FEATURE_DEVICE};
    ucp_mem_map_params_t map    = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .length = SIZE};
    area_t               theirs;
    ucp_mem_h            memh = NULL;
    char                 key[PACKED_KEY_MAX];

    gpu_open();
    bed_open(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    if (bed->a != NULL) {
        ucp_address_t *own;
        size_t         length;
        must(bed->a, ucp_worker_get_address(bed->a->worker, &own, &length), "ucp_worker_get_address");
        memcpy(to_a, own, length);
        ucp_worker_release_address(bed->a->worker, own);
    }
    theirs = area_make(bed->b, GPU0, SIZE);
    if (bed->b != NULL) {
        map.address = theirs.memory;
        remote      = (uint64_t)(uintptr_t)theirs.memory;
        must(bed->b, ucp_mem_map(bed->b->context, &map, &memh), "ucp_mem_map");
        want(bed->b, 1, "memory of a device is there");
    }
    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        lists_and_counters(bed, to_b, to_a);
        ucp_rkey_destroy(rkey);
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, memh), "ucp_mem_unmap");
        area_free(&theirs);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
