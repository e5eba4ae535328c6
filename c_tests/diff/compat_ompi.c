/* The calls of Open MPI's point-to-point and one-sided layers, old functions and all, in their order. */
#define _GNU_SOURCE
#include "bed.h"
#include "generic.h"
#include "window.h"

#include <stdlib.h>
#include <string.h>

#define ANY_SOURCE_MASK 0xffff00000000ffffull

/* An MPI request, built once per element of the pool. */
typedef struct {
    uint64_t            magic;
    volatile int        complete;
    ucs_status_t        status;
    ucp_tag_recv_info_t info;
} mpi_request_t;

#define MAGIC 0x4d50492072657175

static volatile unsigned bad_magic;

static void request_init(void *request)
{
    *(mpi_request_t *)request = (mpi_request_t){.magic = MAGIC};
}

static void request_cleanup(void *request)
{
    bad_magic += ((mpi_request_t *)request)->magic != MAGIC;
}

static void on_send(void *request, ucs_status_t status)
{
    mpi_request_t *mpi = request;

    bad_magic += mpi->magic != MAGIC;
    mpi->status   = status;
    mpi->complete = 1;
}

static void on_receive(void *request, ucs_status_t status, ucp_tag_recv_info_t *info)
{
    ((mpi_request_t *)request)->info = *info;
    on_send(request, status);
}

/* MPI_Wait and then MPI_Request_free. */
static ucs_status_t mpi_wait(bed_t *bed, void *request, ucp_tag_recv_info_t *info)
{
    mpi_request_t *mpi = request;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    BED_UNTIL(bed, mpi->complete);
    ucs_status_t status = mpi->status;
    if (info != NULL) {
        *info = mpi->info;
    }
    mpi->complete = 0;
    ucp_request_release(request);
    return status;
}

/* Memory for a request that the library does not allocate, as on the stack of a blocking MPI_Send. */
static void *stack_request(bed_t *bed)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};
    side_t            *side = bed->a != NULL ? bed->a : bed->b;

    must(side, ucp_context_query(side->context, &attr), "ucp_context_query");
    return (char *)calloc(1, attr.request_size + sizeof(mpi_request_t)) + attr.request_size;
}

static void stack_request_free(bed_t *bed, void *request)
{
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE};

    ucp_context_query(bed->a != NULL ? bed->a->context : bed->b->context, &attr);
    free((char *)request - attr.request_size);
}

/* MPI_Send and MPI_Recv. */
static void blocking_facts(bed_t *bed, size_t size)
{
    char               *out = data_make(size, 1), *in = malloc(size + 1);
    void               *send_request = stack_request(bed), *receive_request = stack_request(bed);
    ucp_tag_recv_info_t info = {0};
    ucs_status_t        sent = UCS_OK, received = UCS_OK;

    if (bed->b != NULL) {
        received = ucp_tag_recv_nbr(bed->b->worker, in, size, ucp_dt_make_contig(1), 0x10000, ANY_SOURCE_MASK,
                                    receive_request);
    }
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbr(bed->a->ep, out, size, ucp_dt_make_contig(1), 0x7770000, send_request);
    }
    if (bed->b != NULL) {
        fact(bed->b, "recv_nbr: %s", status_name(received));
        BED_UNTIL(bed, (received = ucp_request_test(receive_request, &info)) != UCS_INPROGRESS);
        fact(bed->b, "blocking receive %zu: %s, tag %#lx, length %zu, data %s", size, status_name(received),
             (long)info.sender_tag, info.length, data_check(in, size, 1));
    }
    if (bed->a != NULL) {
        if (sent == UCS_INPROGRESS) {
            BED_UNTIL(bed, (sent = ucp_request_check_status(send_request)) != UCS_INPROGRESS);
        }
        fact(bed->a, "blocking send %zu: %s", size, status_name(sent));
    }
    bed_sync(bed);
    stack_request_free(bed, send_request);
    stack_request_free(bed, receive_request);
    free(out);
    free(in);
}

/*
 * MPI_Recv of a later release: the request is its own, the result of the call is ignored, and the request is tested
 * for completion, which must succeed also when the message had arrived before.
 */
