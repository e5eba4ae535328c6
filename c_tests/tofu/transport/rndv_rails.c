/*
 * Long messages over several network interfaces: UCX_TOFU_VCQS_PER_WORKER is RAILS and UCX_MAX_RNDV_RAILS no less.
 * Tagged and active ones, whether they are expected or unexpected. One part that fails ends the receive and the
 * connection, and no request ends before all of its parts.
 */
#include "multi_vcq.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Tagged, to a posted receive and to a later one; active, received in the handler and afterwards. */
enum { TAG, TAG_LATER, ACTIVE, ACTIVE_LATER, KINDS };
enum { ID = 3, EDGE = 64, UNTOUCHED = 0xEE };

static const char *names[] = {"tag", "tag, unexpected", "active", "active, received later"};

/* State of the active message handler. */
static void            *kept;
static unsigned char   *into;
static size_t           expected;
static ucs_status_ptr_t receiving;

static ucs_status_t on_active(void *arg, const void *header, size_t header_length, void *data, size_t length,
                              const ucp_am_recv_param_t *param)
{
    (void)arg;
    WANT_TRUE(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    WANT_TRUE(header_length == 6 && memcmp(header, "header", 6) == 0 && length == expected);
    if (into != NULL) {
        receiving = ucp_am_recv_data_nbx(peer, data, into, length, &none);
    }
    kept = data;
    return UCS_INPROGRESS;
}

static void open_messages(void)
{
    ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                    .id         = ID,
                                    .cb         = on_active};

    open_all();
    WANT(UCS_OK, ucp_worker_set_am_recv_handler(peer, &param));
}

/* Sends, and waits for the RTS; for an expected message posts the receive first. */
static ucs_status_ptr_t send_announced(ucp_ep_h from, int kind, const void *data, unsigned char *target, size_t size)
{
    ucp_tag_recv_info_t info;
    ucs_status_ptr_t    sent;
    time_t              end   = time(NULL) + SECONDS;
    int                 later = kind == TAG_LATER || kind == ACTIVE_LATER;

    (kept = NULL, into = later ? NULL : target, expected = size, receiving = NULL);
    if (kind == TAG) {
        receiving = ucp_tag_recv_nbx(peer, target, size, 1, ~0ull, &none);
    }
    if (kind == TAG || kind == TAG_LATER) {
        sent = ucp_tag_send_nbx(from, data, size, 1, &none);
    } else {
        sent = ucp_am_send_nbx(from, ID, "header", 6, data, size, &none);
    }
    while (kind != TAG && kept == NULL && ucp_tag_probe_nb(peer, 1, ~0ull, 0, &info) == NULL && time(NULL) < end) {
        progress();
    }
    return sent;
}

/* Receives an announced message. */
static ucs_status_ptr_t receive(int kind, unsigned char *target, size_t size)
{
    switch (kind) {
    case TAG_LATER:
        return ucp_tag_recv_nbx(peer, target, size, 1, ~0ull, &none);
    case ACTIVE_LATER:
        return ucp_am_recv_data_nbx(peer, kept, target, size, &none);
    default:
        return receiving;
    }
}

static void pass(int kind, const unsigned char *data, unsigned char *target, size_t size)
{
    ucs_status_ptr_t sent = send_announced(ep, kind, data, target, size);

    WANT(UCS_OK, settle(receive(kind, target, size)));
    WANT(UCS_OK, settle(sent));
}

/* Whether all of these bytes have one value. */
static int all(const unsigned char *bytes, size_t size, unsigned char value)
{
    return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Of each kind: at the threshold, of odd lengths, and of random ones. */
static void messages(void)
{
    static const size_t sizes[]          = {(64 << 10) - 1, 64 << 10,     (64 << 10) + 1, (96 << 10) + 3,
                                            LONG,           LONG + 12345, SIZE - 2 * EDGE};
    unsigned char      *received_data    = fresh(0);
    unsigned long       before[MOST], gets;
    unsigned            seed = 1;

    open_messages();
    for (int kind = 0; kind < KINDS; kind++) {
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            size_t         size   = sizes[i];
            unsigned       shares = interfaces_of(size);
            unsigned char *from = own + seed * 7 % EDGE, *to = received_data + EDGE - seed * 5 % EDGE;

            pattern(from, size, seed++);
            memset(received_data, UNTOUCHED, SIZE);
            carried(before);
            gets = counter("gets");
            pass(kind, from, to, size);
            want_carried(names[kind], before, shares, size / shares);
            WANT_TRUE(counter("gets") == gets + shares);
            WANT_TRUE(memcmp(from, to, size) == 0);
            WANT_TRUE(all(received_data, (size_t)(to - received_data), UNTOUCHED));
            WANT_TRUE(all(to + size, (size_t)(received_data + SIZE - to) - size, UNTOUCHED));
        }
    }
    close_all();
    munmap(received_data, SIZE);
}

