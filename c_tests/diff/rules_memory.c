/* Memory, keys, datatypes and remote access, rule by rule (rules.txt 2.6, 2.9 and 2.10, M3 to M10). */
#define _GNU_SOURCE
#include "bed.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 100000 };

static void print_rules(side_t *side)
{
    char  *text = NULL;
    size_t length;
    FILE  *stream = open_memstream(&text, &length);

    ucp_mem_print_info("1m", side->context, stream);
    fclose(stream);
    rule(side, "M2", "print_info says something: %d", length > 0 && text[length - 1] == '\n');
    free(text);
}

/* Keys by ucp_memh_pack(): UCX aborts; it is a superset that works. */
static void memh_pack_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 14
    static const departure_t pack = {.name = "M3", .why = "UCX aborts in ucp_memh_pack() without EXPORT",
                                     .on_rucp = "OK, the same key"};
    static const departure_t export = {.name = "M8", .why = "UCX exports only through mlx5; asked of rucp alone",
                                       .on_rucp = "UNSUPPORTED"};
    window_t                          window;
    ucp_memh_pack_params_t            params  = {.field_mask = 0};
    ucp_memh_buffer_release_params_t  release = {.field_mask = 0};
    void                             *buffer = NULL, *key = NULL;
    size_t                            size = 0, key_size = 0;

    window_open(bed, &window, WINDOW_ALLOCATED, LENGTH);
    if (bed->b != NULL && on_rucp()) {
        ucs_status_t status = ucp_memh_pack(window.memh, &params, &buffer, &size);
        must(bed->b, ucp_rkey_pack(bed->b->context, window.memh, &key, &key_size), "ucp_rkey_pack");
        int same = status == UCS_OK && size == key_size && memcmp(buffer, key, size) == 0;
        ucp_rkey_buffer_release(key);
        ucp_memh_buffer_release(buffer, &release);
        rule_departs(bed->b, &pack, same ? "OK, the same key" : status_name(status));
        params.field_mask = UCP_MEMH_PACK_PARAM_FIELD_FLAGS;
        params.flags      = UCP_MEMH_PACK_FLAG_EXPORT;
        rule_departs(bed->b, &export, status_name(ucp_memh_pack(window.memh, &params, &buffer, &size)));
    } else {
        rule_departs(bed->b, &pack, "");
        rule_departs(bed->b, &export, "");
    }
    window_close(bed, &window);
#else
    (void)bed;
#endif
}

/* A total order: three keys, each with each. */
static void compare_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 16
    ucp_rkey_compare_params_t params = {.field_mask = 0};
    window_t                  windows[3];
    int                       order[3][3], good = 1;

    for (int i = 0; i < 3; i++) {
        window_open(bed, &windows[i], WINDOW_ALLOCATED, LENGTH);
    }
    for (int i = 0; bed->a != NULL && i < 9; i++) {
        must(bed->a, ucp_rkey_compare(bed->a->worker, windows[i / 3].rkey, windows[i % 3].rkey, &params,
                                      &order[i / 3][i % 3]), "ucp_rkey_compare");
    }
    for (int i = 0; bed->a != NULL && i < 27; i++) {
        int x = i / 9, y = i / 3 % 3, z = i % 3;
        int less_xy = order[x][y] <= 0, less_yz = order[y][z] <= 0, less_xz = order[x][z] <= 0;
        good = good && order[x][x] == 0 && (order[x][y] > 0) == (order[y][x] < 0) && (!(less_xy && less_yz) || less_xz);
    }
    rule(bed->a, "M6", "reflexive, antisymmetric, transitive: %d", good);
    for (int i = 2; i >= 0; i--) {
        window_close(bed, &windows[i]);
    }
#else
    (void)bed;
#endif
}

