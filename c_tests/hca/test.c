/*
 * Tests of the software HCA itself: features that the pingpongs of ibverbs-utils do not cover.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 *
 * A case has an active side and a passive one in another process, connected by a socket. SOFT_HCA_WIRE names the wire,
 * HCACTL the control program.
 */
#include "cases.h"

static const struct soft_case cases[] = {
    {"one_sided", one_sided_active, passive_waits, NULL},
    {"messages", messages_active, messages_passive, NULL},
    {"keys", keys_active, keys_passive, NULL},
    {"rnr", rnr_active, rnr_passive, NULL},
    {"too_long", too_long_active, too_long_passive, NULL},
    {"killed", killed_active, passive_waits, NULL},
    {"killed_often", killed_often_active, nothing_passive, NULL},
    {"flush", flush_active, passive_waits, NULL},
    {"unsignalled", unsignalled_active, passive_waits, NULL},
    {"ordered_error", ordered_error_active, passive_waits, NULL},
    {"port_down", port_down_active, passive_waits, NULL},
    {"events", events_active, events_passive, NULL},
    {"demand", demand_active, passive_waits, NULL},
    {"dmabuf", dmabuf_active, passive_waits, NULL},
    {"srq", srq_active, srq_passive, NULL},
    {"threads", threads_active, threads_passive, NULL},
    {"forked_threads", forked_threads_active, forked_threads_passive, NULL},
    {"forked_requests", forked_requests_active, forked_requests_passive, NULL},
    {"ud", ud_active, ud_passive, NULL},
    {"refusals", refusals_active, nothing_passive, NULL},
};

int main(int argc, char **argv)
{
    return soft_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), (struct soft_stage){0});
}
