//! Message rate by senders: processes of one host that all send to one worker of another process.
//!
//! ucpbench senders tag|am NUMBER. Messages of 8 bytes; each sender has at most WINDOW in flight: the receiver
//! acknowledges every CREDIT messages of a sender by one of 8 bytes. Every message has its sender and its number, and
//! the receiver compares both: nothing is lost, nothing overtakes. Receives of tags match any sender. The receiver has
//! the first processor, the senders share the others.
#define _GNU_SOURCE
#include "figure.h"
#include "stage.h"
#include "workload.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucp/api/ucp.h>

enum { MAX_SENDERS = MAX_PROCESSES - 1, WINDOW = 64, CREDIT = 32, CREDITS = WINDOW / CREDIT, AM_ID = 1, TAG = 1 };

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/** One of the processes; its index is 0 for the receiver, then the senders' from 1 on. */
static struct {
    struct place place;
    int tags; /* else active messages */
    int senders;
    long messages; /* of each sender in one batch */
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep[MAX_PROCESSES]; /* of the receiver: to each sender; of a sender: only that to the receiver, 0 */
    long arrived[MAX_PROCESSES]; /* messages, by their sender; for a sender: only the receiver's, which are credits */
    /* Receives of tags, in the order in which they were posted; NULL: has a message already. */
    int posted, next;
    ucs_status_ptr_t receives[MAX_SENDERS * WINDOW];
    uint64_t received[MAX_SENDERS * WINDOW];
    /* Senders that are due a credit. */
    int due;
    int credits_due[MAX_SENDERS * CREDITS];
} here;

static void check(ucs_status_t status, const char *call)
{
    if (status != UCS_OK) {
        die("%s: status %d", call, status);
    }
}

/* ---- what arrives ---- */

/** A message's bytes: its sender, and the number of messages sent before. */
static uint64_t value_of(int process, long number)
{
    return (uint64_t)process << 48 | (uint64_t)number;
}

static void take(uint64_t value)
{
    int from = (int)(value >> 48);
    int expected = here.place.index == 0 ? from > 0 && from <= here.senders : from == 0;

    if (!expected || value != value_of(from, here.arrived[from])) {
        die("process %d got %#lx, which is not the next message of any other", here.place.index, (unsigned long)value);
    }
    here.arrived[from]++;
    if (here.place.index == 0 && here.arrived[from] % CREDIT == 0) {
        here.credits_due[here.due++] = from;
    }
}

static ucs_status_t on_message(void *argument, const void *header, size_t header_length, void *data, size_t length,
                               const ucp_am_recv_param_t *message)
{
    uint64_t value = 0;

    (void)argument, (void)header, (void)header_length, (void)message;
    if (length != sizeof(value)) {
        die("a message of %zu bytes", length);
    }
    memcpy(&value, data, sizeof(value));
    take(value);
    return UCS_OK;
}

static void post(int slot)
{
    here.receives[slot] = ucp_tag_recv_nbx(here.worker, &here.received[slot], sizeof(*here.received), TAG,
                                           (ucp_tag_t)-1, &plain);
    if (UCS_PTR_IS_ERR(here.receives[slot])) {
        check(UCS_PTR_STATUS(here.receives[slot]), "ucp_tag_recv_nbx");
    }
}

/** Takes the messages of the oldest receives, and posts them again. */
static void take_tags(void)
{
    ucs_status_ptr_t request;
    uint64_t value;

    for (;;) {
        request = here.receives[here.next];
        if (request != NULL) {
            ucs_status_t status = ucp_request_check_status(request);

            if (status == UCS_INPROGRESS) {
                return;
            }
            check(status, "receive");
            ucp_request_free(request);
        }
        value = here.received[here.next];
        post(here.next);
        here.next = (here.next + 1) % here.posted;
        take(value);
    }
}

/** Whether this process shares its processor with another one of them. */
static int shares_processor(void)
{
    return here.place.index == 0 ? processors() == 1 : here.senders >= processors();
}

/** One call of progress. A process that shares its processor yields when there is nothing to do. */
static void progress(void)
{
    unsigned events = ucp_worker_progress(here.worker);

    if (here.tags) {
        take_tags();
    }
    if (events == 0 && shares_processor()) {
        sched_yield();
    }
}

static void progress_for(void *unused)
{
    (void)unused;
    progress();
}

/* ---- sending ---- */

static void finish(ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            progress();
        }
        ucp_request_free(request);
    }
    check(status, "operation");
}

static ucs_status_ptr_t send_value(int to, const uint64_t *value)
{
    if (here.tags) {
        return ucp_tag_send_nbx(here.ep[to], value, sizeof(*value), TAG, &plain);
    }
    return ucp_am_send_nbx(here.ep[to], AM_ID, NULL, 0, value, sizeof(*value), &plain);
}

/** A sender's part of the messages up to this number; returns when the receiver has acknowledged all of them. */
static void send_until(long last)
{
    static uint64_t values[WINDOW];
    static ucs_status_ptr_t requests[WINDOW];
    static long sent;

    for (; sent < last; sent++) {
        int slot = (int)(sent % WINDOW);

        while (sent - here.arrived[0] * CREDIT >= WINDOW) {
            progress();
        }
        finish(requests[slot]);
        values[slot] = value_of(here.place.index, sent);
        requests[slot] = send_value(0, &values[slot]);
    }
    while (here.arrived[0] * CREDIT < last) {
        progress();
    }
    for (int slot = 0; slot < WINDOW; slot++) {
        finish(requests[slot]);
        requests[slot] = NULL;
    }
}