/* Many at once, of which some are pending, in both orders. */
static void many(void)
{
    enum { ALL = 32, STEP = 200 << 10 };
    ucs_status_ptr_t sent[ALL], received[ALL];
    unsigned char   *received_data = fresh(0);

    open_messages();
    pattern(own, SIZE, 3);
    for (int i = 0; i < ALL; i++) {
        sent[i] = ucp_tag_send_nbx(ep, own + i * STEP, STEP - 1, (ucp_tag_t)i, &none);
        progress();
    }
    for (int i = ALL - 1; i >= 0; i--) {
        received[i] = ucp_tag_recv_nbx(peer, received_data + i * STEP, STEP - 1, (ucp_tag_t)i, ~0ull, &none);
    }
    for (int i = 0; i < ALL; i++) {
        WANT(UCS_OK, settle(received[i]));
        WANT(UCS_OK, settle(sent[i]));
        WANT_TRUE(memcmp(own + i * STEP, received_data + i * STEP, STEP - 1) == 0 &&
                  received_data[i * STEP + STEP - 1] == 0);
    }
    close_all();
    munmap(received_data, SIZE);
}

/* Rails whose registration fails, at either end, carry nothing: the others carry all. */
static void not_registered(void)
{
    unsigned char   *received_data;
    ucs_status_ptr_t sent;
    unsigned long    before[MOST];
    char             order[32];

    for (int nth = 2; nth <= 2 * (int)queues(); nth++) {
        int receiver = nth > (int)queues();

        if (nth == (int)queues() + 1) {
            continue; /* The receiver's own queue: then no adapter reads. */
        }
        for (int kind = TAG_LATER; kind < KINDS; kind += ACTIVE_LATER - TAG_LATER) {
            open_messages();
            received_data = fresh(0);
            pass(TAG, own + SIZE - (32 << 10), received_data + SIZE - (32 << 10), 32 << 10);
            pattern(own, LONG, (unsigned)nth);
            carried(before);
            snprintf(order, sizeof(order), "reg_fail_nth=%d", receiver ? nth - (int)queues() : nth);
            if (receiver) {
                sent = send_announced(ep, kind, own, received_data, LONG);
                fault(order);
            } else {
                fault(order);
                sent = send_announced(ep, kind, own, received_data, LONG);
            }
            WANT(UCS_OK, settle(receive(kind, received_data, LONG)));
            WANT(UCS_OK, settle(sent));
            want_carried("message with a rail less", before, queues() - 1, LONG / (queues() - 1));
            WANT_TRUE(memcmp(own, received_data, LONG) == 0);
            close_all();
            munmap(received_data, SIZE);
        }
    }
}

/*
 * A message from another worker, of this context, to the same receiver, or to it from the same sender: over this many
 * interfaces.
 */
static void with_another(ucp_context_h of, int receives, unsigned interfaces)
{
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                 .err_mode   = UCP_ERR_HANDLING_MODE_PEER};
    ucp_request_param_t force         = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    unsigned char      *from = fresh(0), *received_data = fresh(0);
    ucp_worker_h        sender = worker, receiver = peer, other;
    unsigned long       before[MOST];
    ucp_address_t      *address;
    ucs_status_ptr_t    sent;
    size_t              length;
    ucp_ep_h            way;

    pattern(from, LONG, 9);
    WANT(UCS_OK, ucp_worker_create(of, &worker_params, &other));
    *(receives ? &peer : &worker) = other;
    WANT(UCS_OK, ucp_worker_get_address(peer, &address, &length));
    ep_params.address = address;
    WANT(UCS_OK, ucp_ep_create(worker, &ep_params, &way));
    ucp_worker_release_address(peer, address);
    carried(before);
    sent = send_announced(way, TAG_LATER, from, received_data, LONG);
    WANT(UCS_OK, settle(receive(TAG_LATER, received_data, LONG)));
    WANT(UCS_OK, settle(sent));
    want_carried("message with another", before, interfaces, LONG / interfaces);
    WANT_TRUE(memcmp(from, received_data, LONG) == 0);
    WANT(UCS_OK, settle(ucp_ep_close_nbx(way, &force)));
    ucp_worker_destroy(other);
    (worker = sender, peer = receiver);
    munmap(from, SIZE);
    munmap(received_data, SIZE);
}