/* Device memory, on machines without devices. */
static void type_rules(bed_t *bed)
{
    static const departure_t device = {.name = "M9", .on_rucp = "UNSUPPORTED",
                                       .why  = "UCX without CUDA aborts or believes it; asked of rucp alone"};
    static char         data[64], room[64];
    ucp_context_attr_t  attr  = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE, .memory_type = UCS_MEMORY_TYPE_UNKNOWN};
    side_t             *side  = bed->a != NULL ? bed->a : bed->b;
    ucs_status_ptr_t    received = NULL;

    must(side, ucp_context_query(side->context, &attr), "ucp_context_query");
    rule(side, "M9", "memory types: %#lx", (long)attr.memory_types);
    for (int i = 0; i < 2; i++) {
        param.memory_type = i == 0 ? UCS_MEMORY_TYPE_UNKNOWN : UCS_MEMORY_TYPE_HOST;
        if (bed->b != NULL) {
            received = ucp_tag_recv_nbx(bed->b->worker, room, sizeof(room), 1, -1, &param);
        }
        bed_sync(bed);
        if (bed->a != NULL) {
            rule(bed->a, "M9", "%s: sent %s", i == 0 ? "unknown" : "host",
                 status_name(bed_wait(bed, ucp_tag_send_nbx(bed->a->ep, data, sizeof(data), 1, &param))));
        }
        if (bed->b != NULL) {
            rule(bed->b, "M9", "%s: received %s", i == 0 ? "unknown" : "host", status_name(bed_wait(bed, received)));
        }
    }
    param.memory_type = UCS_MEMORY_TYPE_CUDA;
    if (bed->a != NULL) {
        rule_departs(bed->a, &device,
                     !on_rucp() ? "" : ptr_status_name(ucp_tag_send_nbx(bed->a->ep, data, 64, 1, &param)));
        rule_departs(bed->a, &device,
                     !on_rucp() ? "" : ptr_status_name(ucp_tag_recv_nbx(bed->a->worker, data, 64, 1, -1, &param)));
        ucp_mem_map_params_t map = {
            .field_mask  = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                           UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
            .length      = LENGTH,
            .flags       = UCP_MEM_MAP_ALLOCATE,
            .memory_type = UCS_MEMORY_TYPE_CUDA,
        };
        ucp_mem_h memh;
        rule(bed->a, "M9", "allocate memory of a device: refused %d",
             ucp_mem_map(bed->a->context, &map, &memh) != UCS_OK);
    }
    bed_sync(bed);
}

static void encoding_rules(side_t *side)
{
    rule(side, "2.6.1", "contig %ld %ld, iov %ld, classes %d %d %d %d", (long)ucp_dt_make_contig(1),
         (long)ucp_dt_make_contig(100), (long)ucp_dt_make_iov(), UCP_DATATYPE_CONTIG, UCP_DATATYPE_STRIDED,
         UCP_DATATYPE_IOV, UCP_DATATYPE_GENERIC);
    rule(side, "2.6.1", "shift %d, mask %#x, of 100 bytes %d %d", UCP_DATATYPE_SHIFT, (unsigned)UCP_DATATYPE_CLASS_MASK,
         (int)(ucp_dt_make_contig(100) >> UCP_DATATYPE_SHIFT),
         (ucp_dt_make_contig(100) & UCP_DATATYPE_CLASS_MASK) == UCP_DATATYPE_CONTIG);
#if UCP_API_MINOR >= 22
    rule(side, "2.6.1", "list %ld, class %d", (long)ucp_dt_make_sgl(), UCP_DATATYPE_SGL);
#endif
}

/* `count` pieces of `each` bytes, with gaps between them and an empty one among them. */
typedef struct {
    char         *memory;
    ucp_dt_iov_t *pieces;
    size_t        count, each;
} scattered_t;

static scattered_t scattered_make(size_t count, size_t each)
{
    scattered_t s = {.memory = calloc(count, each + 13), .pieces = calloc(count + 1, sizeof(*s.pieces)),
                     .count = count + 1, .each = each};

    for (size_t i = 0; i < count; i++) {
        s.pieces[i + (i >= count / 2)] = (ucp_dt_iov_t){.buffer = s.memory + i * (each + 13), .length = each};
    }
    s.pieces[count / 2] = (ucp_dt_iov_t){.buffer = NULL, .length = 0};
    return s;
}

static void scattered_fill(scattered_t *s, const char *data)
{
    for (size_t i = 0, at = 0; i < s->count; at += s->pieces[i++].length) {
        memcpy(s->pieces[i].buffer == NULL ? (char *)data : s->pieces[i].buffer, data + at, s->pieces[i].length);
    }
}

