/* Active messages, short and by rendezvous, with and without a header, and streams, between all kinds of memory. */
#include "gpu.h"

#include <string.h>

#define ID 5

static struct {
    ucp_worker_h     worker;
    area_t           target;
    size_t           length;
    unsigned         seed;
    volatile int     calls;
    int              rendezvous, header_good;
    const char      *found;
    ucs_status_ptr_t receiving;
} receiver;

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *attr)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    (void)arg;
    receiver.header_good = header_length == 0 || (header_length == 6 && memcmp(header, "header", 6) == 0);
    receiver.length      = length;
    receiver.rendezvous  = (attr->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (receiver.rendezvous) {
        receiver.receiving = ucp_am_recv_data_nbx(receiver.worker, data, receiver.target.memory, length, &param);
    } else { /* the library's memory is the host's */
        receiver.found = data_check(data, length, receiver.seed);
    }
    receiver.calls++;
    return receiver.rendezvous ? UCS_INPROGRESS : UCS_OK;
}

static void message(bed_t *bed, place_t from, place_t to, size_t length, uint32_t flags, size_t header_length)
{
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    area_t              source = area_make(bed->a, from, length);
    ucs_status_ptr_t    sent;

    receiver.target    = area_make(bed->b, to, length);
    receiver.seed      = (unsigned)length + 4 * from + to;
    receiver.calls     = 0;
    receiver.receiving = NULL;
    area_fill(&source, 0, length, receiver.seed);
    area_set(&receiver.target, 0);
    bed_sync(bed);
    const char *way = flags & UCP_AM_SEND_FLAG_RNDV ? "rendezvous" : "eager";
    if (bed->a != NULL) {
        sent = ucp_am_send_nbx(bed->a->ep, ID, "header", header_length, source.memory, length, &param);
        fact(bed->a, "am %zu, %s to %s, %s, header %zu: %s", length, place_names[from], place_names[to], way,
             header_length, status_name(bed_wait(bed, sent)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, receiver.calls == 1);
        ucs_status_t status = UCS_OK;
        if (receiver.rendezvous) {
            status         = bed_wait(bed, receiver.receiving);
            receiver.found = area_check(&receiver.target, 0, length, 0, receiver.seed);
        }
        fact(bed->b, "am %zu, %s to %s, %s, header %zu: %s, length %zu, %s, header %d, rendezvous %d", length,
             place_names[from], place_names[to], way, header_length, status_name(status), receiver.length,
             receiver.found, receiver.header_good, receiver.rendezvous);
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&receiver.target);
}

static void stream(bed_t *bed, place_t from, place_t to, size_t length)
{
    ucp_request_param_t sending = {.op_attr_mask = 0};
    ucp_request_param_t all     = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    area_t              source  = area_make(bed->a, from, length);
    area_t              target  = area_make(bed->b, to, length);
    unsigned            seed    = (unsigned)length + 4 * from + to;
    size_t              received = 0;

    area_fill(&source, 0, length, seed);
    area_set(&target, 0);
    bed_sync(bed);
    if (bed->a != NULL) {
        fact(bed->a, "stream %zu, %s to %s: %s", length, place_names[from], place_names[to],
             status_name(bed_wait(bed, ucp_stream_send_nbx(bed->a->ep, source.memory, length, &sending))));
    }
    if (bed->b != NULL) {
        ucs_status_t status =
            bed_wait(bed, ucp_stream_recv_nbx(bed->b->ep, target.memory, length, &received, &all));
        fact(bed->b, "stream %zu, %s to %s: %s, %s", length, place_names[from], place_names[to], status_name(status),
             area_check(&target, 0, length, 0, seed));
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t           params  = {.features = UCP_FEATURE_AM | UCP_FEATURE_STREAM};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = ID, .cb = on_message};
    static const size_t    lengths[] = {8, 4096, 100000, 5 << 20};

    gpu_open();
    bed_open(bed, &params);
    if (bed->b != NULL) {
        receiver.worker = bed->b->worker;
        must(bed->b, ucp_worker_set_am_recv_handler(bed->b->worker, &handler), "set handler");
    }
    bed_sync(bed);
    for (int from = HOST; from < PLACES; from++) {
        for (int to = HOST; to < PLACES; to++) {
            for (int i = 0; i < 4; i++) {
                message(bed, (place_t)from, (place_t)to, lengths[i], UCP_AM_SEND_FLAG_RNDV, i & 1 ? 6 : 0);
                stream(bed, (place_t)from, (place_t)to, lengths[i]);
                if (i < 2) {
                    message(bed, (place_t)from, (place_t)to, lengths[i], UCP_AM_SEND_FLAG_EAGER, i & 1 ? 0 : 6);
                }
            }
        }
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
