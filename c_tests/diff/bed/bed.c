/* Runs a script in its topology: forks the processes, monitors them, prints their facts. */
#define _GNU_SOURCE
#include "bed.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WATCH_SECONDS 60 /* longer than any bounded wait of a script */
#define GRACE_SECONDS 3

static const char *const topology_names[] = {"self", "pair", "fork"};

static int topology_parse(const char *name, topology_t *topology)
{
    for (int i = 0; i < 3; i++) {
        if (name != NULL && strcmp(name, topology_names[i]) == 0) {
            *topology = (topology_t)i;
            return 1;
        }
    }
    return 0;
}

/* Records the UCX libraries of this process, for compare.sh. */
void bed_maps_record(char side)
{
    const char *prefix = getenv("BED_MAPS");
    char        line[4096], path[4096];

    if (prefix == NULL) {
        return;
    }
    snprintf(path, sizeof(path), "%s.%c", prefix, side);
    FILE *out = fopen(path, "w"), *maps = fopen("/proc/self/maps", "r");
    while (out != NULL && maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        const char *file = strchr(line, '/');
        if (file != NULL && (strstr(file, "/libuc") != NULL)) {
            fputs(file, out);
        }
    }
    if (maps != NULL) {
        fclose(maps);
    }
    if (out != NULL) {
        fclose(out);
    }
}

/* Switches this process to user `number` of BED_USERS ("UID UID"), as a service started by root does. */
static void become_user(int number)
{
    const char *users = getenv("BED_USERS");
    unsigned    ids[2];

    if (users == NULL || sscanf(users, "%u %u", &ids[0], &ids[1]) != 2 || ids[number] == getuid()) {
        return;
    }
    if (setgroups(0, NULL) != 0 || setgid(ids[number]) != 0 || setuid(ids[number]) != 0) {
        perror("another user");
        exit(6);
    }
    prctl(PR_SET_DUMPABLE, 1); /* as after an exec */
}

/* Main function of one child: first..last are the sides that it plays. */
static void play(bed_t *bed, int first, int last, void (*script)(bed_t *))
{
    bed_maps_record(bed->sides[first].name);
    become_user(first);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bed->a = first == 0 ? &bed->sides[0] : NULL;
    bed->b = last == 1 ? &bed->sides[1] : NULL;
    script(bed);
    bed_maps_record(bed->sides[first].name);
    exit(0);
}

static int report_end(char side, int status)
{
    if (WIFSIGNALED(status)) {
        printf("%c: killed by signal %d\n", side, WTERMSIG(status));
        return 1;
    }
    if (WEXITSTATUS(status) != 0) {
        printf("%c: exit code %d\n", side, WEXITSTATUS(status));
    }
    return WEXITSTATUS(status);
}

/*
 * Waits until all children have ended, WATCH_SECONDS at most; when one has failed the others are killed soon after,
 * as they wait for it.
 */
static void wait_children(const pid_t *pids, int *statuses, int count)
{
    time_t          end   = time(NULL) + WATCH_SECONDS;
    struct timespec pause = {0, 2000000};

    for (int left = count, ended[2] = {0, 0}; left > 0; nanosleep(&pause, NULL)) {
        for (int i = 0; i < count; i++) {
            if (ended[i]) {
                continue;
            }
            if (time(NULL) > end) {
                kill(pids[i], SIGKILL);
            }
            if (waitpid(pids[i], &statuses[i], WNOHANG) == pids[i]) {
                ended[i] = 1;
                left--;
                if (statuses[i] != 0 && end > time(NULL) + GRACE_SECONDS) {
                    end = time(NULL) + GRACE_SECONDS;
                }
            }
        }
    }
}

static int is_alone(void)
{
    const char *wanted = getenv("BED_NAMESPACE");

    return wanted != NULL && strcmp(wanted, "alone") == 0;
}

/*
 * The namespaces of a side, if any, with a /proc of its own: BED_NAMESPACE is b (B has its own process
 * ids), each (both have), apart (and each has its own System V memory, too), or alone (and each has its own /dev/shm,
 * too).
 */
static int namespaces_of(int side)
{
    const char *wanted = getenv("BED_NAMESPACE");

    if (wanted == NULL || (strcmp(wanted, "b") == 0 && side == 0)) {
        return 0;
    }
    return CLONE_NEWPID | (strcmp(wanted, "apart") == 0 || is_alone() ? CLONE_NEWIPC : 0);
}

static void mount_own(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", 0, NULL) != 0 ||
        (is_alone() && mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) != 0)) {
        perror("a /proc of its own");
        exit(6);
    }
}

/* Moves this process to the host that is process `number` of BED_HOSTS ("PID PID"), if there are hosts. */
static void move_to_host(int number)
{
    static const char *const kinds[] = {"net", "ipc", "uts", "mnt"};
    const char              *hosts   = getenv("BED_HOSTS");
    int                      pids[2];
    char                     path[64];

    if (hosts == NULL || sscanf(hosts, "%d %d", &pids[0], &pids[1]) != 2) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", pids[number], kinds[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, 0) != 0) {
            perror(path);
            exit(6);
        }
        close(fd);
    }
}

static pid_t launch(bed_t *bed, int first, int last, int link, int other, void (*script)(bed_t *))
{
    fflush(stdout);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | namespaces_of(first), NULL, NULL, NULL, NULL);
    if (pid == 0) {
        bed->link = link;
        if (namespaces_of(first) != 0) {
            mount_own();
        }
        move_to_host(first);
        if (other >= 0) {
            close(other);
        }
        play(bed, first, last, script);
    }
    return pid;
}

static int run(bed_t *bed, void (*script)(bed_t *))
{
    int   links[2] = {-1, -1}, statuses[2] = {0, 0}, count = 1;
    pid_t pids[2];

    if (bed->topology != TOPOLOGY_FORK) {
        pids[0] = launch(bed, 0, 1, -1, -1, script);
    } else {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) != 0) {
            perror("socketpair");
            return 1;
        }
        count   = 2;
        pids[0] = launch(bed, 0, 0, links[0], links[1], script);
        pids[1] = launch(bed, 1, 1, links[1], links[0], script);
        close(links[0]);
        close(links[1]);
    }
    wait_children(pids, statuses, count);
    facts_print(bed->sides[0].facts, 'A');
    facts_print(bed->sides[1].facts, 'B');
    int failed = report_end('A', statuses[0]);
    return report_end('B', statuses[1]) || failed;
}

int bed_main(int argc, char **argv, void (*script)(bed_t *))
{
    bed_t bed = {.link = -1};

    if (argc != 2 || !topology_parse(argv[1], &bed.topology)) {
        fprintf(stderr, "usage: %s self|pair|fork\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < 2; i++) {
        bed.sides[i].name  = (char)('A' + i);
        bed.sides[i].facts = facts_create();
    }
    return run(&bed, script);
}
