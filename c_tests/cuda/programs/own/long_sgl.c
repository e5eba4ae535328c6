/*
 * Puts and gets of scatter-gather lists of ten thousand pieces of memory of devices, and of the host: few calls of the
 * driver at either side, where the other side is memory of a device that this process can open, where it is host memory
 * that is mapped, and where the owner executes messages.
 */
#include "gpu.h"
#include "lists.h"

#include "window.h"

#include <stdlib.h>

/* IN_PLACE: adapters access memory of devices where it is, and no copy is there to fail. */
#ifndef IN_PLACE
#define IN_PLACE 0
#endif

/* UNCOPIED: the driver copies nothing at the initiator between memory of devices, and between it and the host's. */
#ifndef UNCOPIED
#define UNCOPIED 0
#endif

/* REFUSED: neither process can open handles of the other, so that messages carry all pieces. */
#ifndef REFUSED
#define REFUSED 0
#endif
#ifndef PIECES
#define PIECES 10000
#define LENGTH 64
#endif

enum { STRIDE = LENGTH + LENGTH / 2, TOTAL = PIECES * STRIDE, MAX_CALLS = 10000 / 64 };

static void      *buffers[PIECES];
static size_t     lengths[PIECES];
static uint64_t   addrs[PIECES];
static ucp_rkey_h rkeys[PIECES];

/* Calls of the driver, without those by which progress looks whether a copy has ended: their number is the time's. */
static unsigned long long calls_made(void)
{
    return gpu_all_calls() - 3 * gpu_calls("cuEventQuery");
}

/* The far memory: of a device, or of the host, which the library allocates so that peers can map it. */
typedef struct {
    area_t     area;
    ucp_mem_h  memh;
    uint64_t   remote;
    ucp_rkey_h rkey;
} far_t;

static void far_make(bed_t *bed, far_t *far, place_t place)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                   .length = TOTAL};
    ucp_mem_attr_t       attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    char                 key[PACKED_KEY_MAX];

    *far = (far_t){.area = {.place = place, .length = TOTAL}};
    if (bed->b != NULL && place == HOST) {
        params.flags = UCP_MEM_MAP_ALLOCATE;
    } else {
        far->area      = area_make(bed->b, place, TOTAL);
        params.address = far->area.memory;
    }
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_map(bed->b->context, &params, &far->memh), "ucp_mem_map");
        must(bed->b, ucp_mem_query(far->memh, &attr), "ucp_mem_query");
        far->area.memory = attr.address;
        far->remote      = (uint64_t)(uintptr_t)attr.address;
        area_set(&far->area, 0x5a);
    }
    bed_transfer(bed, bed->b, &far->remote, sizeof(far->remote), &far->remote, sizeof(far->remote));
    window_carry_key(bed, far->memh, key);
    if (bed->a != NULL) {
        must(bed->a, ucp_ep_rkey_unpack(bed->a->ep, key, &far->rkey), "ucp_ep_rkey_unpack");
    }
}

static void far_free(bed_t *bed, far_t *far)
{
    if (bed->a != NULL) {
        ucp_rkey_destroy(far->rkey);
    }
    if (bed->b != NULL) {
        must(bed->b, ucp_mem_unmap(bed->b->context, far->memh), "ucp_mem_unmap");
        if (far->area.place != HOST) {
            area_free(&far->area);
        }
    }
}

/* Each second piece of the list has the memory of the other area of A. */
static ucs_status_t access_all(bed_t *bed, const area_t near[2], const far_t *far, list_access_t access)
{
    list_t list = {.count = PIECES, .buffers = buffers, .lengths = lengths, .addrs = addrs, .rkeys = rkeys};

    for (int i = 0; i < PIECES; i++) {
        buffers[i] = near[i % 2].memory + (size_t)i * STRIDE;
        lengths[i] = LENGTH;
        addrs[i]   = far->remote + (uint64_t)i * STRIDE;
        rkeys[i]   = far->rkey;
    }
    return list_access(bed, &list, access);
}

/* Whether the pieces, those of an area or all, have the bytes of this fill, and the gaps between them none. */
static int is_good(const char *bytes, int first, int step, unsigned seed)
{
    for (int i = first; i < PIECES; i += step) {
        const char *piece = bytes + (size_t)i * STRIDE;
        if (data_check_at(piece, (size_t)i * STRIDE, LENGTH, seed)[0] != 'g' ||
            !data_is(piece + LENGTH, STRIDE - LENGTH, 0x5a)) {
            return 0;
        }
    }
    return 1;
}

static int area_good(const area_t *area, int first, int step, unsigned seed)
{
    char *bytes = malloc(TOTAL);

    area_read(area, 0, bytes, TOTAL);
    int good = is_good(bytes, first, step, seed);
    free(bytes);
    return good;
}

