/*
 * Messages between memory of devices that the receiver copies from where it is: one copy for each message, none at the
 * sender, and the allocation is opened once. Memory that was freed and allocated again, late copies, copies that fail,
 * a cancel meanwhile, a receiver that sleeps, handles that are refused.
 */
#define _GNU_SOURCE
#include "victim.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH (2 << 20)
#define SHORTEST (100 << 10) /* longer than the thresholds of all transports */

static unsigned long long opened(void)
{
    return gpu_calls("cuIpcOpenMemHandle_v2");
}

typedef struct {
    ucs_status_ptr_t sent, received;
} message_t;

static message_t post(bed_t *bed, const area_t *source, const area_t *target, size_t length)
{
    ucp_request_param_t param   = {.op_attr_mask = 0};
    message_t           message = {NULL, NULL};

    if (bed->b != NULL) {
        message.received = ucp_tag_recv_nbx(bed->b->worker, target->memory, length, 1, -1, &param);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        message.sent = ucp_tag_send_nbx(bed->a->ep, source->memory, length, 1, &param);
    }
    return message;
}

static void finish(bed_t *bed, message_t message, const area_t *target, size_t length, unsigned seed, const char *what)
{
    if (bed->a != NULL) {
        ucs_status_t status = bed_wait(bed, message.sent);
        want(bed->a, status == UCS_OK, "%s, %zu: sent, %s", what, length, status_name(status));
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, message.received);
        want(bed->b, status == UCS_OK && area_check(target, 0, length, 0, seed)[0] == 'g', "%s, %zu: received, %s",
             what, length, status_name(status));
    }
    bed_sync(bed);
}

/* `within`: most copies at the receiver; the sender makes none. */
static void direct(bed_t *bed, place_t from, place_t to, size_t length, unsigned within)
{
    char   what[64];
    area_t source = area_make(bed->a, from, length), target = area_make(bed->b, to, length);

    snprintf(what, sizeof(what), "%s to %s", place_names[from], place_names[to]);
    area_fill(&source, 0, length, 3);
    for (int i = 0; i < 3; i++) {
        unsigned long long copied = gpu_copies(), open = opened();
        area_set(&target, 0);
        finish(bed, post(bed, &source, &target, length), &target, length, 3, what);
        want(bed->a, gpu_copies() == copied, "%s, %zu: copies at the sender %llu", what, length, gpu_copies() - copied);
        want(bed->b, gpu_copies() > copied && gpu_copies() - copied <= within, "%s, %zu: copies at the receiver %llu",
             what, length, gpu_copies() - copied);
        want(bed->b, opened() - open == (i == 0), "%s, %zu: opened %llu", what, length, opened() - open);
    }
    area_free(&source);
    area_free(&target);
}

static void every_mix(bed_t *bed, const char *what)
{
    for (int from = HOST; from < PLACES; from++) {
        for (int to = HOST; to < PLACES; to++) {
            char text[64];
            snprintf(text, sizeof(text), "%s, %s to %s", what, place_names[from], place_names[to]);
            area_t source = area_make(bed->a, (place_t)from, LENGTH), target = area_make(bed->b, (place_t)to, LENGTH);
            area_fill(&source, 0, LENGTH, (unsigned)from);
            finish(bed, post(bed, &source, &target, LENGTH), &target, LENGTH, (unsigned)from, text);
            area_free(&source);
            area_free(&target);
        }
    }
}

/* The address is the same, the allocation is not. */
static void allocated_again(bed_t *bed)
{
    area_t   target = area_make(bed->b, GPU1, LENGTH);
    uint64_t first  = 0;

    for (unsigned i = 0; i < 4; i++) {
        area_t             source = area_make(bed->a, GPU0, LENGTH);
        unsigned long long open   = opened();
        if (bed->a != NULL) {
            first = i == 0 ? (uint64_t)(uintptr_t)source.memory : first;
            want(bed->a, first == (uint64_t)(uintptr_t)source.memory, "the same address");
        }
        area_fill(&source, 0, LENGTH, i);
        finish(bed, post(bed, &source, &target, LENGTH), &target, LENGTH, i, "allocated again");
        want(bed->b, opened() - open == 1, "opened anew: %llu", opened() - open);
        area_free(&source);
    }
    area_free(&target);
}