static int scattered_equal(const scattered_t *s, const char *data)
{
    for (size_t i = 0, at = 0; i < s->count; at += s->pieces[i++].length) {
        if (s->pieces[i].length > 0 && memcmp(s->pieces[i].buffer, data + at, s->pieces[i].length) != 0) {
            return 0;
        }
    }
    return 1;
}

static void scattered_free(scattered_t *s)
{
    free(s->memory);
    free(s->pieces);
}

/* Messages in pieces at both ends, cut differently, from a few to more than one call of the kernel accepts. */
static void scattered_rules(bed_t *bed, size_t from_count, size_t to_count, size_t total)
{
    scattered_t         from = scattered_make(from_count, total / from_count);
    scattered_t         to   = scattered_make(to_count, total / to_count);
    char               *data = data_make(total, 3);
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    ucs_status_ptr_t    sent = NULL, received = NULL;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbx(bed->b->worker, to.pieces, to.count, 2, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        scattered_fill(&from, data);
        sent = ucp_tag_send_nbx(bed->a->ep, from.pieces, from.count, 2, &param);
    }
    ucs_status_t status = bed_wait(bed, received);
    rule(bed->b, "2.6.3", "%zu pieces into %zu: %s, good %d", from_count, to_count, status_name(status),
         scattered_equal(&to, data));
    status = bed_wait(bed, sent);
    rule(bed->a, "2.6.3", "%zu pieces into %zu: sender %s", from_count, to_count, status_name(status));
    bed_sync(bed);
    scattered_free(&from);
    scattered_free(&to);
    free(data);
}

/* Put from pieces; get into pieces, which only rucp does. */
static void scattered_access_rules(bed_t *bed, window_kind_t kind, size_t count, size_t total)
{
    static const departure_t access = {.name = "2.6.3", .on_rucp = "put OK, get OK, good",
                                       .why  = "the header promises put from 1.22 on; UCX 1.22 has no way for it here"};
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_iov()};
    ucp_request_param_t none  = {.op_attr_mask = 0};
    scattered_t         pieces = scattered_make(count, total / count);
    char               *data = data_make(total, 4), text[100] = "";
    window_t            window;

    window_open(bed, &window, kind, total);
    if (bed->a != NULL && on_rucp()) {
        scattered_fill(&pieces, data);
        ucs_status_t put = bed_wait(bed, ucp_put_nbx(bed->a->ep, pieces.pieces, pieces.count, window.remote,
                                                     window.rkey, &param));
        bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none));
        memset(pieces.memory, 0, count * (total / count + 13));
        ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, pieces.pieces, pieces.count, window.remote,
                                                     window.rkey, &param));
        snprintf(text, sizeof(text), "put %s, get %s, %s", status_name(put), status_name(get),
                 scattered_equal(&pieces, data) ? "good" : "bad");
    }
    if (bed->a != NULL) {
        rule_departs(bed->a, &access, text);
    }
    window_close(bed, &window);
    scattered_free(&pieces);
    free(data);
}

#if UCP_API_MINOR >= 22
static ucs_status_t sgl(bed_t *bed, int get, const ucp_dt_local_sgl_t *local, size_t count,
                        const ucp_dt_remote_sgl_t *remote, size_t remote_count, int strange)
{
    ucp_request_param_t param = {
        .op_attr_mask    = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                           UCP_OP_ATTR_FIELD_REMOTE_COUNT,
        .datatype        = ucp_dt_make_sgl(),
        .remote_datatype = strange ? ucp_dt_make_iov() : ucp_dt_make_sgl(),
        .remote          = remote,
        .remote_count    = remote_count,
    };

    uint64_t nowhere = UCP_REMOTE_ADDR_INVALID;
    return bed_wait(bed, get ? ucp_get_nbx(bed->a->ep, (void *)local, count, nowhere, UCP_RKEY_INVALID, &param) :
                               ucp_put_nbx(bed->a->ep, local, count, nowhere, UCP_RKEY_INVALID, &param));
}