/* An end with fewer rails than the other: as many interfaces as both have. */
static void unlike(void)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    char          all[16], text[16];
    ucp_context_h other;

    snprintf(all, sizeof(all), "%u", queues());
    open_messages();
    for (unsigned few = 1; few < queues(); few++) {
        snprintf(text, sizeof(text), "%u", few);
        setenv("UCX_TOFU_VCQS_PER_WORKER", text, 1);
        WANT(UCS_OK, ucp_init(&params, NULL, &other));
        setenv("UCX_TOFU_VCQS_PER_WORKER", all, 1);
        with_another(other, 0, few);
        with_another(other, 1, few);
        ucp_cleanup(other);
    }
    close_all();
}

/*
 * The n-th part fails: the receive ends when no adapter writes there any more, the sender's request fails, and later
 * messages are received.
 */
static void failing(int kind, int nth, int code)
{
    unsigned char   *received_data = fresh(0);
    ucs_status_ptr_t sent;
    ucs_status_t     status;
    char             order[64];

    open_messages();
    /* A connection in the other direction. */
    pass(TAG, own, received_data, LONG);
    sent = send_announced(ep, kind, own, received_data, LONG);
    snprintf(order, sizeof(order), "delay_us=20000,fail_nth=%d,fail_code=%d", nth, code);
    fault(order);
    status = settle(receive(kind, received_data, LONG));
    WANT_TRUE(status == (code == -193 ? UCS_ERR_CONNECTION_RESET : UCS_ERR_IO_ERROR));
    memset(received_data, UNTOUCHED, SIZE);
    status = settle(sent);
    WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_IO_ERROR || status == UCS_ERR_ENDPOINT_TIMEOUT);
    /* As late as what was posted before it, or later. */
    with_another(context, 0, queues());
    WANT_TRUE(all(received_data, SIZE, UNTOUCHED));
    fault("delay_us=0");
    close_all();
    munmap(received_data, SIZE);
}

static void messages_that_fail(void)
{
    for (int nth = 1; nth <= (int)queues(); nth++) {
        failing(TAG_LATER, nth, -196);
        failing(ACTIVE_LATER, nth, -193);
    }
}

/* After a forced close by the sender its buffer is free when no interface reads it any more. */
static void closed_by_force(void)
{
    for (int kind = TAG_LATER; kind < KINDS; kind += ACTIVE_LATER - TAG_LATER) {
        unsigned char   *received_data = fresh(0);
        ucs_status_ptr_t sent, received, closed;
        ucs_status_t     status;
        unsigned long    gets;
        time_t           end = time(NULL) + SECONDS;

        open_messages();
        pass(TAG, own, received_data, LONG);
        memset(own, 5, LONG);
        memset(received_data, UNTOUCHED, LONG);
        sent = send_announced(ep, kind, own, received_data, LONG);
        gets = counter("gets");
        fault("delay_us=100000");
        received = receive(kind, received_data, LONG);
        while (counter("gets") < gets + queues() && time(NULL) < end) {
            progress();
        }
        closed = close_ep();
        status = settle(sent);
        WANT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_CONNECTION_RESET || status == UCS_OK);
        memset(own, 9, LONG);
        status = settle(received);
        WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_OK);
        WANT(UCS_OK, settle(closed));
        /* They could not be stopped: all of them had been read before. */
        WANT_TRUE(all(received_data, LONG, 5));
        fault("delay_us=0");
        close_rest();
        munmap(received_data, SIZE);
    }
}

static const case_t cases[] = {
    {"rndv_rails", messages},
    {"rndv_rails: many", many},
    {"rndv_rails: fewer rails", unlike},
    {"rndv_rails: memory that is not registered", not_registered},
    {"rndv_rails: messages that fail", messages_that_fail},
    {"rndv_rails: closed by force", closed_by_force},
};

CHECK_MAIN(cases)