/* The receiver sleeps until the copy has ended: it is not polled meanwhile. */
static void sleeping(bed_t *bed)
{
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);

    area_fill(&source, 0, LENGTH, 5);
    finish(bed, post(bed, &source, &target, LENGTH), &target, LENGTH, 5, "before sleep");
    if (bed->b != NULL) {
        gpu_fault("late_us=200000");
    }
    message_t message = post(bed, &source, &target, LENGTH);
    if (bed->b != NULL) {
        unsigned long long queries = gpu_calls("cuEventQuery");
        unsigned           slept   = 0;
        int                fd;
        must(bed->b, ucp_worker_get_efd(bed->b->worker, &fd), "ucp_worker_get_efd");
        while (ucp_request_check_status(message.received) == UCS_INPROGRESS) {
            while (ucp_worker_progress(bed->b->worker) != 0) {
            }
            if (ucp_request_check_status(message.received) != UCS_INPROGRESS) {
                break;
            }
            if (ucp_worker_arm(bed->b->worker) == UCS_OK) {
                struct pollfd one = {.fd = fd, .events = POLLIN};
                want(bed->b, poll(&one, 1, 30000) == 1, "woken");
                slept++;
            }
        }
        queries = gpu_calls("cuEventQuery") - queries;
        want(bed->b, slept > 0 && queries < 20000, "slept, looks at the copy %llu",
             queries < 20000 ? 0 : queries);
        gpu_fault("late_us=0");
    }
    finish(bed, message, &target, LENGTH, 5, "after sleep");
    area_free(&source);
    area_free(&target);
}

/* The receiver's copy fails, once: messages carry the data. */
static void failing(bed_t *bed, const char *fault)
{
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);

    area_fill(&source, 0, LENGTH, 6);
    if (bed->b != NULL) {
        gpu_fault(fault);
    }
    finish(bed, post(bed, &source, &target, LENGTH), &target, LENGTH, 6, fault);
    area_free(&source);
    area_free(&target);
}

/* The sender closes its endpoint by force while the receiver copies. */
static void closed_under_way(bed_t *bed)
{
    static char         to_a[BED_ADDRESS_MAX], to_b[BED_ADDRESS_MAX];
    ucp_request_param_t none  = {.op_attr_mask = 0};
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    area_t              source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    ucs_status_ptr_t    sent = NULL, received = NULL;
    uint8_t             begun = 0;

    bed_exchange_addresses(bed, to_b, to_a);
    area_fill(&source, 0, LENGTH, 7);
    ucp_ep_h second = bed->a != NULL ? connect_guarded(bed->a, to_b) : NULL;
    /* The copy may begin while the receiver waits for the sender. */
    unsigned long long copied = gpu_copies();
    if (bed->b != NULL) {
        gpu_fault("late_us=300000");
        received = ucp_tag_recv_nbx(bed->b->worker, target.memory, LENGTH, 9, -1, &none);
    }
    bed_sync(bed);
    if (bed->a != NULL) {
        sent = ucp_tag_send_nbx(second, source.memory, LENGTH, 9, &none);
    }
    if (bed->b != NULL) {
        BED_UNTIL(bed, gpu_copies() > copied);
        begun = 1;
    }
    bed_transfer(bed, bed->b, &begun, 1, &begun, 1);
    if (bed->a != NULL) {
        int waits = UCS_PTR_IS_PTR(sent) && ucp_request_check_status(sent) == UCS_INPROGRESS;
        want(bed->a, waits, "the send waits");
        ucs_status_ptr_t closing = ucp_ep_close_nbx(second, &force);
        ucs_status_t     status  = bed_wait(bed, sent);
        want(bed->a, status != UCS_OK && status != UCS_INPROGRESS, "closed under way: the send ends with %s",
             status_name(status));
        bed_wait(bed, closing);
        area_set(&source, 0xEE); /* it is the user's again: the receiver does not get this */
    }
    if (bed->b != NULL) {
        ucs_status_t status = bed_wait(bed, received);
        int          kept   = area_check(&target, 0, LENGTH, 0, 7)[0] == 'g';
        want(bed->b, status != UCS_OK || kept, "closed under way: the receive ends with %s", status_name(status));
        gpu_fault("late_us=0");
    }
    bed_sync(bed);
    area_free(&source);
    area_free(&target);
}

