/* Runs the cases, a process for each, and prints which ones failed and why. */
#define _GNU_SOURCE
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time limit of a case, or of one step of it. */
#define CASE_SECONDS 20

/* Of the current case; in its own process. */
static int checks, failures;

void check(const char *file, int line, const char *what, int fine, const char *got)
{
    const char *slash = strrchr(file, '/');

    checks++;
    if (!fine) {
        failures++;
        fprintf(stdout, "    %s:%d: %s: got %s\n", slash != NULL ? slash + 1 : file, line, what, got);
        fflush(stdout);
    }
}

void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        printf("    cannot go on: %s: %s\n", what, status_text(status));
        fflush(stdout);
        abort();
    }
}

int check_failed(void)
{
    return failures != 0;
}

const char *status_text(ucs_status_t status)
{
    static char text[32];

    snprintf(text, sizeof(text), "status %d", status);
    return text;
}

void check_restart_limit(void)
{
    alarm(CASE_SECONDS);
}

static void case_run(const case_t *test)
{
    check_restart_limit();
    test->run();
    if (checks == 0) {
        printf("    checked nothing\n");
        failures++;
    }
    fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
}

static int case_passes(const case_t *test)
{
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        case_run(test);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
        printf("FAIL %s: killed by signal %d (%s)\n", test->name, WTERMSIG(status), strsignal(WTERMSIG(status)));
        return 0;
    }
    printf("%s %s\n", WEXITSTATUS(status) == 0 ? "PASS" : "FAIL", test->name);
    return WEXITSTATUS(status) == 0;
}

int check_main(const case_t *cases, size_t count, const char *only)
{
    int passed = 0, failed = 0;

    for (size_t i = 0; i < count; i++) {
        if (only == NULL || strcmp(only, cases[i].name) == 0) {
            if (case_passes(&cases[i])) {
                passed++;
            } else {
                failed++;
            }
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0 || passed == 0;
}
