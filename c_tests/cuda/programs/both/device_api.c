/*
 * The host's part of the device API: local lists of memory and counters of all kinds of memory, with right and wrong
 * parameters, and wrong parameters of remote lists. Local lists are of device 0, whose context is current on UCX.
 */
#include "gpu.h"

#include "window.h"

#include <ucp/api/device/ucp_host.h>

#include <stdlib.h>
#include <string.h>

enum {
    SIZE   = 1 << 16,
    MEMH   = UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH,
    RKEY   = UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY,
    LOCAL  = UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR,
    REMOTE = UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR,
    LENGTH = UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH,
    EP     = UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP,
};
#define UNTOUCHED ((void *)0x1234)

typedef ucp_device_mem_list_elem_t   element_t;
typedef ucp_device_mem_list_params_t list_t;

/* Memory of A, one area of each kind. */
static area_t    areas[PLACES];
static ucp_mem_h memhs[PLACES];

/* Memory of a device of B's. */
static uint64_t   remote;
static ucp_rkey_h rkey;

static element_t local_element(place_t place)
{
    return (element_t){.field_mask = MEMH | LOCAL | LENGTH, .memh = memhs[place], .local_addr = areas[place].memory,
                       .length = 4096};
}

static list_t list_of(const side_t *side, const element_t *elements, size_t number)
{
    return (list_t){.field_mask = UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS |
                                  UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE |
                                  UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS |
                                  UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER,
                    .element_size = sizeof(*elements), .num_elements = number, .worker = side->worker,
                    .elements = elements};
}

static void create_local(const side_t *side, const char *what, const list_t *list)
{
    ucp_device_local_mem_list_h handle = UNTOUCHED;
    ucs_status_t                status = ucp_device_local_mem_list_create(list, &handle);

    if (status == UCS_OK) {
        fact(side, "local, %s: OK, length %u", what, ucp_device_get_mem_list_length(handle));
        ucp_device_mem_list_release(handle);
    } else {
        fact(side, "local, %s: %s, untouched %d", what, status_name(status), (void *)handle == UNTOUCHED);
    }
}

static void create_remote(const side_t *side, const char *what, const list_t *list)
{
    ucp_device_remote_mem_list_h handle = UNTOUCHED;
    ucs_status_t                 status = ucp_device_remote_mem_list_create(list, &handle);

    fact(side, "remote, %s: %s, untouched %d", what, status_name(status), (void *)handle == UNTOUCHED);
}

/* Parameters that are absent, null, 0, or more than enough. */
static void parameters(const side_t *side)
{
    static const char *const fields[] = {"elements", "element size", "number", "worker"};
    element_t                element  = local_element(GPU0);
    char                     text[64];

    for (int i = 0; i < 4; i++) {
        list_t list = list_of(side, &element, 1);
        list.field_mask &= ~(1ull << i);
        snprintf(text, sizeof(text), "no %s", fields[i]);
        create_local(side, text, &list);
        if (i < 3) {
            create_remote(side, text, &list);
        }
    }
    for (int i = 0; i < 6; i++) {
        list_t list = list_of(side, &element, 1);
        list.field_mask   = i == 4 ? 0 : i == 5 ? ~0ull : list.field_mask;
        list.elements     = i == 0 ? NULL : list.elements;
        list.num_elements = i == 1 ? 0 : list.num_elements;
        list.worker       = i == 2 ? NULL : list.worker;
        list.element_size = i == 3 ? 0 : list.element_size;
        snprintf(text, sizeof(text), "case %d", i);
        create_local(side, text, &list);
        if (i != 2 && i != 5) {
            create_remote(side, text, &list);
        }
    }
}

