#include "sides.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t other;

enum { ACTIVE, PASSIVE, LIMIT = 60 /* seconds */ };

static pid_t start(const struct soft_case *one, int side, const int ends[2], struct soft_stage stage)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(LIMIT);
    close(ends[!side]);
    if (stage.prepare != NULL)
        stage.prepare(one->settings, side);
    (side == ACTIVE ? one->active : one->passive)(ends[side]);
    exit(0);
}

static bool run_case(const struct soft_case *one, struct soft_stage stage)
{
    int ends[2], status, passive;
    pid_t active;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    other = start(one, PASSIVE, ends, stage);
    active = start(one, ACTIVE, ends, stage);
    close(ends[0]);
    close(ends[1]);
    waitpid(active, &status, 0);
    waitpid(other, &passive, 0);
    if (stage.clear != NULL)
        stage.clear();
    return status == 0 && (passive == 0 || (WIFSIGNALED(passive) && WTERMSIG(passive) == SIGKILL));
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int a = 1; a < argc; a++)
        if (strcmp(argv[a], name) == 0)
            return true;
    return argc == 1;
}

int soft_main(int argc, char **argv, const struct soft_case *cases, size_t count, struct soft_stage stage)
{
    bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
    int failed = 0;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < count; i++) {
        if (list) {
            puts(cases[i].name);
        } else if (wanted(cases[i].name, argc, argv)) {
            bool good = run_case(&cases[i], stage);

            printf("%s %s\n", good ? "PASS" : "FAIL", cases[i].name);
            failed += !good;
        }
    }
    return failed != 0;
}