/* Many pieces to many places in two windows of different kinds, some in strides, one empty; and back. */
static const char *sgl_exchange(bed_t *bed, window_t *windows, char *memory)
{
    enum { COUNT = 200, EACH = 300 };
    static void       *buffers[COUNT];
    static size_t      lengths[COUNT], counts[COUNT], strides[COUNT], theirs[COUNT];
    static uint64_t    addrs[COUNT];
    static ucp_rkey_h  rkeys[COUNT];
    ucp_request_param_t none  = {.op_attr_mask = 0};
    ucp_dt_local_sgl_t  local = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                                               UCP_DT_LOCAL_SGL_FIELD_COUNTS | UCP_DT_LOCAL_SGL_FIELD_STRIDES,
                                 .buffers = buffers, .lengths = lengths, .counts = counts, .strides = strides};
    ucp_dt_remote_sgl_t remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS |
                                                UCP_DT_REMOTE_SGL_FIELD_LENGTHS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                  .remote_addrs = addrs, .lengths = theirs, .rkeys = rkeys};

    for (int i = 0; i < COUNT; i++) {
        buffers[i] = memory + i * EACH;
        counts[i]  = i % 3 == 0 ? 5 : 1;
        lengths[i] = i == 77 ? 0 : i % 3 == 0 ? 20 : 200;
        strides[i] = 33;
        theirs[i]  = lengths[i] * counts[i];
        addrs[i]   = windows[i % 2].remote + (uint64_t)(COUNT - 1 - i) * EACH;
        rkeys[i]   = windows[i % 2].rkey;
    }
    data_fill(memory, COUNT * EACH, 9);
    ucs_status_t put = sgl(bed, 0, &local, COUNT, &remote, COUNT, 0);
    bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &none));
    memset(memory, 0, COUNT * EACH);
    ucs_status_t get = sgl(bed, 1, &local, COUNT, &remote, COUNT, 0);
    if (put != UCS_OK || get != UCS_OK) {
        return status_name(put != UCS_OK ? put : get);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t block = 0; block < counts[i]; block++) {
            size_t at = i * EACH + block * strides[i];
            if (data_check_at(memory + at, at, lengths[i], 9)[0] != 'g') {
                return "bad data";
            }
        }
    }
    theirs[5]++;
    if (sgl(bed, 0, &local, COUNT, &remote, COUNT, 0) != UCS_ERR_INVALID_PARAM) {
        return "lengths that differ were not refused";
    }
    theirs[5]--;
    if (sgl(bed, 0, &local, COUNT, &remote, COUNT - 1, 0) != UCS_ERR_INVALID_PARAM ||
        sgl(bed, 0, &local, COUNT, &remote, COUNT, 1) != UCS_ERR_INVALID_PARAM) {
        return "what is not N to N was not refused";
    }
    addrs[3] = windows[0].remote + (1 << 20); /* outside of the window: nothing of it is written */
    rkeys[3] = windows[0].rkey;
    /* over TCP only the peer knows its regions: it rejects that piece, which the next flush reports, and the others
     * arrive */
    if (sgl(bed, 0, &local, COUNT, &remote, COUNT, 0) != (over_sockets() ? UCS_OK : UCS_ERR_INVALID_PARAM)) {
        return "an address out of its region was not refused";
    }
    if (bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &none)) !=
        (over_sockets() ? UCS_ERR_INVALID_ADDR : UCS_OK)) {
        return "the flush behind what was refused does not say so";
    }
    if (bed_wait(bed, ucp_worker_flush_nbx(bed->a->worker, &none)) != UCS_OK) {
        return "the flush behind that does not end well";
    }
    return sgl(bed, 0, &local, 0, &remote, 0, 0) == UCS_OK ? "OK" : "nothing was refused";
}
#endif

static void sgl_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 22
    static const departure_t lists = {.name = "2.6.4", .on_rucp = "OK",
                                      .why  = "UCX 1.22 has no protocol for scatter-gather lists on host transports"};
    window_t windows[2];
    char    *memory = malloc(LENGTH);

    window_open(bed, &windows[0], WINDOW_ALLOCATED, LENGTH);
    window_open(bed, &windows[1], WINDOW_MALLOCED, LENGTH);
    if (bed->a != NULL) {
        rule_departs(bed->a, &lists, on_rucp() ? sgl_exchange(bed, windows, memory) : "");
    }
    window_close(bed, &windows[1]);
    window_close(bed, &windows[0]);
    free(memory);
#else
    (void)bed;
#endif
}

