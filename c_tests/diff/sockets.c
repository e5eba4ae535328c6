/*
 * Workers over TCP, whatever other transports there are: how many messages one progress call receives, and how a worker
 * is destroyed. The contexts of this program have TCP only, so that every run shows it.
 */
#define _GNU_SOURCE
#include "bed.h"

#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG   1000 /* messages that have arrived before the receiver progresses */
#define PORTION   128
#define GOING     4 /* workers that are destroyed after their peer was */
#define PIECE     4096
#define PIECES    128
#define BOUND     2.0 /* seconds for all of them */
#define AM_ID     5
#define LAST_WORD 100

typedef struct {
    unsigned arrived;
    unsigned wrong; /* not the number that follows the one before it */
} counted_t;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ucs_status_t arrive(void *argument, const void *header, size_t header_length, void *data, size_t length,
                           const ucp_am_recv_param_t *param)
{
    counted_t *counted = argument;

    (void)header_length, (void)data, (void)length, (void)param;
    counted->wrong += *(const unsigned *)header != counted->arrived;
    counted->arrived++;
    return UCS_OK;
}

static void context_open(side_t *side)
{
    ucp_params_t  params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_config_t *config;

    must(side, ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    must(side, ucp_config_modify(config, "TLS", "tcp"), "ucp_config_modify");
    must(side, ucp_init(&params, config, &side->context), "ucp_init");
    ucp_config_release(config);
}

static ucp_worker_h worker_open(side_t *side, counted_t *counted)
{
    ucp_worker_params_t    params  = {.field_mask = 0};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id         = AM_ID,
        .cb         = arrive,
        .arg        = counted,
    };
    ucp_worker_h worker;

    must(side, ucp_worker_create(side->context, &params, &worker), "ucp_worker_create");
    must(side, ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    return worker;
}

/* The address of B's worker, where A is. */
static void carry_address(bed_t *bed, char *out)
{
    ucp_address_t *address = NULL;
    size_t         length  = 0;

    if (bed->b != NULL) {
        must(bed->b, ucp_worker_get_address(bed->b->worker, &address, &length), "ucp_worker_get_address");
    }
    bed_transfer(bed, bed->b, address, length, out, BED_ADDRESS_MAX);
    if (bed->b != NULL) {
        ucp_worker_release_address(bed->b->worker, address);
    }
}

/* Sends message `number`, padded. UCS_ERR_NO_RESOURCE: not now. */
static ucs_status_t post(bed_t *bed, ucp_ep_h ep, unsigned number, size_t length, uint32_t flags)
{
    static const char   bytes[PIECE];
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | flags, .flags = UCP_AM_SEND_FLAG_EAGER};

    return bed_wait(bed, ucp_am_send_nbx(ep, AM_ID, &number, sizeof(number), bytes, length, &param));
}

static ucs_status_t flush(bed_t *bed, ucp_ep_h ep)
{
    ucp_request_param_t param = {.op_attr_mask = 0};

    return bed_wait(bed, ucp_ep_flush_nbx(ep, &param));
}

/* A has arrived here, and B has not progressed meanwhile. */
static void signal_from_a(bed_t *bed)
{
    char byte = 'a';

    if (bed->link < 0) {
        return;
    }
    if (bed->a != NULL) {
        send(bed->link, &byte, 1, MSG_NOSIGNAL);
    } else if (recv(bed->link, &byte, 1, MSG_WAITALL) != 1) {
        fact(bed->b, "CANNOT GO ON: the other side is gone");
        _exit(5);
    }
}

/* A worker of A's own beside the bed's: waiting for it must not make B progress. */
typedef struct {
    ucp_worker_h worker;
    ucp_ep_h     ep;
    counted_t    counted;
} sender_t;

