/*
 * Tests of the software Tofu itself.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 *
 * A case has an active side and a passive one in another process, connected by a socket. SOFT_TOFU_WIRE is the path
 * prefix of the wires, one for each case; TOFUCTL is the control program.
 */
#include <string.h>
#include <unistd.h>

#include "cases.h"

#define A_RING_OF_FIVE                                                                                    \
    "SHAPE=5x1x1x1x1x1 TIME=1 TIME_PUT=100000 TIME_ACK=100000 TIME_GET=100000 TIME_ATOMIC=100000 TIME_HOP=50000 " \
    "TIME_MB_PER_S=1"

/* `settings`: of the wire, "NAME=value ..."; SOFT_TOFU_ is put in front of the names. */
static const struct soft_case cases[] = {
    {"one_sided", one_sided_active, one_sided_passive, ""},
    {"mapped", mapped_active, mapped_passive, ""},
    {"descriptors", descriptors_active, descriptors_passive, ""},
    {"names", names_active, nothing_passive, "SHAPE=1x2x3x2x3x2"},
    {"ranks", ranks_active, ranks_passive, "SHAPE=1x1x1x3x2x1 PPN=2"},
    {"limits", limits_active, nothing_passive, "STAGS=1"},
    {"shared", shared_active, shared_passive, ""},
    {"killed", killed_active, passive_waits, ""},
    {"mapped_killed", killed_active, mapped_killed_passive, ""},
    {"stadds", stadds_active, nothing_passive, ""},
    {"stags_end", stags_end_active, nothing_passive, "STAGS=16"},
    {"errors", errors_active, errors_passive, ""},
    {"full", full_active, full_passive, "TOQ=8 TCQ=4 MRQ=16"},
    {"posters", posters_active, posters_passive, "MRQ=32768"},
    {"mapped_posters", posters_active, mapped_posters_passive, "MRQ=32768"},
    {"threads", threads_active, nothing_passive, "MRQ=32768"},
    {"killed_often", killed_often_active, killed_often_passive, "MRQ=1048576"},
    {"contenders_die", contenders_die_active, passive_waits, "FAULTS=atomic_gap_us=20"},
    {"dies", dies_active, dies_passive, ""},
    {"forked_threads", forked_threads_active, passive_waits, "FAULTS=delay_us=1"},
    {"polled", polled_active, nothing_passive, ""},
    {"reorder", reorder_active, reorder_passive, "FAULTS=reorder_nth=3,late_us=700000"},
    {"faults", faults_active, faults_passive, ""},
    {"counters", counters_active, passive_waits, ""},
    {"time", time_active, passive_waits, A_RING_OF_FIVE},
    {"hops", hops_active, hops_passive, A_RING_OF_FIVE},
};

static void apply(const char *settings)
{
    char name[64], value[64];
    int length;

    while (sscanf(settings, "%50[^=]=%60s%n", name + 10, value, &length) == 2) {
        memcpy(name, "SOFT_TOFU_", 10);
        setenv(name, value, 1);
        settings += length + (settings[length] == ' ');
    }
}

static void prepare(const char *settings, int side)
{
    apply(settings);
    set_node(side);
}

static void remove_wire(void)
{
    unlink(getenv("SOFT_TOFU_WIRE"));
}

int main(int argc, char **argv)
{
    return soft_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]), (struct soft_stage){prepare, remove_wire});
}
