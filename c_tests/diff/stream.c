/*
 * Byte streams (rules.txt 2.8): order, sizes and datatypes, partial and full receives, data in library buffers, the
 * poll, data that arrives before the endpoint, the end of an endpoint, and the deprecated functions.
 *
 * Where the libraries differ and programs cannot rely on it, nothing is printed: how a stream is cut into pieces, and
 * the result of a receive of elements when more than one but not a whole number of them have arrived (UCX waits for the
 * rest of the last; rucp returns the whole ones, as the documentation says). See c_tests/misuse/stream.c for that.
 */
#define _GNU_SOURCE
#include "bed.h"
#include "layout.h"
#include "../random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ucp_request_param_t plain = {.op_attr_mask = 0};

typedef struct {
    unsigned     calls;
    ucs_status_t status;
    size_t       length;
    void        *user_data;
} call_t;

static call_t called;

static void on_received(void *request, ucs_status_t status, size_t length, void *user_data)
{
    (void)request;
    called = (call_t){called.calls + 1, status, length, user_data};
}

static void on_received_nb(void *request, ucs_status_t status, size_t length)
{
    on_received(request, status, length, NULL);
}

static void on_sent_nb(void *request, ucs_status_t status)
{
    (void)request, (void)status;
}

/* Receives exactly `length` bytes, whatever the pieces. */
static void receive_all(bed_t *bed, ucp_ep_h ep, void *buffer, size_t length)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    size_t              got   = 0;
    ucs_status_ptr_t    r     = ucp_stream_recv_nbx(ep, buffer, length, &got, &param);

    if (UCS_PTR_IS_PTR(r)) {
        BED_UNTIL(bed, ucp_stream_recv_request_test(r, &got) != UCS_INPROGRESS);
        ucp_request_free(r);
    }
    if (got != length) {
        fact(bed->b, "WAITALL %zu got %zu", length, got);
    }
}

static void send_all(bed_t *bed, const void *buffer, size_t length)
{
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, ucp_stream_send_nbx(bed->a->ep, buffer, length, &plain));
        if (status != UCS_OK) {
            fact(bed->a, "send %zu: %s", length, status_name(status));
        }
    }
}

/* Bytes have arrived at B and are not received. */
static void arrived(bed_t *bed, ucp_ep_h ep)
{
    ucp_stream_poll_ep_t ready = {.ep = NULL};

    BED_UNTIL(bed, ucp_stream_worker_poll(bed->b->worker, &ready, 1, 0) != 0);
    fact(bed->b, "the poll names the endpoint: %d", ready.ep == ep);
}

/* One message from one kind of memory into another. */
static void exchange(bed_t *bed, kind_t from, kind_t to, size_t length, unsigned flags, int early)
{
    layout_t            out, in;
    ucs_status_ptr_t    sent = NULL, received = NULL;
    size_t              got  = 0;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};

    if (bed->b != NULL) {
        layout_make(&in, to, length);
        param.datatype = in.type;
        if (early) {
            received = ucp_stream_recv_nbx(bed->b->ep, in.buffer, in.count, &got, &param);
        }
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        layout_make(&out, from, length);
        layout_fill(&out, 7);
        ucp_request_param_t send = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = out.type};
        sent = ucp_stream_send_nbx(bed->a->ep, out.buffer, out.count, &send);
    }
    if (bed->b != NULL) {
        if (!early) {
            ucp_stream_poll_ep_t ready;
            BED_UNTIL(bed, ucp_stream_worker_poll(bed->b->worker, &ready, 1, 0) != 0);
            received = ucp_stream_recv_nbx(bed->b->ep, in.buffer, in.count, &got, &param);
        }
        if (UCS_PTR_IS_PTR(received)) {
            BED_UNTIL(bed, ucp_stream_recv_request_test(received, &got) != UCS_INPROGRESS);
            ucp_request_free(received);
        }
        fact(bed->b, "%zu as %s%s: got %zu, %s", length, kind_names[to], early ? ", early" : "", got,
             layout_check(&in, length, 7));
        if (to == GENERIC) {
            fact(bed->b, "  own: unpacked %zu, finished %u, left %u, beyond %u", in.generic.unpacked,
                 in.generic.finishes, in.generic.states, in.generic.out_of_bounds);
        }
        layout_free(&in);
    }
    if (bed->a != NULL) {
        fact(bed->a, "%zu from %s: %s", length, kind_names[from], status_name(bed_wait(bed, sent)));
        layout_free(&out);
    }
    bed_sync(bed);
}