static void ignored_result_facts(bed_t *bed, size_t size, int expected)
{
    char               *out = data_make(size, 4), *in = malloc(size + 1);
    void               *request = stack_request(bed), *sent = NULL;
    ucp_tag_recv_info_t info   = {0};
    ucp_request_param_t param  = {.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST, .request = request};
    ucs_status_t        status = UCS_OK;

    if (bed->b != NULL && expected) {
        ucp_tag_recv_nbx(bed->b->worker, in, size, 0x8, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = ucp_tag_send_nb(bed->a->ep, out, size, ucp_dt_make_contig(1), 0x8, on_send);
    }
    if (bed->b != NULL) {
        if (!expected) {
            BED_UNTIL(bed, ucp_tag_probe_nb(bed->b->worker, 0x8, -1, 0, &info) != NULL);
            info.length = 0;
            ucp_tag_recv_nbx(bed->b->worker, in, size, 0x8, -1, &param);
        }
        BED_UNTIL(bed, (status = ucp_request_test(request, &info)) != UCS_INPROGRESS);
        fact(bed->b, "not looked at, %zu: %s, tag %#lx, length %zu, data %s", size, status_name(status),
             (long)info.sender_tag, info.length, data_check(in, size, 4));
    }
    fact(bed->a, "sent: %s", status_name(mpi_wait(bed, sent, NULL)));
    bed_sync(bed);
    stack_request_free(bed, request);
    free(out);
    free(in);
}

/* MPI_Isend, MPI_Issend and MPI_Irecv, with a generic datatype in every other message. */
static void nonblocking_facts(bed_t *bed, size_t items)
{
    generic_t out_type, in_type;
    size_t    span = generic_span(items);
    char     *out = data_make(span, 2), *in = calloc(1, span + 1);
    void     *sent[2] = {NULL}, *received[2] = {NULL};

    generic_create(&out_type);
    generic_create(&in_type);
    if (bed->b != NULL) {
        received[0] = ucp_tag_recv_nb(bed->b->worker, in, items, in_type.type, 0x5, -1, on_receive);
    }
    if (bed->a != NULL) {
        sent[0] = ucp_tag_send_nb(bed->a->ep, out, items, out_type.type, 0x5, on_send);
        sent[1] = ucp_tag_send_sync_nb(bed->a->ep, out, span, ucp_dt_make_contig(1), 0x6, on_send);
    }
    if (bed->b != NULL) {
        ucp_tag_recv_info_t info = {0};
        ucs_status_t        status = mpi_wait(bed, received[0], &info);
        int                 good = 1;
        for (size_t i = 0; i < items; i++) {
            good = good && data_check_at(in + i * ITEM_STRIDE, i * ITEM_STRIDE, ITEM_BYTES, 2)[0] == 'g';
        }
        fact(bed->b, "own datatype, %zu: %s, length %zu, good %d, finished %u", items, status_name(status), info.length,
             good, in_type.finishes);
        received[1] = ucp_tag_recv_nb(bed->b->worker, in, span, ucp_dt_make_contig(1), 0x6, -1, on_receive);
        status      = mpi_wait(bed, received[1], &info);
        fact(bed->b, "synchronous: %s, length %zu, data %s", status_name(status), info.length,
             data_check(in, span, 2));
    }
    if (bed->a != NULL) {
        fact(bed->a, "send_nb: %s", status_name(mpi_wait(bed, sent[0], NULL)));
        fact(bed->a, "send_sync_nb: %s", status_name(mpi_wait(bed, sent[1], NULL)));
        fact(bed->a, "finished %u", out_type.finishes);
    }
    bed_sync(bed);
    generic_destroy(&out_type);
    generic_destroy(&in_type);
    free(out);
    free(in);
}

/* MPI_Improbe and MPI_Imrecv; MPI_Cancel. */
static void probe_facts(bed_t *bed, size_t size)
{
    char               *out = data_make(size, 3), *in = malloc(size + 1);
    void               *sent = NULL;
    ucp_tag_recv_info_t info;
    ucp_tag_message_h   message;

    if (bed->a != NULL) {
        sent = ucp_tag_send_nb(bed->a->ep, out, size, ucp_dt_make_contig(1), 0x70000, on_send);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, (message = ucp_tag_probe_nb(bed->b->worker, 0x70000, ANY_SOURCE_MASK, 1, &info)) != NULL);
        fact(bed->b, "probed %zu", info.length);
        void        *received = ucp_tag_msg_recv_nb(bed->b->worker, in, size, ucp_dt_make_contig(1), message,
                                                    on_receive);
        ucs_status_t status   = mpi_wait(bed, received, &info);
        fact(bed->b, "matched receive: %s, data %s", status_name(status), data_check(in, size, 3));
        received = ucp_tag_recv_nb(bed->b->worker, in, size, ucp_dt_make_contig(1), 0x71, -1, on_receive);
        ucp_request_cancel(bed->b->worker, received);
        fact(bed->b, "canceled: %s", status_name(mpi_wait(bed, received, NULL)));
    }
    fact(bed->a, "sent: %s", status_name(mpi_wait(bed, sent, NULL)));
    bed_sync(bed);
    free(out);
    free(in);
}