/* Connects to B: its first message has arrived. */
static void sender_open(bed_t *bed, sender_t *sender, const char *address, counted_t *at_b)
{
    unsigned before = at_b->arrived;

    if (bed->a != NULL) {
        sender->counted    = (counted_t){0};
        sender->worker     = worker_open(bed->a, &sender->counted);
        bed->a->worker     = sender->worker;
        ucp_ep_params_t ep = {
            .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = (const ucp_address_t *)address};
        must(bed->a, ucp_ep_create(sender->worker, &ep, &sender->ep), "ucp_ep_create");
        must(bed->a, post(bed, sender->ep, before, 0, 0), "the first message");
        must(bed->a, flush(bed, sender->ep), "its flush");
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, at_b->arrived == before + 1);
    }
    bed_sync(bed);
}

/* Progresses A's worker only. No flush: UCX's waits for B's progress. */
static void alone(bed_t *bed, sender_t *sender, unsigned first, unsigned count, size_t length)
{
    side_t *b = bed->b;

    if (bed->a == NULL) {
        return;
    }
    bed->b = NULL;
    for (unsigned i = 0; i < count; i++) {
        must(bed->a, post(bed, sender->ep, first + i, length, 0), "ucp_am_send_nbx");
    }
    bed->b = b;
}

/* Messages in the socket are received in portions: a program that checks its state after each call sees some. */
static void backlog_facts(bed_t *bed, const char *address, counted_t *at_b)
{
    static const departure_t departure = {
        .name    = "N1",
        .why     = "a progress call of rucp takes in at most some 128 messages, of UCX what reads of 8 KiB bring",
        .on_rucp = "few",
    };
    unsigned most = 0, first = 1, before, came;
    sender_t sender;

    sender_open(bed, &sender, address, at_b);
    alone(bed, &sender, first, BACKLOG, 8);
    signal_from_a(bed);
    if (bed->b != NULL) {
        deadline_t deadline = bed_deadline("the backlog");
        while (at_b->arrived < first + BACKLOG) {
            before = at_b->arrived;
            bed_poll(bed, &deadline);
            came = at_b->arrived - before;
            most = came > most ? came : most;
        }
        rule_departs(bed->b, &departure, most <= PORTION ? "few" : "many");
        rule(bed->b, "N1", "out of order: %u of %u", at_b->wrong, at_b->arrived);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        rule(bed->a, "N1", "close: %s", status_name(bed_disconnect(bed, sender.ep)));
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        ucp_worker_destroy(sender.worker);
        bed->a->worker = NULL;
    }
}

/* Messages arrive though their worker is destroyed as soon as its close has completed. */
static void last_word_facts(bed_t *bed, const char *address, counted_t *at_b)
{
    unsigned first;
    sender_t sender;

    *at_b = (counted_t){0};
    sender_open(bed, &sender, address, at_b);
    first = 1;
    alone(bed, &sender, first, LAST_WORD, 1000);
    if (bed->a != NULL) {
        fact(bed->a, "close: %s", status_name(bed_disconnect(bed, sender.ep)));
        ucp_worker_destroy(sender.worker);
        bed->a->worker = NULL;
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, at_b->arrived == first + LAST_WORD);
        rule(bed->b, "N2", "all that was sent before the worker went has come: %u, wrong: %u", at_b->arrived,
             at_b->wrong);
    }
    bed_sync(bed);
}

/*
 * Sends more than B's kernel buffers while B does not read, and less than that and A's kernel buffer together: all has
 * left A's worker, and not all has arrived.
 */
