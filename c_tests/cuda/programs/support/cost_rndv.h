/*
 * A program: which messages from memory of a device are eager, and which go by rendezvous, by what the ways cost.
 * CASES: {length, eager}; PRINTS: lines that say where the threshold is, each with TEXT. MEASURED: B has sent messages
 * before, which A's driver has copied. UNCOPIED: nothing of a rendezvous is copied at A. REFUSED: the length of a
 * message that is eager, and cannot be read. SOURCE: A's memory, of device 0. TABLE: the memory of which the protocol
 * table of the endpoint says the same as the cases.
 */
#include "gpu.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

#define AREA (1UL << 20)
#ifndef MEASURED
#define MEASURED 0
#endif
#ifndef UNCOPIED
#define UNCOPIED 0
#endif
#ifndef TABLE
#define TABLE "exported memory of a CUDA device"
#endif
#ifndef SOURCE
#define SOURCE GPU0
#endif
#ifndef REFUSED
#define REFUSED 0
#endif

typedef struct {
    size_t length;
    int    eager;
} case_t;

/* Whether a send completes before B receives it. */
static void message(bed_t *bed, const area_t *source, const area_t *target, size_t length, int eager)
{
    static unsigned     messages;
    ucp_request_param_t param = {.op_attr_mask = 0};

    area_fill(source, 0, length, (unsigned)length);
    area_set(target, 0);
    bed_sync(bed);
    unsigned long long before = gpu_copies();
    if (bed->a != NULL) {
        ucs_status_ptr_t sent = ucp_tag_send_nbx(bed->a->ep, source->memory, length, 1, &param);
        for (int i = 0; i < 1000; i++) {
            ucp_worker_progress(bed->a->worker);
        }
        int ended = !UCS_PTR_IS_PTR(sent) || ucp_request_check_status(sent) != UCS_INPROGRESS;
        bed_sync(bed);
        ucs_status_t status = bed_wait(bed, sent);
        want(bed->a, status == UCS_OK && ended == eager, "%zu bytes: %s, %s", length, ended ? "eager" : "rendezvous",
             status_name(status));
        /* The first one measures copies. */
        if (UNCOPIED && !eager && messages++ > 0) {
            want(bed->a, gpu_copies() == before, "%zu bytes: copies at the sender %llu", length, gpu_copies() - before);
        }
    } else {
        bed_sync(bed);
        ucs_status_t status = bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, target->memory, length, 1, -1, &param));
        want(bed->b, status == UCS_OK && area_check(target, 0, length, 0, (unsigned)length)[0] == 'g', "%zu bytes: %s",
             length, status_name(status));
    }
    bed_sync(bed);
}

/* Messages of B, so that A copies by its driver from B's device. */
static void backwards(bed_t *bed)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    for (int i = 0; i < 8; i++) {
        size_t length = i % 2 ? AREA : AREA / 16;
        area_t area   = area_make(bed->a != NULL ? bed->a : bed->b, bed->a != NULL ? GPU0 : GPU1, AREA);
        ucs_status_t status =
            bed_wait(bed, bed->a != NULL ? ucp_tag_recv_nbx(bed->a->worker, area.memory, length, 2, -1, &param)
                                         : ucp_tag_send_nbx(bed->b->ep, area.memory, length, 2, &param));
        want(bed->a != NULL ? bed->a : bed->b, status == UCS_OK, "backwards: %s", status_name(status));
        bed_sync(bed);
        area_free(&area);
    }
}

typedef enum { TAG, AM, STREAM, KINDS } kind_t;

static unsigned handled;

static ucs_status_t on_am(void *arg, const void *header, size_t header_length, void *data, size_t length,
                          const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)param;
    if (length == REFUSED && handled++ == 0) {
        memcpy(arg, data, length);
    }
    return UCS_OK;
}

static ucs_status_ptr_t send_kind(side_t *side, kind_t kind, const void *bytes)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return kind == TAG ? ucp_tag_send_nbx(side->ep, bytes, REFUSED, 1, &param) :
           kind == AM  ? ucp_am_send_nbx(side->ep, 1, NULL, 0, bytes, REFUSED, &param) :
                         ucp_stream_send_nbx(side->ep, bytes, REFUSED, &param);
}

static ucs_status_t receive_kind(bed_t *bed, kind_t kind, void *bytes)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    size_t              length;

    if (kind == TAG) {
        param.op_attr_mask = 0;
        return bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, bytes, REFUSED, 1, -1, &param));
    }
    if (kind == STREAM) {
        return bed_wait(bed, ucp_stream_recv_nbx(bed->b->ep, bytes, REFUSED, &length, &param));
    }
    while (handled == 0) {
        ucp_worker_progress(bed->b->worker);
    }
    return UCS_OK;
}

