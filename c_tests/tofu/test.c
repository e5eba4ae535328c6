/*
 * Tests of the software Tofu itself.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 *
 * A case has an active side and a passive one in another process, connected by a socket. SOFT_TOFU_WIRE names where the
 * wires may be made, one for each case; TOFUCTL is the control program.
 */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

pid_t other;

#define A_RING_OF_FIVE                                                                                    \
    "SHAPE=5x1x1x1x1x1 TIME=1 TIME_PUT=100000 TIME_ACK=100000 TIME_GET=100000 TIME_ATOMIC=100000 TIME_HOP=50000 " \
    "TIME_MB_PER_S=1"

/* `settings`: of the wire, "NAME=value ..."; SOFT_TOFU_ is put in front of the names. */
static const struct {
    const char *name;
    void (*active)(int socket), (*passive)(int socket);
    const char *settings;
} cases[] = {
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
    {"dies", dies_active, dies_passive, ""},
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

static pid_t start(void (*side)(int), const char *settings, int node, int socket, int other_socket)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(60);
    close(other_socket);
    apply(settings);
    set_node(node);
    side(socket);
    exit(0);
}

static bool run_case(size_t i)
{
    int ends[2], status, passive;
    pid_t active;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    other = start(cases[i].passive, cases[i].settings, 1, ends[1], ends[0]);
    active = start(cases[i].active, cases[i].settings, 0, ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
    waitpid(active, &status, 0);
    waitpid(other, &passive, 0);
    unlink(getenv("SOFT_TOFU_WIRE"));
    return status == 0 && (passive == 0 || (WIFSIGNALED(passive) && WTERMSIG(passive) == SIGKILL));
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
            puts(cases[i].name);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool wanted = argc == 1, good;

        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], cases[i].name) == 0;
        if (!wanted)
            continue;
        good = run_case(i);
        printf("%s %s\n", good ? "PASS" : "FAIL", cases[i].name);
        failed += !good;
    }
    return failed != 0;
}