#if UCP_API_MINOR >= 22
typedef struct {
    const char *what;
    size_t      buffer_at, length, count, stride; /* of the second element */
    int         memhs, strange; /* handles are given; 1: one that is not mapped, 2: of less memory, 3: none */
    int         addr, rkey, memh, other_key; /* given beside the lists; of another worker */
    ucs_status_t status;
} sgl_case_t;

/* Two pieces into the window: the statuses of a put and a get of a case, and whether they moved rejected data. */
static void sgl_case(bed_t *bed, window_t *window, const sgl_case_t *c, const window_t *other,
                     const departure_t *said)
{
    static char          memory[LENGTH];
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                   .address = memory, .length = 1000};
    ucp_mem_h            memhs[2], small, gone;
    void                *buffers[2] = {memory, memory + c->buffer_at};
    size_t               lengths[2] = {100, c->length}, counts[2] = {1, c->count}, strides[2] = {0, c->stride};
    uint64_t             addrs[2] = {window->remote, c->other_key ? other->remote : window->remote + 500};
    ucp_rkey_h           rkeys[2] = {window->rkey, c->other_key ? other->rkey : window->rkey};
    ucp_dt_local_sgl_t   local  = {.field_mask = UCP_DT_LOCAL_SGL_FIELD_BUFFERS | UCP_DT_LOCAL_SGL_FIELD_LENGTHS |
                                                 UCP_DT_LOCAL_SGL_FIELD_COUNTS | UCP_DT_LOCAL_SGL_FIELD_STRIDES |
                                                 (c->memhs ? UCP_DT_LOCAL_SGL_FIELD_MEMHS : 0),
                                   .buffers = buffers, .lengths = lengths, .memhs = memhs, .counts = counts,
                                   .strides = strides};
    ucp_dt_remote_sgl_t  remote = {.field_mask = UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS | UCP_DT_REMOTE_SGL_FIELD_RKEYS,
                                   .remote_addrs = addrs, .rkeys = rkeys};
    char                 text[100] = "as asked";

    must(bed->a, ucp_mem_map(bed->a->context, &params, &memhs[0]), "ucp_mem_map");
    params.length = 250;
    must(bed->a, ucp_mem_map(bed->a->context, &params, &small), "ucp_mem_map");
    must(bed->a, ucp_mem_map(bed->a->context, &params, &gone), "ucp_mem_map");
    ucp_mem_unmap(bed->a->context, gone);
    memhs[1] = c->strange == 1 ? gone : c->strange == 2 ? small : c->strange == 3 ? NULL : memhs[0];
    ucp_request_param_t param = {
        .op_attr_mask    = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE_DATATYPE | UCP_OP_ATTR_FIELD_REMOTE |
                           UCP_OP_ATTR_FIELD_REMOTE_COUNT | (c->memh ? UCP_OP_ATTR_FIELD_MEMH : 0),
        .datatype        = ucp_dt_make_sgl(), .remote_datatype = ucp_dt_make_sgl(),
        .remote          = &remote, .remote_count = 2, .memh = memhs[0],
    };
    uint64_t     addr = c->addr ? window->remote : UCP_REMOTE_ADDR_INVALID;
    ucp_rkey_h   rkey = c->rkey ? window->rkey : UCP_RKEY_INVALID;
    memset(memory, 3, sizeof(memory));
    ucs_status_t put = bed_wait(bed, ucp_put_nbx(bed->a->ep, &local, 2, addr, rkey, &param));
    ucs_status_t get = bed_wait(bed, ucp_get_nbx(bed->a->ep, &local, 2, addr, rkey, &param));
    if (put != c->status || get != c->status || !data_is(memory, sizeof(memory), 3)) {
        snprintf(text, sizeof(text), "%s: put %s, get %s", c->what, status_name(put), status_name(get));
    }
    rule_departs(bed->a, said, text);
    ucp_mem_unmap(bed->a->context, small);
    ucp_mem_unmap(bed->a->context, memhs[0]);
}