/* MPI_Win_create and its accesses: puts, gets, atomics without waiting, then a flush. */
static void one_sided_facts(bed_t *bed, window_kind_t kind)
{
    window_t window;
    uint64_t values[4] = {1, 2, 3, 4}, fetched[4] = {0};
    int      fine = 1;

    window_open(bed, &window, kind, 4096);
    if (bed->a != NULL) {
        void *requests[3];
        for (unsigned i = 0; i < 4; i++) {
            fine = fine && ucp_put_nbi(bed->a->ep, &values[i], 8, window.remote + i * 8, window.rkey) >= 0;
        }
        fact(bed->a, "put_nbi: %d, flush %s", fine,
             status_name(mpi_wait(bed, ucp_ep_flush_nb(bed->a->ep, 0, on_send), NULL)));
        fine        = ucp_atomic_post(bed->a->ep, UCP_ATOMIC_POST_OP_ADD, 10, 8, window.remote, window.rkey) >= 0;
        requests[0] = ucp_atomic_fetch_nb(bed->a->ep, UCP_ATOMIC_FETCH_OP_FADD, 5, &fetched[0], 8, window.remote + 8,
                                          window.rkey, on_send);
        requests[1] = ucp_atomic_fetch_nb(bed->a->ep, UCP_ATOMIC_FETCH_OP_SWAP, 6, &fetched[1], 8, window.remote + 16,
                                          window.rkey, on_send);
        fetched[2]  = 40;
        requests[2] = ucp_atomic_fetch_nb(bed->a->ep, UCP_ATOMIC_FETCH_OP_CSWAP, 4, &fetched[2], 8,
                                          window.remote + 24, window.rkey, on_send);
        for (int i = 0; i < 3; i++) {
            ucs_status_t status = mpi_wait(bed, requests[i], NULL);
            fact(bed->a, "fetch %d: %s, %d", i, status_name(status), (int)fetched[i]);
        }
        fact(bed->a, "post: %d, worker flush %s", fine,
             status_name(mpi_wait(bed, ucp_worker_flush_nb(bed->a->worker, 0, on_send), NULL)));
        memset(values, 0, sizeof(values));
        fine = ucp_get_nbi(bed->a->ep, values, 32, window.remote, window.rkey) >= 0;
        mpi_wait(bed, ucp_ep_flush_nb(bed->a->ep, 0, on_send), NULL);
        fact(bed->a, "got %d %d %d %d, fine %d", (int)values[0], (int)values[1], (int)values[2], (int)values[3], fine);
    }
    window_close(bed, &window);
}

static void script(bed_t *bed)
{
    bed_params_t params = {
        .features        = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64,
        .request_size    = sizeof(mpi_request_t),
        .request_init    = request_init,
        .request_cleanup = request_cleanup,
    };
    static const size_t sizes[] = {0, 4, 1000, 8192, 70000, 1 << 20};

    bed_open(bed, &params);
    for (int i = 0; i < 6; i++) {
        if (bed->topology == TOPOLOGY_FORK || sizes[i] <= 1000) {
            blocking_facts(bed, sizes[i]);
        }
        ignored_result_facts(bed, sizes[i], 1);
        ignored_result_facts(bed, sizes[i], 0);
        nonblocking_facts(bed, sizes[i] / 7 + 1);
        probe_facts(bed, sizes[i]);
    }
    one_sided_facts(bed, WINDOW_ALLOCATED);
    one_sided_facts(bed, WINDOW_MALLOCED);
    if (bed->a != NULL) {
        /* No callback reports this one. */
        fact(bed->a, "disconnect: %s", status_name(bed_wait(bed, ucp_disconnect_nb(bed->a->ep))));
        bed->a->ep = NULL;
    }
    bed_close(bed);
    fact(bed->a, "requests overwritten: %u", bad_magic);
    fact(bed->b, "requests overwritten: %u", bad_magic);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
