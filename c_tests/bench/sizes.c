//! Messages by size: ping-pong latency, windowed bandwidth and rate of tag, active and stream messages; windowed
//! bandwidth of long active messages that are sent as eager ones.
#include "pair.h"

#include <stdio.h>
#include <string.h>

enum { WINDOW = 64, LARGE = 256 << 10, LARGE_WINDOW = 16, TAG = 1, AM_ID = 1 };

/** One kind of message. Receives are waited for in the order in which they were posted. */
struct way {
    const char *name;
    uint64_t feature;
    ucs_status_ptr_t (*send)(struct side *, size_t);
    ucs_status_ptr_t (*post)(struct side *, size_t);
    void (*wait)(struct side *, ucs_status_ptr_t);
};

static const struct way am_eager;
static const struct way *way; /* the one that is measured */
static int keeps_messages;    /* eager active messages are copied into the buffer, so that they can be compared */

/* ---- tag ---- */

static ucs_status_ptr_t tag_send(struct side *side, size_t size)
{
    return ucp_tag_send_nbx(side->ep, side->buffer, size, TAG, &plain);
}

static ucs_status_ptr_t tag_post(struct side *side, size_t size)
{
    return ucp_tag_recv_nbx(side->worker, side->buffer, size, TAG, (ucp_tag_t)-1, &plain);
}

static void wait_request(struct side *side, ucs_status_ptr_t request)
{
    wait_for(side, request, "receive");
}

/* ---- active messages: small ones are checked in place, large ones fetched into the buffer ---- */

static void on_data(void *request, ucs_status_t status, size_t length, void *side)
{
    (void)length;
    check(status, "ucp_am_recv_data_nbx");
    ((struct side *)side)->am_arrived++;
    ucp_request_free(request);
}

static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *message)
{
    struct side *side = argument;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb.recv_am = on_data,
                                 .user_data = side};
    ucs_status_ptr_t request;

    (void)header, (void)header_length;
    if (!(message->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        if (keeps_messages) {
            memcpy(side->buffer, data, length);
        }
        side->am_arrived++;
        return UCS_OK;
    }
    if (way == &am_eager) {
        die("an eager message of %zu bytes arrived as a rendezvous", length);
    }
    request = ucp_am_recv_data_nbx(side->worker, data, side->buffer, length, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        check(UCS_PTR_STATUS(request), "ucp_am_recv_data_nbx");
        side->am_arrived++;
    }
    return UCS_INPROGRESS;
}

static ucs_status_ptr_t am_send(struct side *side, size_t size)
{
    return ucp_am_send_nbx(side->ep, AM_ID, NULL, 0, side->buffer, size, &plain);
}

static ucs_status_ptr_t am_send_eager(struct side *side, size_t size)
{
    static const ucp_request_param_t eager = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};

    return ucp_am_send_nbx(side->ep, AM_ID, NULL, 0, side->buffer, size, &eager);
}

static ucs_status_ptr_t am_post(struct side *side, size_t size)
{
    (void)side, (void)size;
    return NULL;
}

static void am_wait(struct side *side, ucs_status_ptr_t request)
{
    (void)request;
    side->am_awaited++;
    while (side->am_arrived < side->am_awaited) {
        ucp_worker_progress(side->worker);
    }
}

/* ---- stream ---- */

static ucs_status_ptr_t stream_send(struct side *side, size_t size)
{
    return ucp_stream_send_nbx(side->ep, side->buffer, size, &plain);
}

static ucs_status_ptr_t stream_post(struct side *side, size_t size)
{
    static const ucp_request_param_t all = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                            .flags = UCP_STREAM_RECV_FLAG_WAITALL};
    size_t length;

    return ucp_stream_recv_nbx(side->ep, side->buffer, size, &length, &all);
}

static const struct way ways[] = {
    {"tag", UCP_FEATURE_TAG, tag_send, tag_post, wait_request},
    {"am", UCP_FEATURE_AM, am_send, am_post, am_wait},
    {"stream", UCP_FEATURE_STREAM, stream_send, stream_post, wait_request},
};

/** The receiver gets all of such a message in its handler, however long it is, and checks it in place. */
static const struct way am_eager = {"am_eager", UCP_FEATURE_AM, am_send_eager, am_post, am_wait};

/* ---- batches ---- */

static void ping_pong(struct side *side, size_t size, long rounds)
{
    for (long i = 0; i < rounds; i++) {
        if (side->place.index == 0) {
            wait_for(side, way->send(side, size), "send");
        }
        way->wait(side, way->post(side, size));
        if (side->place.index == 1) {
            wait_for(side, way->send(side, size), "send");
        }
    }
}

