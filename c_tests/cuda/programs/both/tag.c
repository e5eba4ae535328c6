/* Tagged messages between all kinds of memory: short to long, expected and unexpected, synchronous, with a hint. */
#include "gpu.h"

#define WITHIN 64 /* bytes in front of and behind the received ones, which must not change */

typedef struct {
    size_t length;
    int    unexpected, sync, hint;
} how_t;

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user_data)
{
    (void)request;
    if (status == UCS_OK) {
        *(ucp_tag_recv_info_t *)user_data = *info;
    }
}

static void message(bed_t *bed, place_t from, place_t to, how_t how)
{
    ucp_request_param_t sending = {.op_attr_mask = how.hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0,
                                   .memory_type  = area_type(from)};
    ucp_tag_recv_info_t info    = {0};
    ucp_request_param_t receiving = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        (how.hint ? UCP_OP_ATTR_FIELD_MEMORY_TYPE : 0),
        .cb.recv            = on_received,
        .user_data          = &info,
        .memory_type         = area_type(to),
        .recv_info.tag_info = &info,
    };
    area_t           source = area_make(bed->a, from, how.length);
    area_t           target = area_make(bed->b, to, how.length + 2 * WITHIN);
    ucs_status_ptr_t sent = NULL, received = NULL;
    unsigned         seed = (unsigned)(how.length + 4 * from + to);
    ucp_tag_recv_info_t probed;

    area_fill(&source, 0, how.length, seed);
    area_set(&target, 0x5a);
    if (bed->b != NULL && !how.unexpected) {
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory + WITHIN, how.length, 7, -1, &receiving);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = how.sync ? ucp_tag_send_sync_nbx(bed->a->ep, source.memory, how.length, 7, &sending)
                        : ucp_tag_send_nbx(bed->a->ep, source.memory, how.length, 7, &sending);
    }
    if (bed->b != NULL && how.unexpected) {
        BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 7, -1, 0, &probed) != NULL);
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory + WITHIN, how.length, 7, -1, &receiving);
    }
    const char *way = how.unexpected ? "unexpected" : "expected";
    if (bed->a != NULL) {
        fact(bed->a, "%zu%s, %s to %s, %s%s: %s", how.length, how.sync ? " sync" : "", place_names[from],
             place_names[to], way, how.hint ? ", hint" : "", status_name(bed_wait(bed, sent)));
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        fact(bed->b, "%zu%s, %s to %s, %s%s: %s, length %zu, %s, around it %d", how.length, how.sync ? " sync" : "",
             place_names[from], place_names[to], way, how.hint ? ", hint" : "", status_name(status), info.length,
             area_check(&target, WITHIN, how.length, 0, seed),
             area_is(&target, 0, WITHIN, 0x5a) && area_is(&target, WITHIN + how.length, WITHIN, 0x5a));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void context_facts(const side_t *side)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

    if (side != NULL) {
        must(side, ucp_context_query(side->context, &attr), "ucp_context_query");
        fact(side, "memory types: host %d, CUDA %d, managed %d, ROCM %d", !!(attr.memory_types & 1),
             !!(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)),
             !!(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED)),
             !!(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_ROCM)));
    }
}

static void script(bed_t *bed)
{
    static const how_t hows[] = {{8, 0, 0, 0},      {8, 1, 0, 1},      {4096, 0, 0, 1},       {4096, 1, 0, 0},
                                 {100000, 0, 0, 0}, {100000, 1, 0, 1}, {5 << 20, 0, 0, 0},    {5 << 20, 1, 0, 0},
                                 {8, 1, 1, 0},      {8, 0, 1, 0},      {100001, 1, 1, 1}, {0, 0, 0, 0}};
    bed_params_t       params = {.features = UCP_FEATURE_TAG};

    gpu_open();
    bed_open(bed, &params);
    context_facts(bed->a);
    context_facts(bed->b);
    for (int from = HOST; from < PLACES; from++) {
        for (int to = HOST; to < PLACES; to++) {
            for (size_t i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
                message(bed, (place_t)from, (place_t)to, hows[i]);
            }
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