/** Sends the credits that are due. More may become due meanwhile. */
static void send_credits(void)
{
    static uint64_t values[MAX_PROCESSES][CREDITS];
    static ucs_status_ptr_t requests[MAX_PROCESSES][CREDITS];
    static long sent[MAX_PROCESSES];

    while (here.due > 0) {
        int to = here.credits_due[--here.due];
        int slot = (int)(sent[to] % CREDITS);
        ucs_status_ptr_t before = requests[to][slot];

        /* The sender had that credit before it sent the messages of this one. */
        requests[to][slot] = NULL;
        finish(before);
        values[to][slot] = value_of(0, sent[to]++);
        requests[to][slot] = send_value(to, &values[to][slot]);
    }
}

/** The receiver's part. */
static void receive_until(long last)
{
    long missing;

    do {
        progress();
        send_credits();
        missing = 0;
        for (int i = 1; i <= here.senders && missing == 0; i++) {
            missing = last - here.arrived[i];
        }
    } while (missing != 0);
}

/* ---- the workload ---- */

static void open_worker(void)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = here.tags ? UCP_FEATURE_TAG : UCP_FEATURE_AM};
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = AM_ID,
                                      .cb = on_message};

    check(ucp_init(&params, NULL, &here.context), "ucp_init");
    check(ucp_worker_create(here.context, &worker, &here.worker), "ucp_worker_create");
    if (!here.tags) {
        check(ucp_worker_set_am_recv_handler(here.worker, &handler), "ucp_worker_set_am_recv_handler");
        return;
    }
    here.posted = here.place.index == 0 ? here.senders * WINDOW : CREDITS;
    for (int i = 0; i < here.posted; i++) {
        post(i);
    }
}

static void connect_to(int process)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = (ucp_address_t *)here.place.stage->mail[process].bytes};

    check(ucp_ep_create(here.worker, &params, &here.ep[process]), "ucp_ep_create");
}

static void connect_all(void)
{
    struct stage *stage = here.place.stage;
    ucp_address_t *address;
    size_t length;

    check(ucp_worker_get_address(here.worker, &address, &length), "ucp_worker_get_address");
    if (length > MAIL_ROOM) {
        die("an address of %zu bytes", length);
    }
    memcpy(stage->mail[here.place.index].bytes, address, length);
    ucp_worker_release_address(here.worker, address);
    meet(here.place, progress_for, NULL);
    if (here.place.index != 0) {
        connect_to(0);
        return;
    }
    for (int i = 1; i <= here.senders; i++) {
        connect_to(i);
    }
}

static void close_all(void)
{
    for (int i = 0; i <= here.senders; i++) {
        if (here.ep[i] != NULL) {
            finish(ucp_ep_close_nbx(here.ep[i], &plain));
        }
    }
    /* Other processes may still need this one's progress to close. */
    meet(here.place, progress_for, NULL);
    for (int i = 0; i < here.posted; i++) {
        if (here.receives[i] != NULL) {
            ucp_request_cancel(here.worker, here.receives[i]);
            while (ucp_request_check_status(here.receives[i]) == UCS_INPROGRESS) {
                ucp_worker_progress(here.worker);
            }
            ucp_request_free(here.receives[i]);
        }
    }
    ucp_worker_destroy(here.worker);
    ucp_cleanup(here.context);
}

/** This process's part of one batch, up to so many messages of each sender since the start; returns its seconds. */
static double run_batch(long last)
{
    double begin;

    meet(here.place, progress_for, NULL);
    begin = now();
    if (here.place.index == 0) {
        receive_until(last);
    } else {
        send_until(last);
    }
    return now() - begin;
}

static void play(struct place place, void *argument)
{
    const struct effort *effort = argument;
    double seconds[MAX_BATCHES], rate;
    char name[64];

    here.place = place;
    if (place.index > 0) {
        pin_to(1 + (place.index - 1) % (processors() > 1 ? processors() - 1 : 1));
    }
    open_worker();
    connect_all();
    run_batch(WINDOW); /* connects */
    for (int i = 0; i < effort->batches; i++) {
        seconds[i] = run_batch(WINDOW + (i + 1) * here.messages);
    }
    if (place.index == 0) {
        snprintf(name, sizeof(name), "senders_%s", here.tags ? "tag" : "am");
        rate = (double)(here.messages * here.senders) / median(seconds, effort->batches) / 1e6;
        figure(name, here.senders, rate, "M/s");
        snprintf(name, sizeof(name), "address_space_senders_%s", here.tags ? "tag" : "am");
        figure(name, here.senders, (double)peak_address_space_kib() / 1024, "MiB");
    }
    meet(place, progress_for, NULL);
    close_all();
}

int run_senders(const struct effort *effort, int argc, char **argv)
{
    long messages = effort->quick ? 10000 : 100000;

    if (argc < 3 || (here.senders = atoi(argv[2])) < 1 || here.senders > MAX_SENDERS) {
        die("usage: senders tag|am NUMBER (at most %d)", MAX_SENDERS);
    }
    here.tags = strcmp(argv[1], "tag") == 0;
    /* Whole windows, so that everything is acknowledged at the end of a batch. */
    here.messages = (messages / here.senders + WINDOW - 1) / WINDOW * WINDOW;
    return start_processes(here.senders + 1, play, (void *)effort);
}