static void datatypes(bed_t *bed)
{
    static const size_t items[] = {1, 9, 100, 1000, 3000, 50000};

    for (int i = 0; i < 6; i++) {
        for (int from = 0; from < KINDS; from++) {
            for (int to = 0; to < KINDS; to++) {
                exchange(bed, from, to, items[i] * ITEM_BYTES, UCP_STREAM_RECV_FLAG_WAITALL, i % 2);
            }
        }
    }
}

/* Many sends of all sizes, received in pieces of other sizes: one sequence of bytes. */
static void order(bed_t *bed)
{
    enum { TOTAL = 8 << 20, SENDS = 4000 };
    uint8_t         *data = data_make(TOTAL, 11), *in = malloc(TOTAL);
    ucs_status_ptr_t sent[SENDS + 1];
    size_t           at = 0, got = 0;
    unsigned         sends = 0, random = 1, pending = 0;

    memset(in, 0, TOTAL);
    while ((bed->a != NULL && at < TOTAL) || (bed->b != NULL && got < TOTAL)) {
        if (bed->a != NULL && at < TOTAL) {
            size_t size = next_random(&random) % (sends % 50 == 0 ? 300000 : 3000) + 1;
            size        = size > TOTAL - at || sends >= SENDS - 1 ? TOTAL - at : size;
            sent[sends++] = ucp_stream_send_nbx(bed->a->ep, data + at, size, &plain);
            at += size;
        }
        if (bed->b != NULL && got < TOTAL) {
            size_t           length = 0, want = got % 7 == 0 ? 100000 : 1 + got % 5000;
            ucs_status_ptr_t r;
            if (got % 3 == 0) {
                void *lent = ucp_stream_recv_data_nb(bed->b->ep, &length);
                if (UCS_PTR_IS_PTR(lent)) {
                    memcpy(in + got, lent, length);
                    ucp_stream_data_release(bed->b->ep, lent);
                    got += length;
                }
            } else {
                want = want > TOTAL - got ? TOTAL - got : want;
                r    = ucp_stream_recv_nbx(bed->b->ep, in + got, want, &length, &plain);
                if (UCS_PTR_IS_PTR(r)) {
                    /* in the same process A may have nothing to send before this ends */
                    BED_UNTIL(bed, ucp_stream_recv_request_test(r, &length) != UCS_INPROGRESS ||
                                       (bed->a != NULL && at < TOTAL && pending++ >= 20));
                    if (ucp_request_check_status(r) == UCS_INPROGRESS) {
                        pending = 0;
                        sent[sends++] = ucp_stream_send_nbx(bed->a->ep, data + at, 1, &plain);
                        at++;
                        BED_UNTIL(bed, ucp_stream_recv_request_test(r, &length) != UCS_INPROGRESS);
                    }
                    ucp_request_free(r);
                }
                got += length;
            }
        }
        bed_progress(bed);
    }
    fact(bed->b, "order: %s", data_check(in, TOTAL, 11));
    unsigned failed = 0;
    for (unsigned i = 0; i < sends; i++) {
        failed += bed_wait(bed, sent[i]) != UCS_OK;
    }
    fact(bed->a, "sends failed: %u", failed);
    bed_sync(bed);
    free(data);
    free(in);
}