static void fill(bed_t *bed, sender_t *sender)
{
    ucs_status_t status;
    unsigned     number = 1;

    do {
        status = post(bed, sender->ep, number++, PIECE, UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
    } while (status == UCS_OK && number <= PIECES);
    must(bed->a, status == UCS_ERR_NO_RESOURCE ? UCS_OK : status, "ucp_am_send_nbx");
}

enum { WAITING = 4000 }; /* messages of PIECE, more than the kernel buffers of both ends */

/* A flushing close behind messages that B does not read. */
static ucs_status_ptr_t close_behind(bed_t *bed, sender_t *sender, ucs_status_ptr_t *sent)
{
    static const char   bytes[PIECE];
    static unsigned     number = 1;
    ucp_request_param_t eager  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    ucp_request_param_t flush  = {.op_attr_mask = 0};

    for (int i = 0; i < WAITING; i++) {
        sent[i] = ucp_am_send_nbx(sender->ep, AM_ID, &number, sizeof(number), bytes, PIECE, &eager);
    }
    ucs_status_ptr_t closing = ucp_ep_close_nbx(sender->ep, &flush);
    rule(bed->a, "E7", "a close behind messages that do not leave: %s", ptr_status_name(closing));
    return closing;
}

/* Its end, after that of B's process, of an endpoint without error handling. */
static void closed_behind(bed_t *bed, ucs_status_ptr_t closing, ucs_status_ptr_t *sent)
{
    static const departure_t departure = {
        .name    = "E7",
        .why     = "without error handling a close of rucp is no failure, whenever its peer goes: its messages fail",
        .on_1_13 = "ENDPOINT_TIMEOUT",
        .on_1_22 = "CONNECTION_RESET",
        .on_rucp = "OK",
    };
    int failed = 0;

    rule_departs(bed->a, &departure, status_name(bed_wait(bed, closing)));
    for (int i = 0; i < WAITING; i++) {
        failed += bed_wait(bed, sent[i]) != UCS_OK;
    }
    rule(bed->a, "E7", "messages before it failed: %d", failed > 0);
}

/*
 * B's process ends with unread bytes: its sockets are reset. Workers that are destroyed then have nothing to wait for.
 */
static void reset_facts(bed_t *bed, const char *address, counted_t *at_b)
{
    static sender_t         sender[GOING], closer;
    static ucs_status_ptr_t sent[WAITING];
    char                    byte;
    double                  begin;

    *at_b = (counted_t){0};
    sender_open(bed, &closer, address, at_b);
    for (int i = 0; i < GOING; i++) {
        *at_b = (counted_t){0};
        sender_open(bed, &sender[i], address, at_b);
    }
    if (bed->a == NULL) {
        signal_from_a(bed);
        return;
    }
    for (int i = 0; i < GOING; i++) {
        bed->a->worker = sender[i].worker;
        fill(bed, &sender[i]);
    }
    ucs_status_ptr_t closing = close_behind(bed, &closer, sent);
    signal_from_a(bed);
    while (recv(bed->link, &byte, 1, 0) > 0) {
    }
    begin = now();
    for (int i = 0; i < GOING; i++) {
        ucp_worker_destroy(sender[i].worker);
    }
    double took = now() - begin;
    rule(bed->a, "N3", "%d workers whose peer has gone first go in %g seconds: %d", GOING, BOUND, took < BOUND);
    bed->a->worker = closer.worker;
    closed_behind(bed, closing, sent);
    ucp_worker_destroy(closer.worker);
}

static void script(bed_t *bed)
{
    static char      address[BED_ADDRESS_MAX];
    static counted_t at_b;

    if (bed->topology == TOPOLOGY_SELF) {
        return; /* a worker with an endpoint to itself has no other that could detect its end */
    }
    if (bed->a != NULL) {
        context_open(bed->a);
    }
    if (bed->b != NULL) {
        if (bed->a == NULL) {
            context_open(bed->b);
        } else {
            bed->b->context = bed->a->context;
        }
        bed->b->worker = worker_open(bed->b, &at_b);
    }
    carry_address(bed, address);
    backlog_facts(bed, address, &at_b);
    last_word_facts(bed, address, &at_b);
    if (bed->topology == TOPOLOGY_FORK) {
        reset_facts(bed, address, &at_b);
    } else {
        ucp_worker_destroy(bed->b->worker);
        ucp_cleanup(bed->b->context);
    }
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