/* A copy of the owner fails: the list does, a get at once and a put with the flush, and the connection stays. */
static void refused_by_owner(bed_t *bed, const area_t near[2], const far_t *far, list_access_t access)
{
    for (int fails = 1; fails >= 0; fails--) {
        bed_sync(bed);
        if (bed->b != NULL && fails) {
            gpu_fault("fail_nth=1,fail_code=2");
        }
        bed_sync(bed);
        if (bed->a != NULL) {
            ucs_status_t status = access_all(bed, near, far, access);
            want(bed->a, fails ? status != UCS_OK : status == UCS_OK,
                 "%s, a copy of the owner %s: %s", access == LIST_PUT ? "put" : "get",
                 fails ? "fails" : "failed before", status_name(status));
        }
    }
}

/* From and to two areas of A. */
static void case_of(bed_t *bed, const place_t nears[2], place_t place)
{
    area_t             near[2] = {area_make(bed->a, nears[0], TOTAL), area_make(bed->a, nears[1], TOTAL)};
    far_t              far;
    unsigned long long calls, copies;
    ucs_status_t       status = UCS_OK;
    int                uncopied = UNCOPIED && bed->a != NULL && (place == HOST || place == GPU0);
    int                good   = 1;

    far_make(bed, &far, place);
    area_fill(&near[0], 0, TOTAL, 3);
    area_fill(&near[1], 0, TOTAL, 3);
    bed_sync(bed);
    if (bed->a != NULL && (nears[0] == HOST || nears[1] == HOST || UNCOPIED)) {
        /* The first access asks for each page of the host, and makes the connection. */
        status = access_all(bed, near, &far, LIST_PUT);
    }
    bed_sync(bed);
    calls  = calls_made();
    copies = gpu_copies();
    if (bed->a != NULL && status == UCS_OK) {
        status = access_all(bed, near, &far, LIST_PUT);
    }
    bed_sync(bed);
    calls  = calls_made() - calls;
    copies = gpu_copies() - copies;
    want(bed->a, !uncopied || copies == 0, "put to %s: copies %llu", place_names[place], copies);
    good  = bed->b == NULL || area_good(&far.area, 0, 1, 3);
    want(bed->a != NULL ? bed->a : bed->b, status == UCS_OK && good && calls <= MAX_CALLS,
         "put from %s to %s: %s, good %d, calls %llu", place_names[nears[0]], place_names[place], status_name(status),
         good, calls);

    area_fill(&far.area, 0, TOTAL, 9);
    area_set(&near[0], 0x5a);
    area_set(&near[1], 0x5a);
    bed_sync(bed);
    calls  = calls_made();
    copies = gpu_copies();
    if (bed->a != NULL) {
        status = access_all(bed, near, &far, LIST_GET);
    }
    bed_sync(bed);
    calls  = calls_made() - calls;
    copies = gpu_copies() - copies;
    want(bed->a, !uncopied || copies == 0, "get from %s: copies %llu", place_names[place], copies);
    good  = bed->a == NULL || (area_good(&near[0], 0, 2, 9) && area_good(&near[1], 1, 2, 9));
    want(bed->a != NULL ? bed->a : bed->b, status == UCS_OK && good && calls <= MAX_CALLS,
         "get from %s to %s: %s, good %d, calls %llu", place_names[place], place_names[nears[0]], status_name(status),
         good, calls);
    for (list_access_t access = LIST_GET; REFUSED && place != HOST && access <= LIST_PUT; access++) {
        refused_by_owner(bed, near, &far, access);
    }
    /* What messages carry from host memory and to it no driver copies at A. */
    int copied = !IN_PLACE && !(REFUSED && nears[0] == HOST);
    for (int put = 0; bed->a != NULL && copied && put < 2; put++) { /* a copy of A fails; the connection stays */
        gpu_fault("fail_nth=1,fail_code=2");
        status = access_all(bed, near, &far, put ? LIST_PUT : LIST_GET);
        want(bed->a, status == UCS_ERR_IO_ERROR, "a copy fails, %s %s: %s", put ? "put to" : "get from",
             place_names[place], status_name(status));
    }
    bed_sync(bed);
    far_free(bed, &far);
    area_free(&near[0]);
    area_free(&near[1]);
}

static void script(bed_t *bed)
{
    static const place_t devices[2] = {GPU0, GPU1}, host[2] = {HOST, HOST}, mixed[2] = {GPU1, HOST};
    bed_params_t         params     = {.features = UCP_FEATURE_RMA};

    gpu_open();
    bed_open(bed, &params);
    if (REFUSED) {
        gpu_fault("ipc_refused=1,export_refused=1");
    }
    case_of(bed, devices, GPU0);
    case_of(bed, devices, HOST);
    case_of(bed, devices, UNSHARED_MAPPED);
    case_of(bed, host, GPU0);
    case_of(bed, host, MAPPED1);
    case_of(bed, mixed, GPU1);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