/* A caller with a shorter or longer version of the element. */
static void sizes(const side_t *side)
{
    static const size_t bytes[] = {48, 56, 57, 64, 1024};
    char               *memory  = calloc(2, 1024), text[64];

    for (int i = 0; i < 5; i++) {
        element_t element = local_element(GPU0);
        for (size_t k = 0; k < 2; k++) {
            memcpy(memory + k * bytes[i], &element, bytes[i] < sizeof(element) ? bytes[i] : sizeof(element));
        }
        list_t list       = list_of(side, (element_t *)memory, 2);
        list.element_size = bytes[i];
        snprintf(text, sizeof(text), "elements of %zu bytes", bytes[i]);
        create_local(side, text, &list);
    }
    free(memory);
}

static void local_fields(const side_t *side)
{
    element_t element;
    list_t    list = list_of(side, &element, 1);

#define CASE(what, change)                                                                                            \
    do {                                                                                                              \
        element = local_element(GPU0);                                                                                \
        change;                                                                                                       \
        create_local(side, what, &list);                                                                              \
    } while (0)
    CASE("no memh", element.field_mask &= ~(uint64_t)MEMH);
    CASE("null memh", element.memh = NULL);
    CASE("no address", element.field_mask &= ~(uint64_t)LOCAL);
    CASE("null address", element.local_addr = NULL);
    CASE("address in front", element.local_addr = areas[GPU0].memory - 8);
    CASE("address behind", element.local_addr = areas[GPU0].memory + SIZE);
    CASE("unaligned address", element.local_addr = areas[GPU0].memory + 3);
    CASE("no length", element.field_mask &= ~(uint64_t)LENGTH);
    CASE("length 0", element.length = 0);
    CASE("length beyond", element.length = SIZE + 1);
    CASE("length that wraps", element.length = SIZE_MAX);
    CASE("no field", element.field_mask = 0);
    CASE("all bits", element.field_mask = ~0ull);
#undef CASE
}

static void local_kinds(const side_t *side)
{
    static const place_t pairs[][2] = {{GPU0, GPU0}, {GPU0, GPU1}, {GPU0, HOST}, {HOST, GPU0}, {GPU0, MANAGED},
                                       {HOST, HOST}, {MANAGED, GPU0}};
    static element_t     many[1000];
    element_t            elements[2];
    list_t               list;
    char                 text[64];

    for (int i = 0; i < 7; i++) {
        elements[0] = local_element(pairs[i][0]);
        elements[1] = local_element(pairs[i][1]);
        list        = list_of(side, elements, 2);
        snprintf(text, sizeof(text), "%s and %s", place_names[pairs[i][0]], place_names[pairs[i][1]]);
        create_local(side, text, &list);
    }
    for (int i = 0; i < 2; i++) {
        elements[i]              = local_element(GPU0);
        elements[!i]             = local_element(GPU0);
        elements[i].field_mask   = 0;
        list                     = list_of(side, elements, 2);
        create_local(side, i ? "second without a field" : "first without a field", &list);
    }
    for (int i = 0; i < 1000; i++) {
        many[i] = local_element(GPU0);
    }
    list = list_of(side, many, 1000);
    create_local(side, "1000 elements", &list);
}

static void remote_fields(const side_t *side)
{
    element_t element;
    list_t    list = list_of(side, &element, 1);

#define CASE(what, change)                                                                                            \
    do {                                                                                                              \
        element = (element_t){.field_mask = RKEY | REMOTE | EP, .rkey = rkey, .remote_addr = remote, .ep = side->ep}; \
        change;                                                                                                       \
        create_remote(side, what, &list);                                                                             \
    } while (0)
    CASE("no rkey", element.field_mask &= ~(uint64_t)RKEY);
    CASE("null rkey", element.rkey = NULL);
    CASE("no ep", element.field_mask &= ~(uint64_t)EP);
    CASE("null ep", element.ep = NULL);
    CASE("no field", element.field_mask = 0);
#undef CASE
}

