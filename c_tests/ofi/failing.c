/*
 * A provider that fails: completions of every kind end with errors, or the provider works no more. Two workers of this
 * process exchange messages on the restricted fabric: each message arrives, or the endpoint of its sender fails in
 * time; endpoints that are opened then work. Nothing hangs, nothing crashes, nothing is lost without a word.
 */
#define _GNU_SOURCE
#include "two_workers.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 40 };

static unsigned delivered, lost;

/* Sends a message of this many bytes: it arrives, or the sender's endpoint fails. */
static void exchange(int from, size_t size)
{
    static uint64_t number, out[20000], in[20000];
    end_t          *a = &ends[from], *b = &ends[1 - from];

    number++;
    for (size_t i = 0; i < size / sizeof(number); i++) {
        out[i] = number + i;
    }
    memset(in, 0, size);
    ucs_status_ptr_t receive = ucp_tag_recv_nbx(b->worker, in, size, number, UINT64_MAX, &plain);
    ucs_status_ptr_t send    = ucp_tag_send_nbx(a->ep, out, size, number, &plain);
    time_t           limit   = time(NULL) + SECONDS;
    while ((is_pending(send) || is_pending(receive)) && !a->failed && time(NULL) < limit) {
        progress();
    }
    int has_arrived = !is_pending(receive);
    WANT_TRUE(has_arrived || a->failed);
    ucs_status_t sent = end_of(a->worker, send), got = end_of(b->worker, receive);
    if (has_arrived && got == UCS_OK) {
        WANT_TRUE(memcmp(in, out, size) == 0);
        delivered++;
    } else {
        lost++;
    }
    WANT_TRUE(sent == UCS_OK || a->failed);
    WANT_TRUE(!a->failed || is_connection_lost(a));
}

static void under(const char *rules)
{
    static const size_t sizes[] = {8, 4000, 20000, 120000};

    begin(rules, UCP_FEATURE_TAG);
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        exchange(round % 2, sizes[round / 2 % 4]);
        if (round % 2 == 1) {
            replace_failed();
        }
    }
    WANT_TRUE(delivered > 0 && ends[0].failures + ends[1].failures > 0);
    end();
}

static void errors(int nth, int code)
{
    char rules[64];

    snprintf(rules, sizeof(rules), "error_nth=%d,error_code=%d", nth, code);
    under(rules);
}

/* Messages arrive that are not those that were sent, and no error is reported: whose they were is not known. */
static void damaged_keys(void)
{
    under("damage_nth=23,damage_at=0");
}

static void damaged_connections(void)
{
    under("damage_nth=23,damage_at=8");
}

static void damaged_numbers(void)
{
    under("damage_nth=23,damage_at=12,damage_by=2");
}

static void damaged_kinds(void)
{
    under("damage_nth=23,damage_at=16");
}

/* A record (3) becomes a probe (7). */
static void other_kinds(void)
{
    under("damage_nth=23,damage_at=16,damage_by=4");
}

static void lost_messages(void)
{
    under("lose_nth=13");
}

static void ended_operations(void)
{
    errors(31, FI_EIO);
}

static void canceled_operations(void)
{
    errors(37, FI_ECANCELED);
}

static void lost_peers(void)
{
    errors(29, FI_ECONNRESET);
}

static void unreachable_peers(void)
{
    errors(41, FI_EHOSTUNREACH);
}

static void late_peers(void)
{
    errors(43, FI_ETIMEDOUT);
}

static void overrun_queues(void)
{
    errors(53, FI_EOVERRUN);
}

static void all_operations(void)
{
    begin("error_nth=1", UCP_FEATURE_TAG);
    exchange(0, 8);
    exchange(1, 8);
    WANT_TRUE(delivered == 0 && ends[0].failed && ends[1].failed);
    end();
}

/* The provider of the first worker works no more: both ends fail, and another worker takes its place. */
static void dead(void)
{
    begin("dies_after=60", UCP_FEATURE_TAG);
    while (!ends[0].failed && !check_failed()) {
        exchange(0, 5000);
    }
    for (time_t limit = time(NULL) + SECONDS; !ends[1].failed && time(NULL) < limit;) {
        progress();
    }
    WANT_TRUE(ends[1].failed && delivered > 0);
    close_endpoint(0);
    close_endpoint(1);
    open_endpoint(0);
    exchange(0, 8);
    WANT_TRUE(ends[0].failed);
    close_endpoint(0);
    ucp_worker_destroy(ends[0].worker);
    open_worker(&ends[0]);
    for (int i = 0; i < 2; i++) {
        open_endpoint(i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        exchange(round % 2, 30000);
    }
    WANT_TRUE(!ends[0].failed && !ends[1].failed);
    end();
}

/* Registrations fail now and then: what cannot be registered is tried again, or a worker is not made. */
static void registrations(void)
{
    begin("mr_local=1,mr_endpoint=1,mr_prov_key=1,reg_fail_nth=6", UCP_FEATURE_TAG);
    for (int round = 0; round < ROUNDS; round++) {
        exchange(round % 2, 100000);
    }
    WANT_TRUE(!ends[0].failed && !ends[1].failed);
    end();
}

static void no_registration(void)
{
    ucp_params_t        params        = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {.field_mask = 0};
    ucp_worker_h        worker;

    setenv("SOFT_OFI_RULES", "mr_local=1,reg_fail_nth=1", 1);
    must(ucp_init(&params, NULL, &context), "ucp_init");
    WANT_TRUE(ucp_worker_create(context, &worker_params, &worker) != UCS_OK);
    ucp_cleanup(context);
}

static const case_t cases[] = {
    {"failing: operations", ended_operations},
    {"failing: canceled operations", canceled_operations},
    {"failing: lost peers", lost_peers},
    {"failing: unreachable peers", unreachable_peers},
    {"failing: late peers", late_peers},
    {"failing: overrun queues", overrun_queues},
    {"failing: all operations", all_operations},
    {"failing: damaged keys", damaged_keys},
    {"failing: damaged connections", damaged_connections},
    {"failing: damaged numbers", damaged_numbers},
    {"failing: damaged kinds", damaged_kinds},
    {"failing: other kinds", other_kinds},
    {"failing: lost messages", lost_messages},
    {"failing: a dead provider", dead},
    {"failing: registrations", registrations},
    {"failing: no registration", no_registration},
};

CHECK_MAIN(cases)