/* The result of a receive that completes at once, and of one that completes later. */
static void receives(bed_t *bed)
{
    char                buffer[64], data[64];
    size_t              length;
    ucs_status_ptr_t    r    = NULL, second = NULL;
    ucp_request_param_t with = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                .cb.recv_stream = on_received, .user_data = &called};
    ucp_request_param_t words = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(8)};
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL};

    called = (call_t){0};
    data_fill(data, sizeof(data), 5);
    if (bed->b != NULL) {
        length = 77;
        fact(bed->b, "nothing there, now or never: %s, length %zu",
             ptr_status_name(ucp_stream_recv_nbx(bed->b->ep, buffer, 8, &length, &force)), length);
        fact(bed->b, "nothing to lend: %s", ptr_status_name(ucp_stream_recv_data_nb(bed->b->ep, &length)));
        r      = ucp_stream_recv_nbx(bed->b->ep, buffer, 8, &length, &with);
        second = ucp_stream_recv_nbx(bed->b->ep, buffer + 8, 8, &length, &with);
        fact(bed->b, "two wait: %s %s", ptr_status_name(r), ptr_status_name(second));
        length = 77;
        fact(bed->b, "test: %s, length %zu", status_name(ucp_stream_recv_request_test(r, &length)), length);
        ucp_request_cancel(bed->b->worker, r);
        fact(bed->b, "no cancelling: %s", status_name(ucp_request_check_status(r)));
    }
    bed_sync(bed);
    send_all(bed, data, 16);
    if (bed->b != NULL) {
        BED_UNTIL(bed, called.calls == 2);
        fact(bed->b, "called: %s, %zu, user data %d", status_name(called.status), called.length,
             called.user_data == &called);
        fact(bed->b, "test: %s", status_name(ucp_stream_recv_request_test(r, &length)));
        fact(bed->b, "length %zu, %s", length, data_check(buffer, 16, 5));
        ucp_request_free(r);
        ucp_request_free(second);
    }
    bed_sync(bed);
    send_all(bed, data, 20);
    if (bed->b != NULL) {
        arrived(bed, bed->b->ep);
        r = ucp_stream_recv_nbx(bed->b->ep, buffer, 2, &length, &words);
        fact(bed->b, "2 words of 20 bytes: %s, %zu, %s", ptr_status_name(r), length, data_check(buffer, 16, 5));
        r = ucp_stream_recv_nbx(bed->b->ep, buffer, 64, &length, &plain);
        fact(bed->b, "the rest: %s, %zu", ptr_status_name(r), length);
        r = ucp_stream_recv_nbx(bed->b->ep, buffer, 1, &length, &words);
    }
    bed_sync(bed);
    /* an element that arrives in two pieces */
    send_all(bed, data, 3);
    if (bed->b != NULL) {
        for (int i = 0; i < 1000; i++) {
            bed_progress(bed);
        }
        fact(bed->b, "3 bytes of a word: %s", status_name(ucp_stream_recv_request_test(r, &length)));
    }
    bed_sync(bed);
    send_all(bed, data + 3, 5);
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, r);
        fact(bed->b, "the word: %s, %s", status_name(status), data_check(buffer, 8, 5));
    }
    bed_sync(bed);
}

/* Messages that have arrived, and a receive with room for all of them without WAITALL. It returns one message: a
 * program that expects one send per receive works on UCX 1.22. One that expects more cannot work
 * on any UCX: a receive that was posted first returns one message on each, too. For generic datatypes both releases
 * do so. */