/* What a counter's 8 bytes are after its start, the bytes around it, and what is read after another value. */
static void counter(const side_t *side, const char *what, const ucp_device_counter_params_t *params, place_t place,
                    size_t offset)
{
    const area_t *area  = &areas[place];
    uint64_t      value = 0x1122334455667788, zero = 1;

    area_set(area, 0x5a);
    ucs_status_t status = ucp_device_counter_init(side->worker, params, area->memory + offset);
    area_read(area, offset, &zero, sizeof(zero));
    int around = area_is(area, 0, offset, 0x5a) && area_is(area, offset + 8, 100, 0x5a);
    uint64_t first = ucp_device_counter_read(side->worker, params, area->memory + offset);
    area_write(area, offset, &value, sizeof(value));
    fact(side, "counter, %s, %s, at %zu: %s, %d, around %d, read %#llx, then %#llx", what, place_names[place], offset,
         status_name(status), zero == 0, around, (unsigned long long)first,
         (unsigned long long)ucp_device_counter_read(side->worker, params, area->memory + offset));
}

static void counters(const side_t *side)
{
    ucp_device_counter_params_t none = {.field_mask = 0};
    static const size_t         offsets[] = {0, 64, 4, 3};

    for (int place = HOST; place < PLACES; place++) {
        ucp_device_counter_params_t type = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE,
                                            .mem_type   = area_type((place_t)place)};
        ucp_device_counter_params_t memh = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH, .memh = memhs[place]};
        for (int i = 0; i < 4; i++) {
            counter(side, "no parameter", &none, (place_t)place, offsets[i]);
            counter(side, "type", &type, (place_t)place, offsets[i]);
            counter(side, "memh", &memh, (place_t)place, offsets[i]);
        }
    }
    ucp_device_counter_params_t cuda  = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE,
                                         .mem_type   = UCS_MEMORY_TYPE_CUDA};
    ucp_device_counter_params_t other = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH, .memh = memhs[GPU0]};
    ucp_device_counter_params_t both  = {.field_mask = UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE |
                                                       UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH,
                                         .mem_type   = UCS_MEMORY_TYPE_HOST, .memh = memhs[GPU0]};
    counter(side, "type cuda", &cuda, HOST, 0);
    counter(side, "type cuda", &cuda, MANAGED, 0);
    counter(side, "memh of a device", &other, HOST, 0);
    counter(side, "type host, memh of the device", &both, GPU0, 0);
}

static ucp_mem_h map(const side_t *side, const area_t *area)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = area->memory, .length = SIZE};
    ucp_mem_h            memh   = NULL;

    must(side, ucp_mem_map(side->context, &params, &memh), "ucp_mem_map");
    return memh;
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_RMA | UCP_FEATURE_DEVICE};
    area_t       theirs;
    ucp_mem_h    memh = NULL;
    char         key[PACKED_KEY_MAX];

    gpu_open();
    bed_open(bed, &params);
    theirs = area_make(bed->b, GPU0, SIZE);
    if (bed->b != NULL) {
        memh   = map(bed->b, &theirs);
        remote = (uint64_t)(uintptr_t)theirs.memory;
    }
    bed_transfer(bed, bed->b, &remote, sizeof(remote), &remote, sizeof(remote));
    window_carry_key(bed, memh, key);
    if (bed->a != NULL) {
        ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE};
        must(bed->a, ucp_context_query(bed->a->context, &attr), "ucp_context_query");
        fact(bed->a, "counter size %zu", attr.device_counter_size);
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &rkey), "ucp_ep_rkey_unpack");
        for (int place = HOST; place < PLACES; place++) {
            areas[place] = area_make(bed->a, (place_t)place, SIZE);
            memhs[place] = map(bed->a, &areas[place]);
        }
        parameters(bed->a);
        sizes(bed->a);
        local_fields(bed->a);
        local_kinds(bed->a);
        remote_fields(bed->a);
        counters(bed->a);
        for (int place = HOST; place < PLACES; place++) {
            must(bed->a, ucp_mem_unmap(bed->a->context, memhs[place]), "ucp_mem_unmap");
            area_free(&areas[place]);
        }
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
