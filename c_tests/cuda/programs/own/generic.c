/*
 * A datatype of the program whose functions copy from and to memory of a device by the driver: tag messages
 * of a device's records into records of another device, and into and out of one piece of memory.
 */
#include "gpu.h"

#include "../../driver.h"

#include <stdlib.h>

#define RECORD 1000 /* bytes of a record */
#define STRIDE 1500 /* from one record to the next */

/* The state of one operation. */
typedef struct {
    const area_t *area;
    size_t        count;
} packing_t;

static void *start(void *context, const void *buffer, size_t count)
{
    packing_t *packing = malloc(sizeof(*packing));

    (void)buffer;
    *packing = (packing_t){.area = context, .count = count};
    return packing;
}

static void *start_unpack(void *context, void *buffer, size_t count)
{
    return start(context, buffer, count);
}

static size_t packed_size(void *state)
{
    return ((packing_t *)state)->count * RECORD;
}

/* Calls `copy` for each record's part of the packed bytes from `offset` on. */
static void for_records(packing_t *packing, size_t offset, char *bytes, size_t length,
                        void (*copy)(const area_t *, size_t, char *, size_t))
{
    while (length > 0) {
        size_t within = offset % RECORD, part = RECORD - within < length ? RECORD - within : length;

        copy(packing->area, offset / RECORD * STRIDE + within, bytes, part);
        offset += part, bytes += part, length -= part;
    }
}

static void copy_out(const area_t *area, size_t offset, char *bytes, size_t length)
{
    area_read(area, offset, bytes, length);
}

static void copy_in(const area_t *area, size_t offset, char *bytes, size_t length)
{
    area_write(area, offset, bytes, length);
}

static size_t pack(void *state, size_t offset, void *to, size_t length)
{
    size_t left = packed_size(state) - offset;

    length = length < left ? length : left;
    for_records(state, offset, to, length, copy_out);
    return length;
}

static ucs_status_t unpack(void *state, size_t offset, const void *from, size_t length)
{
    for_records(state, offset, (char *)from, length, copy_in);
    return UCS_OK;
}

static const ucp_generic_dt_ops_t functions = {start, start_unpack, packed_size, pack, unpack, free};

static int records_are(const area_t *area, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        if (area_check(area, i * STRIDE, RECORD, i * RECORD, seed)[0] != 'g' ||
            !area_is(area, i * STRIDE + RECORD, STRIDE - RECORD, 0x5a)) {
            return 0;
        }
    }
    return 1;
}

static void fill_records(const area_t *area, size_t count, unsigned seed)
{
    char *bytes = data_make(count * RECORD, seed);

    for (size_t i = 0; i < count && area->memory != NULL; i++) {
        area_write(area, i * STRIDE, bytes + i * RECORD, RECORD);
    }
    free(bytes);
}

/* Records into records, records into one piece, one piece into records. */
static void message(bed_t *bed, place_t from, place_t to, size_t count, int from_records, int to_records)
{
    size_t              length = count * RECORD;
    area_t              source = area_make(bed->a, from, from_records ? count * STRIDE : length);
    area_t              target = area_make(bed->b, to, to_records ? count * STRIDE : length);
    ucp_request_param_t param  = {.op_attr_mask = 0};
    unsigned            seed   = (unsigned)count + from;
    const side_t       *here   = bed->a != NULL ? bed->a : bed->b;
    ucp_datatype_t      type;
    ucs_status_t        status;
    int                 typed  = bed->a != NULL ? from_records : to_records;

    area_set(&target, 0x5a);
    if (from_records) {
        fill_records(&source, count, seed);
    } else {
        area_fill(&source, 0, length, seed);
    }
    must(here, ucp_dt_create_generic(&functions, bed->a != NULL ? &source : &target, &type), "datatype");
    if (typed) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
        param.datatype     = type;
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        status = bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, source.memory, typed ? count : length, 1, &param));
        want(bed->a, status == UCS_OK, "%zu records, %s%s to %s%s: %s", count, place_names[from],
             from_records ? " records" : "", place_names[to], to_records ? " records" : "", status_name(status));
    }
    if (bed->b != NULL) {
        status =
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target.memory, typed ? count : length, 1, -1, &param));
        int good = to_records ? records_are(&target, count, seed) : area_check(&target, 0, length, 0, seed)[0] == 'g';
        want(bed->b, status == UCS_OK && good, "%zu records, %s%s to %s%s: %s, good %d", count, place_names[from],
             from_records ? " records" : "", place_names[to], to_records ? " records" : "", status_name(status), good);
    }
    bed_sync(bed);
    ucp_dt_destroy(type);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    static const size_t counts[] = {1, 9, 150, 2500};
    bed_params_t        params   = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    for (int i = 0; i < 4; i++) {
        message(bed, GPU0, GPU1, counts[i], 1, 1);
        message(bed, MANAGED, GPU0, counts[i], 1, 0);
        message(bed, GPU1, GPU0, counts[i], 1, 0);
        message(bed, GPU0, GPU1, counts[i], 0, 1);
        message(bed, HOST, GPU1, counts[i], 0, 1);
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
