/* Runs the cases, a process for each, and prints which ones failed and why. */
#define _GNU_SOURCE
#include "check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time limit of a case, or of one step of it, and of one in a program that is emulated (scripts/processor). */
#define CASE_SECONDS 20
#define EMULATED_CASE_SECONDS 200

/* Of the current case, in its own process; threads of a case check, too. */
static atomic_int  checks, failures;
static const char *current;

/* Exit status of a case that cannot run here. */
enum { SKIPPED = 77 };

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

void check_skip(const char *why)
{
    printf("SKIP %s: %s\n", current, why);
    fflush(stdout);
    _exit(SKIPPED);
}

int check_failed(void)
{
    return failures != 0;
}

const char *status_text(ucs_status_t status)
{
    static _Thread_local char text[32];

    snprintf(text, sizeof(text), "status %d", status);
    return text;
}

void check_restart_limit(void)
{
    alarm(getenv("RUN_UNDER") != NULL ? EMULATED_CASE_SECONDS : CASE_SECONDS);
}

static void case_run(const case_t *test)
{
    check_restart_limit();
    current = test->name;
    test->run();
    if (checks == 0) {
        printf("    checked nothing\n");
        failures++;
    }
    fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
}

typedef enum { CASE_PASSED, CASE_FAILED, CASE_SKIPPED } verdict_t;

static verdict_t case_verdict(const case_t *test)
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
        return CASE_FAILED;
    }
    if (WEXITSTATUS(status) == SKIPPED) {
        return CASE_SKIPPED;
    }
    printf("%s %s\n", WEXITSTATUS(status) == 0 ? "PASS" : "FAIL", test->name);
    return WEXITSTATUS(status) == 0 ? CASE_PASSED : CASE_FAILED;
}

int check_main(const case_t *cases, size_t count, const char *only)
{
    int counts[] = {[CASE_PASSED] = 0, [CASE_FAILED] = 0, [CASE_SKIPPED] = 0};

    for (size_t i = 0; i < count; i++) {
        if (only == NULL || strcmp(only, cases[i].name) == 0) {
            counts[case_verdict(&cases[i])]++;
        }
    }
    printf("%d passed, %d failed", counts[CASE_PASSED], counts[CASE_FAILED]);
    if (counts[CASE_SKIPPED] > 0) {
        printf(", %d skipped", counts[CASE_SKIPPED]);
    }
    printf("\n");
    return counts[CASE_FAILED] != 0 || counts[CASE_PASSED] == 0;
}