/* A message of a worker to itself is one copy, and nothing is opened. */
static void to_itself(bed_t *bed)
{
    side_t             *side = bed->a != NULL ? bed->a : bed->b;
    ucp_request_param_t none = {.op_attr_mask = 0};
    ucp_address_t      *own;
    size_t              length;

    must(side, ucp_worker_get_address(side->worker, &own, &length), "address");
    ucp_ep_h self = bed_connect(side, own);
    for (int from = GPU0; from < PLACES; from++) {
        for (int to = HOST; to < PLACES; to++) {
            area_t source = area_make(side, (place_t)from, LENGTH), target = area_make(side, (place_t)to, LENGTH);
            area_fill(&source, 0, LENGTH, 8);
            unsigned long long copied   = gpu_copies(), open = opened();
            ucs_status_ptr_t   received = ucp_tag_recv_nbx(side->worker, target.memory, LENGTH, 8, -1, &none);
            ucs_status_ptr_t   sent     = ucp_tag_send_nbx(self, source.memory, LENGTH, 8, &none);
            ucs_status_t       s = bed_wait(bed, sent), r = bed_wait(bed, received);
            copied = gpu_copies() - copied;
            want(side, s == UCS_OK && r == UCS_OK && area_check(&target, 0, LENGTH, 0, 8)[0] == 'g',
                 "to itself, %s to %s: %s, %s", place_names[from], place_names[to], status_name(s), status_name(r));
            want(side, copied == 1 && opened() == open, "to itself, %s to %s: copies %llu, opened %llu",
                 place_names[from], place_names[to], copied, opened() - open);
            area_free(&source);
            area_free(&target);
        }
    }
    ucp_worker_release_address(side->worker, own);
    bed_disconnect(bed, self);
    bed_sync(bed);
}

/* A child leaves what its parent has opened alone. */
static void forked(bed_t *bed)
{
    area_t source = area_make(bed->a, GPU0, LENGTH), target = area_make(bed->b, GPU1, LENGTH);
    int    status = 0;

    area_fill(&source, 0, LENGTH, 4);
    if (bed->b != NULL) {
        gpu_fault("late_us=100000");
    }
    /* The copy may begin in the call that posts the receive. */
    unsigned long long copied  = gpu_copies();
    message_t          message = post(bed, &source, &target, LENGTH);
    if (bed->b != NULL) {
        BED_UNTIL(bed, gpu_copies() > copied);
    }
    pid_t child = fork();
    if (child == 0) {
        ucp_worker_progress(bed->a != NULL ? bed->a->worker : bed->b->worker);
        _exit(0);
    }
    waitpid(child, &status, 0);
    want(bed->a, status == 0, "a child");
    want(bed->b, status == 0, "a child");
    finish(bed, message, &target, LENGTH, 4, "forked under way");
    if (bed->b != NULL) {
        gpu_fault("late_us=0");
    }
    area_free(&source);
    area_free(&target);
}

static void script(bed_t *bed)
{
    bed_params_t params = {.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};

    gpu_open();
    bed_open(bed, &params);
    for (int from = GPU0; from <= GPU1; from++) {
        for (int to = HOST; to < PLACES; to++) {
            direct(bed, (place_t)from, (place_t)to, SHORTEST, 1);
            direct(bed, (place_t)from, (place_t)to, LENGTH, 1);
        }
    }
    direct(bed, GPU0, HOST, 9 << 20, 3);
    direct(bed, GPU0, GPU1, 9 << 20, 1);
    every_mix(bed, "at first");
    allocated_again(bed);
    sleeping(bed);
    failing(bed, "fail_nth=1,fail_code=2");
    closed_under_way(bed);
    to_itself(bed);
    forked(bed);
    every_mix(bed, "in the middle");

    /* What is open stays open, and nothing else is. */
    if (bed->b != NULL) {
        gpu_fault("ipc_refused=1");
    }
    every_mix(bed, "refused");
    bed_close(bed);
    want(bed->b, gpu_calls("cuIpcCloseMemHandle") > 0, "closed");
    want(bed->a, gpu_calls("cuPointerSetAttribute") > 0, "copies of the program are synchronous to the receiver, too");
}

int main(int argc, char **argv)
{
    return bed_main(argc, argv, script);
}