static void portions(bed_t *bed)
{
    static const departure_t all_of_1_13 = {.name = "2.8.1", .on_1_13 = "21", .on_1_22 = "7 7 7", .on_rucp = "7 7 7",
                                            .why  = "1.13.1 gives contiguous and scattered memory all that waits"};
    static const size_t lengths[] = {ITEM_BYTES, ITEM_BYTES, ITEM_BYTES};
    enum { TOTAL = 3 * ITEM_BYTES };

    for (int kind = 0; kind < KINDS; kind++) {
        char                data[TOTAL], text[64] = "", buffer[1];
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE};
        size_t              taken = 0, got = 0;
        layout_t            in;

        data_fill(data, TOTAL, 7);
        for (int i = 0; i < 3; i++) {
            send_all(bed, data + i * ITEM_BYTES, lengths[i]);
        }
        /* bytes sent behind them arrive behind them */
        ucs_status_ptr_t sent = bed->a == NULL ? NULL : ucp_tag_send_nbx(bed->a->ep, buffer, 1, 1, &plain);
        if (bed->b != NULL) {
            bed_wait(bed, ucp_tag_recv_nbx(bed->b->worker, buffer, 1, 1, -1, &plain));
        }
        bed_wait(bed, sent);
        while (bed->b != NULL && taken < TOTAL) {
            layout_make(&in, kind, TOTAL);
            param.datatype     = in.type;
            ucs_status_ptr_t r = ucp_stream_recv_nbx(bed->b->ep, in.buffer, in.count, &got, &param);
            if (UCS_PTR_IS_PTR(r)) {
                BED_UNTIL(bed, ucp_stream_recv_request_test(r, &got) != UCS_INPROGRESS);
                ucp_request_free(r);
            }
            sprintf(text + strlen(text), "%s%zu", taken == 0 ? "" : " ", got);
            taken += got;
            layout_free(&in);
        }
        if (bed->b != NULL && kind == GENERIC) {
            rule(bed->b, "2.8.1", "own: %s", text);
        } else if (bed->b != NULL) {
            rule_departs(bed->b, &all_of_1_13, text);
        }
        bed_sync(bed);
    }
}

/* The poll names endpoints once, and again only for new bytes. */
static void polling(bed_t *bed)
{
    ucp_stream_poll_ep_t ready[4];
    char                 data[64] = {0};
    size_t               length;

    bed_sync(bed);
    send_all(bed, data, 8);
    if (bed->b != NULL) {
        arrived(bed, bed->b->ep);
        fact(bed->b, "told once: %zd", ucp_stream_worker_poll(bed->b->worker, ready, 4, 0));
    }
    bed_sync(bed);
    send_all(bed, data, 8);
    if (bed->b != NULL) {
        arrived(bed, bed->b->ep);
        receive_all(bed, bed->b->ep, data, 16);
        fact(bed->b, "none left: %zd", ucp_stream_worker_poll(bed->b->worker, ready, 4, 0));
    }
    bed_sync(bed);
    send_all(bed, data, 8);
    if (bed->b != NULL) {
        void *lent = NULL;
        BED_UNTIL(bed, (lent = ucp_stream_recv_data_nb(bed->b->ep, &length)) != NULL);
        fact(bed->b, "lent %zu, poll %zd", length, ucp_stream_worker_poll(bed->b->worker, ready, 4, 0));
        ucp_stream_data_release(bed->b->ep, lent);
    }
    bed_sync(bed);
}

/* Endpoints of their own; bytes that arrive before B has created its endpoint wait for it, and endpoints do not mix. */
static void early_data(bed_t *bed, const char *to_b, const char *to_a)
{
    enum { MORE = 3, BYTES = 100000 };
    ucp_ep_h             eps[MORE];
    ucp_stream_poll_ep_t ready[MORE];
    ucs_status_ptr_t     sent[MORE];
    uint8_t             *data[MORE];
    ssize_t              named = 0;

    if (bed->topology == TOPOLOGY_SELF) {
        return; /* a loopback endpoint needs no other end */
    }
    for (int i = 0; bed->a != NULL && i < MORE; i++) {
        eps[i]     = bed_connect(bed->a, to_b);
        data[i]    = data_make(BYTES, 3);
        data[i][0] = (uint8_t)i;
        sent[i]    = ucp_stream_send_nbx(eps[i], data[i], i == 0 ? 1 : BYTES, &plain);
        for (int turn = 0; turn < 1000; turn++) {
            bed_progress(bed);
        }
        fact(bed->a, "early send %d: %s", i,
             status_name(bed->topology == TOPOLOGY_PAIR ? UCS_OK : bed_wait(bed, sent[i])));
    }
    bed_sync(bed);
    if (bed->b != NULL) {
        ucp_ep_h mine[MORE];
        fact(bed->b, "before the endpoints: %zd", ucp_stream_worker_poll(bed->b->worker, ready, MORE, 0));
        for (int i = 0; i < MORE; i++) {
            mine[i] = bed_connect(bed->b, to_a);
        }
        BED_UNTIL(bed, (named += ucp_stream_worker_poll(bed->b->worker, ready, MORE, 0)) >= MORE);
        for (int i = 0; i < MORE; i++) {
            uint8_t in[8] = {99};
            receive_all(bed, mine[i], in, 1);
            fact(bed->b, "endpoint %d got %d", i, in[0]);
        }
        for (int i = 1; i < MORE; i++) {
            uint8_t *in = malloc(BYTES);
            receive_all(bed, mine[i], in + 1, BYTES - 1);
            fact(bed->b, "endpoint %d: %s", i, data_check_at(in + 1, 1, BYTES - 1, 3));
            free(in);
        }
        bed_sync(bed);
        for (int i = 0; i < MORE; i++) {
            bed_disconnect(bed, mine[i]);
        }
    } else {
        bed_sync(bed);
    }
    for (int i = 0; bed->a != NULL && i < MORE; i++) {
        if (bed->topology == TOPOLOGY_PAIR) {
            bed_wait(bed, sent[i]);
        }
        bed_disconnect(bed, eps[i]);
        free(data[i]);
    }
    bed_sync(bed);
}

