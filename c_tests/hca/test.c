/*
 * Tests of the software HCA itself: what the pingpongs of ibverbs-utils do not show.
 *
 *   test            every case, each in processes of its own
 *   test NAME ...   these
 *   test --list     their names
 *
 * A case has an active side and a passive one in another process, connected by a socket. SOFT_HCA_WIRE names the wire,
 * HCACTL the control program.
 */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

pid_t other;

static const struct {
    const char *name;
    void (*active)(int socket), (*passive)(int socket);
} cases[] = {
    {"one_sided", one_sided_active, passive_waits},
    {"messages", messages_active, messages_passive},
    {"keys", keys_active, keys_passive},
    {"rnr", rnr_active, rnr_passive},
    {"too_long", too_long_active, too_long_passive},
    {"killed", killed_active, passive_waits},
    {"killed_often", killed_often_active, nothing_passive},
    {"flush", flush_active, passive_waits},
    {"unsignalled", unsignalled_active, passive_waits},
    {"ordered_error", ordered_error_active, passive_waits},
    {"port_down", port_down_active, passive_waits},
    {"events", events_active, events_passive},
    {"demand", demand_active, passive_waits},
    {"srq", srq_active, srq_passive},
    {"threads", threads_active, threads_passive},
    {"ud", ud_active, ud_passive},
    {"refusals", refusals_active, nothing_passive},
};

static bool run_case(size_t i)
{
    int ends[2], status, passive;
    pid_t active;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    other = fork();
    if (other == 0) {
        alarm(60);
        close(ends[0]);
        cases[i].passive(ends[1]);
        exit(0);
    }
    active = fork();
    if (active == 0) {
        alarm(60);
        close(ends[1]);
        cases[i].active(ends[0]);
        exit(0);
    }
    close(ends[0]);
    close(ends[1]);
    waitpid(active, &status, 0);
    waitpid(other, &passive, 0);
    return status == 0 && (passive == 0 || (WIFSIGNALED(passive) && cases[i].active == killed_active));
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