/* Address and key of memory of A's own. */
static void own_window(bed_t *bed, window_t *own, ucp_ep_h to_self)
{
    ucp_mem_attr_t attr   = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    void          *packed = NULL;
    size_t         length = 0;

    must(bed->a, ucp_mem_query(own->memh, &attr), "ucp_mem_query");
    own->remote = (uint64_t)(uintptr_t)attr.address;
    must(bed->a, ucp_rkey_pack(bed->a->context, own->memh, &packed, &length), "ucp_rkey_pack");
    must(bed->a, ucp_ep_rkey_unpack(to_self, packed, &own->rkey), "ucp_ep_rkey_unpack");
    ucp_rkey_buffer_release(packed);
}
#endif

/* Invalid lists of pieces: addresses, keys and handles beside those of the list, or that are not those of
 * the memory that the element names. */
static void sgl_refused_rules(bed_t *bed)
{
#if UCP_API_MINOR >= 22
    static const departure_t said = {.name = "2.6.4", .on_rucp = "as asked",
                                     .why  = "UCX 1.22 has no protocol for scatter-gather lists on host transports"};
    static const sgl_case_t cases[] = {
        {.what = "good", .buffer_at = 200, .length = 100, .count = 1, .status = UCS_OK},
        {.what = "handles", .buffer_at = 200, .length = 25, .count = 4, .stride = 100, .memhs = 1, .status = UCS_OK},
        {.what = "address", .length = 100, .count = 1, .addr = 1, .status = UCS_ERR_INVALID_PARAM},
        {.what = "key", .length = 100, .count = 1, .rkey = 1, .status = UCS_ERR_INVALID_PARAM},
        {.what = "handle beside", .length = 100, .count = 1, .memh = 1, .status = UCS_ERR_INVALID_PARAM},
        {.what = "no handle", .length = 100, .count = 1, .memhs = 1, .strange = 3, .status = UCS_ERR_INVALID_PARAM},
        {.what = "gone", .length = 100, .count = 1, .memhs = 1, .strange = 1, .status = UCS_ERR_INVALID_PARAM},
        {.what = "small", .buffer_at = 200, .length = 100, .count = 1, .memhs = 1, .strange = 2,
         .status = UCS_ERR_INVALID_PARAM},
        {.what = "strides", .buffer_at = 950, .length = 25, .count = 4, .stride = 10, .memhs = 1,
         .status = UCS_ERR_INVALID_PARAM},
        {.what = "far strides", .length = 25, .count = 4, .stride = SIZE_MAX / 2, .status = UCS_ERR_INVALID_PARAM},
        {.what = "many", .length = SIZE_MAX / 2, .count = 4, .status = UCS_ERR_INVALID_PARAM},
        {.what = "other key", .length = 100, .count = 1, .other_key = 1, .status = UCS_ERR_INVALID_PARAM},
    };
    window_t window;

    window_open(bed, &window, WINDOW_ALLOCATED, LENGTH);
    for (size_t i = 0; bed->a != NULL && i < sizeof(cases) / sizeof(cases[0]); i++) {
        ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                       .length = LENGTH, .flags = UCP_MEM_MAP_ALLOCATE};
        window_t       own   = {.kind = WINDOW_ALLOCATED};
        ucp_ep_h       to_self = NULL;
        ucp_address_t *address;
        size_t         length;

        /* a worker with an endpoint to itself has no other peer; UCX is not tested */
        if (!on_rucp() || (cases[i].other_key && bed->topology == TOPOLOGY_SELF)) {
            rule_departs(bed->a, &said, on_rucp() ? "as asked" : "");
            continue;
        }
        if (cases[i].other_key) {
            must(bed->a, ucp_mem_map(bed->a->context, &params, &own.memh), "ucp_mem_map");
            must(bed->a, ucp_worker_get_address(bed->a->worker, &address, &length), "ucp_worker_get_address");
            to_self = bed_connect(bed->a, address);
            own_window(bed, &own, to_self);
            ucp_worker_release_address(bed->a->worker, address);
        }
        sgl_case(bed, &window, &cases[i], &own, &said);
        if (to_self != NULL) {
            ucp_rkey_destroy(own.rkey);
            bed_disconnect(bed, to_self);
            ucp_mem_unmap(bed->a->context, own.memh);
        }
    }
    window_close(bed, &window);
#else
    (void)bed;
#endif
}

/* FIXED replaces the program's mapping at that address, a reservation as a heap makes it, and nothing beside
 * it. Peers reach the new memory. */