/* A message that A cannot read: the send fails, and nothing of it arrives, so that B receives the next one. */
static void refused(bed_t *bed, const area_t *source, kind_t kind)
{
    static const char *const names[KINDS] = {"tag", "am", "stream"};
    static char              bytes[REFUSED + 1];
    ucp_am_handler_param_t   handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                        .id = 1, .cb = on_am, .arg = bytes};

    if (bed->b != NULL) {
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "ucp_worker_set_am_recv_handler");
    }
    area_fill(source, 0, REFUSED, 5);
    bed_sync(bed);
    if (bed->a != NULL) {
        gpu_fault("fail_nth=1,fail_code=2");
        ucs_status_t status = bed_wait(bed, send_kind(bed->a, kind, source->memory));
        gpu_fault("fail_nth=0");
        want(bed->a, status == UCS_ERR_IO_ERROR, "%s that cannot be read: %s", names[kind], status_name(status));
        area_fill(source, 0, REFUSED, 6);
        status = bed_wait(bed, send_kind(bed->a, kind, source->memory));
        want(bed->a, status == UCS_OK, "the next %s: %s", names[kind], status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status = receive_kind(bed, kind, bytes);
        const char  *good   = data_check(bytes, REFUSED, 6);
        want(bed->b, status == UCS_OK && good[0] == 'g', "the next %s: %s, %s", names[kind], status_name(status), good);
    }
    bed_sync(bed);
}

/* Where the user selects the protocol nothing is measured for a threshold. */
static void hinted(bed_t *bed, const area_t *source)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    ucs_status_t        status = UCS_OK;

    bed_sync(bed);
    unsigned long long before = gpu_copies();
    if (bed->a != NULL) {
        status = bed_wait(bed, ucp_am_send_nbx(bed->a->ep, 2, NULL, 0, source->memory, 4096, &param));
        want(bed->a, status == UCS_OK && gpu_copies() - before == 1, "an eager active message: %s, copies %llu",
             status_name(status), gpu_copies() - before);
    }
    bed_sync(bed);
}

/* A size of a protocol table, as 16K. */
static size_t table_size(const char *text)
{
    char  *end;
    size_t size = strtoul(text, &end, 10);

    return end == text ? (size_t)-1 : *end == 'K' ? size << 10 : *end == 'M' ? size << 20 : size;
}

/* What the row of a size says in the table of tagged messages from TABLE. */
static const char *table_row(const char *tables, size_t length)
{
    static char row[256];
    const char *line  = strstr(tables, "tagged message by ucp_tag_send* from " TABLE " ");
    int         rules = 0;

    for (; line != NULL && rules < 3; line = strchr(line, '\n'), line += line != NULL) {
        const char *range = strstr(line, ".."), *end = strchr(line, '\n');
        rules += strncmp(line + strspn(line, "# "), "+-", 2) == 0;
        if (rules != 2 || end == NULL || range == NULL || range > end) {
            continue;
        }
        const char *first = range;
        while (first[-1] != ' ') {
            first--;
        }
        if (table_size(first) <= length && length <= table_size(range + 2)) {
            snprintf(row, sizeof(row), "%.*s", (int)(end - first), first);
            return row;
        }
    }
    return "no row";
}

/* The tables say what the messages of the cases have done. */
static void tables_of(bed_t *bed, const case_t *cases, size_t count)
{
    char  *tables = NULL;
    size_t length;

    if (bed->a == NULL) {
        return;
    }
    FILE *stream = open_memstream(&tables, &length);
    ucp_ep_print_info(bed->a->ep, stream);
    fclose(stream);
    for (size_t i = 0; i < count; i++) {
        const char *row = table_row(tables, cases[i].length), *said = cases[i].eager ? " eager " : " rendezvous ";
        want(bed->a, strstr(row, said) != NULL, "the table says of %zu bytes: %s", cases[i].length, row);
    }
    free(tables);
}

static void script(bed_t *bed)
{
    static const case_t cases[] = {CASES};
    bed_params_t        params  = {.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_STREAM};

    gpu_open();
    bed_open(bed, &params);
    area_t source = area_make(bed->a, SOURCE, AREA), target = area_make(bed->b, GPU1, AREA);
    area_t first  = area_make(bed->a, HOST, AREA);
    /* The connection is made. */
    transfer(bed, &first, &target, AREA, 1, "host");
    if (MEASURED) {
        backwards(bed);
    }
    hinted(bed, &source);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        message(bed, &source, &target, cases[i].length, cases[i].eager);
    }
    tables_of(bed, cases, sizeof(cases) / sizeof(cases[0]));
    for (kind_t kind = TAG; REFUSED > 0 && kind < KINDS; kind++) {
        refused(bed, &source, kind);
    }
    unsigned lines = printed("CUDA: messages from device 0 "), said = printed(TEXT);
    want(bed->a, lines == PRINTS && said == PRINTS, "lines %u, as expected %u", lines, said);
    area_free(&first);
    area_free(&source);
    area_free(&target);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