static int window_of(size_t size)
{
    return size < LARGE ? WINDOW : LARGE_WINDOW;
}

/** Windows of sends to receives of the same number, one small acknowledgement for each window. */
static void stream_of(struct side *side, size_t size, long rounds)
{
    ucs_status_ptr_t requests[WINDOW];
    int window = window_of(size);

    for (long round = 0; round < rounds; round++) {
        for (int i = 0; i < window; i++) {
            requests[i] = side->place.index == 0 ? way->send(side, size) : way->post(side, size);
        }
        for (int i = 0; i < window; i++) {
            if (side->place.index == 0) {
                wait_for(side, requests[i], "send");
            } else {
                way->wait(side, requests[i]);
            }
        }
        if (side->place.index == 0) {
            way->wait(side, way->post(side, 1));
        } else {
            wait_for(side, way->send(side, 1), "acknowledgement");
        }
    }
}

/* ---- the workload ---- */

/** Figures of an exchange that loses data mean nothing: checks every byte of one message of each protocol. */
static void verify(struct side *side, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        side->buffer[i] = side->place.index == 0 ? (unsigned char)(i * 7 + (i >> 8)) : 0;
    }
    meet_other(side);
    keeps_messages = 1;
    if (side->place.index == 0) {
        wait_for(side, way->send(side, size), "send");
    } else {
        way->wait(side, way->post(side, size));
    }
    keeps_messages = 0;
    meet_other(side);
    for (size_t i = 0; i < size; i++) {
        if (side->buffer[i] != (unsigned char)(i * 7 + (i >> 8))) {
            die("%s: wrong data at byte %zu of %zu", way->name, i, size);
        }
    }
}

/** A library may lack a whole kind; both sides detect that. */
static int is_supported(struct side *side)
{
    ucs_status_ptr_t request = way->send(side, 1);

    if (UCS_PTR_IS_ERR(request) && UCS_PTR_STATUS(request) == UCS_ERR_UNSUPPORTED) {
        return 0;
    }
    way->wait(side, way->post(side, 1));
    wait_for(side, request, "send");
    return 1;
}

static void report(const char *what, size_t size, double value, const char *unit)
{
    char name[64];

    snprintf(name, sizeof(name), "%s_%s", way->name, what);
    figure(name, (long)size, value, unit);
}

static void report_bandwidth(size_t size, double message)
{
    report("bandwidth", size, (double)size / message / 1e6, "MB/s");
}

static void measure_size(struct side *side, size_t size)
{
    double round_trip = seconds_per_round(side, ping_pong, size);
    double message = seconds_per_round(side, stream_of, size) / window_of(size);

    if (side->place.index == 0) {
        report("latency", size, round_trip / 2 * 1e6, "us");
        report("bandwidth_pingpong", size, (double)size / (round_trip / 2) / 1e6, "MB/s");
        report_bandwidth(size, message);
        if (size <= 64) {
            report("rate", size, 1e-6 / message, "M/s");
        }
    }
}

static void measure_long_eager(struct side *side)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 4 << 20};

    way = &am_eager;
    verify(side, LARGEST);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        if (measures_size(side->effort, sizes[i])) {
            double message = seconds_per_round(side, stream_of, sizes[i]) / window_of(sizes[i]);

            if (side->place.index == 0) {
                report_bandwidth(sizes[i], message);
            }
        }
    }
}

static void play(struct place place, void *effort)
{
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = AM_ID,
                                      .cb = on_message};
    struct side side;

    open_side(&side, place, effort, way->feature);
    if (way->feature == UCP_FEATURE_AM) {
        handler.arg = &side;
        check(ucp_worker_set_am_recv_handler(side.worker, &handler), "ucp_worker_set_am_recv_handler");
    }
    meet_other(&side);
    if (is_supported(&side)) {
        verify(&side, 300);
        verify(&side, LARGEST);
        for (size_t size = 1; size <= LARGEST; size *= 2) {
            if (measures_size(side.effort, size)) {
                measure_size(&side, size);
            }
        }
        if (way->feature == UCP_FEATURE_AM) {
            measure_long_eager(&side);
        }
    } else if (place.index == 0) {
        printf("# unsupported: %s\n", way->name);
    }
    close_side(&side);
}

int run_sizes(const struct effort *effort, int argc, char **argv)
{
    (void)argc;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        if (strcmp(argv[0], ways[i].name) == 0) {
            way = &ways[i];
        }
    }
    return start_pair(play, (void *)effort);
}