static void reserved_rules(bed_t *bed)
{
    enum { BYTES = 1 << 20 };
    ucp_request_param_t none = {.op_attr_mask = 0};
    char               *data = data_make(BYTES, 8);
    window_t            window;

    window_open(bed, &window, WINDOW_RESERVED, BYTES);
    if (bed->b != NULL) {
        rule(bed->b, "M10", "at the reservation %d, zero %d",
             window.memory == (uint8_t *)window.user_memory + BYTES, window.zero);
    }
    if (bed->a != NULL) {
        bed_wait(bed, ucp_put_nbx(bed->a->ep, data, BYTES, window.remote, window.rkey, &none));
        rule(bed->a, "M10", "put %s", status_name(bed_wait(bed, ucp_ep_flush_nbx(bed->a->ep, &none))));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        uint8_t *around = window.user_memory;
        rule(bed->b, "M10", "data %s, around it %d %d", data_check(window.memory, BYTES, 8),
             data_is(around, BYTES, WINDOW_AROUND), data_is(around + 2 * BYTES, BYTES, WINDOW_AROUND));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        memset(data, 0, BYTES);
        ucs_status_t status = bed_wait(bed, ucp_get_nbx(bed->a->ep, data, BYTES, window.remote, window.rkey, &none));
        rule(bed->a, "M10", "get %s, data %s", status_name(status), data_check(data, BYTES, 8));
    }
    window_close(bed, &window);
    free(data);
}

/* Requirements of an atomic operation's parameters. */
static void atomic_rules(bed_t *bed)
{
    static const departure_t wrong = {.name = "2.9.3", .on_rucp = "INVALID_PARAM",
                                      .why  = "UCX looks at it only in builds with parameter checks"};
    uint64_t            value = 5, old = 99;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    window_t            window;

    window_open(bed, &window, WINDOW_ALLOCATED, 4096);
    if (bed->a != NULL) {
        rule(bed->a, "2.9.3", "a post ends at once: %s",
             ptr_status_name(ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &value, 1, window.remote, window.rkey,
                                               &param)));
        value = 0;
        ucp_request_param_t fetch = param;
        fetch.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        fetch.reply_buffer  = &old;
        ucs_status_t status = bed_wait(bed, ucp_atomic_op_nbx(bed->a->ep, UCP_ATOMIC_OP_ADD, &value, 1, window.remote,
                                                              window.rkey, &fetch));
        rule(bed->a, "2.9.3", "the operand was the user's again: %s, %d", status_name(status), (int)old);
        ucp_request_param_t bare = {.op_attr_mask = 0};
        rule_departs(bed->a, &wrong, !on_rucp() ? "" : ptr_status_name(ucp_atomic_op_nbx(
            bed->a->ep, UCP_ATOMIC_OP_ADD, &value, 1, window.remote, window.rkey, &bare)));
        rule_departs(bed->a, &wrong, !on_rucp() ? "" : ptr_status_name(ucp_atomic_op_nbx(
            bed->a->ep, UCP_ATOMIC_OP_ADD, &value, 1, window.remote + 3, window.rkey, &param)));
        rule_departs(bed->a, &wrong, !on_rucp() ? "" : ptr_status_name(ucp_atomic_op_nbx(
            bed->a->ep, UCP_ATOMIC_OP_SWAP, &value, 1, window.remote, window.rkey, &param)));
    }
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64};

    bed_open(bed, &params);
    if (bed->a != NULL) {
        encoding_rules(bed->a);
        print_rules(bed->a);
    }
    memh_pack_rules(bed);
    compare_rules(bed);
    type_rules(bed);
    scattered_rules(bed, 3, 5, 1500);
    scattered_rules(bed, 3, 100, 30000);
    scattered_rules(bed, 100, 3, 60000);
    scattered_rules(bed, 1000, 700, 700000);
    scattered_rules(bed, 5000, 60, 600000);
    scattered_rules(bed, 2, 2, 3000000);
    scattered_access_rules(bed, WINDOW_ALLOCATED, 10, 10000);
    scattered_access_rules(bed, WINDOW_MALLOCED, 10, 10000);
    scattered_access_rules(bed, WINDOW_MALLOCED, 500, 1000000);
    sgl_rules(bed);
    sgl_refused_rules(bed);
    reserved_rules(bed);
    atomic_rules(bed);
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
