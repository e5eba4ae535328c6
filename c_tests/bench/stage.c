//! The stage: see stage.h.
#define _GNU_SOURCE
#include "stage.h"
#include "figure.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned limit_seconds = 300;

/** Forks the process of this index, which runs its part and exits; returns its pid. */
static pid_t start(struct place place, void (*play)(struct place, void *), void *argument)
{
    pid_t parent = getpid(), child = fork();

    if (child < 0) {
        die("cannot start process %d", place.index);
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        pin_to(place.index);
        play(place, argument);
        _exit(0);
    }
    return child;
}

int start_processes(int number, void (*play)(struct place, void *), void *argument)
{
    struct place place = {.index = 0};
    pid_t children[MAX_PROCESSES];
    int failed = 0;

    processors();
    place.stage = mmap(NULL, sizeof(*place.stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place.stage == MAP_FAILED || number > MAX_PROCESSES) {
        die("cannot start %d processes", number);
    }
    place.stage->processes = (unsigned)number;
    for (int i = 1; i < number; i++) {
        children[i] = start((struct place){.stage = place.stage, .index = i}, play, argument);
    }
    alarm(limit_seconds); /* of the whole program; a fork starts without its parent's */
    pin_to(0);
    play(place, argument);
    for (int i = 1; i < number; i++) {
        int status;

        failed |= waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    return failed;
}

int start_pair(void (*play)(struct place, void *), void *argument)
{
    return start_processes(2, play, argument);
}

void meet(struct place place, void (*meanwhile)(void *), void *argument)
{
    unsigned processes = place.stage->processes;
    unsigned target = (atomic_fetch_add(&place.stage->arrived, 1) / processes + 1) * processes;

    while ((int)(atomic_load_explicit(&place.stage->arrived, memory_order_acquire) - target) < 0) {
        if (meanwhile != NULL) {
            meanwhile(argument);
        }
    }
}

size_t exchange(struct place place, const void *mine, size_t length, void *theirs, size_t room)
{
    unsigned other = ((unsigned)place.index + 1) % place.stage->processes; /* itself, if it is the only one */
    size_t their_length;

    if (length > MAIL_ROOM) {
        die("%zu bytes to exchange", length);
    }
    memcpy(place.stage->mail[place.index].bytes, mine, length);
    place.stage->mail[place.index].length = length;
    meet(place, NULL, NULL);
    their_length = place.stage->mail[other].length;
    if (their_length > room) {
        die("the other process sent %zu bytes, there is room for %zu", their_length, room);
    }
    memcpy(theirs, place.stage->mail[other].bytes, their_length);
    meet(place, NULL, NULL);
    return their_length;
}