/* The deprecated functions. */
static void deprecated(bed_t *bed)
{
    char             buffer[32], data[32];
    size_t           length = 0;
    ucs_status_ptr_t r      = NULL;

    called = (call_t){0};
    data_fill(data, sizeof(data), 9);
    if (bed->b != NULL) {
        r = ucp_stream_recv_nb(bed->b->ep, buffer, 4, ucp_dt_make_contig(8), on_received_nb, &length,
                               UCP_STREAM_RECV_FLAG_WAITALL);
        fact(bed->b, "recv_nb: %s", ptr_status_name(r));
    }
    bed_sync(bed);
    for (int i = 0; bed->a != NULL && i < 4; i++) {
        ucs_status_ptr_t sent =
            ucp_stream_send_nb(bed->a->ep, data + 8 * i, 1, ucp_dt_make_contig(8), on_sent_nb, 0);
        fact(bed->a, "send_nb: %s", status_name(bed_wait(bed, sent)));
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, called.calls != 0);
        fact(bed->b, "called %u: %s, %zu, %s", called.calls, status_name(called.status), called.length,
             data_check(buffer, 32, 9));
        ucp_request_free(r);
    }
    bed_sync(bed);
}

/* Pending receives are canceled when their endpoint is closed (by UCX over TCP a little later than by others). */
static void closing(bed_t *bed, const char *to_b, const char *to_a)
{
    ucp_request_param_t with = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv_stream = on_received};
    char                buffer[8];
    size_t              length;
    ucp_ep_h            ep = NULL;

    called = (call_t){0};
    if (bed->b != NULL) {
        ep                 = bed_connect(bed->b, to_a);
        ucs_status_ptr_t r = ucp_stream_recv_nbx(ep, buffer, 8, &length, &with);
        ucs_status_ptr_t closed = ucp_ep_close_nbx(ep, &plain);
        bed_wait(bed, closed);
        BED_UNTIL(bed, called.calls != 0);
        fact(bed->b, "closed: called %u, %s, %zu", called.calls, status_name(called.status), called.length);
        fact(bed->b, "status: %s", status_name(ucp_request_check_status(r)));
        ucp_request_free(r);
    }
    (void)to_b;
    bed_sync(bed);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_STREAM | UCP_FEATURE_TAG};
    char         to_b[BED_ADDRESS_MAX], to_a[BED_ADDRESS_MAX];

    bed_open(bed, &params);
    bed_exchange_addresses(bed, to_b, to_a);
    early_data(bed, to_b, to_a);
    receives(bed);
    portions(bed);
    polling(bed);
    deprecated(bed);
    datatypes(bed);
    order(bed);
    if (bed->topology != TOPOLOGY_SELF) {
        closing(bed, to_b, to_a); /* UCX 1.22 crashes later when it was a loopback endpoint */
    }
    bed_close(bed);
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
