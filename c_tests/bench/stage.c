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

enum { LIMIT_SECONDS = 300 };

int start_pair(void (*play)(struct place, void *), void *argument)
{
    struct place place = {.index = 0};
    int status = 0;
    pid_t child, parent = getpid();

    processors();
    place.stage = mmap(NULL, sizeof(*place.stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place.stage == MAP_FAILED || (child = fork()) < 0) {
        die("cannot start the other process");
    }
    alarm(LIMIT_SECONDS); /* of the whole program; a fork starts without its parent's */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        place.index = 1;
    }
    pin_to(place.index);
    play(place, argument);
    if (child == 0) {
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

void meet(struct place place, void (*meanwhile)(void *), void *argument)
{
    unsigned target = (atomic_fetch_add(&place.stage->arrived, 1) / 2 + 1) * 2;

    while ((int)(atomic_load_explicit(&place.stage->arrived, memory_order_acquire) - target) < 0) {
        if (meanwhile != NULL) {
            meanwhile(argument);
        }
    }
}

size_t exchange(struct place place, const void *mine, size_t length, void *theirs, size_t room)
{
    size_t their_length;

    if (length > MAIL_ROOM) {
        die("%zu bytes to exchange", length);
    }
    memcpy(place.stage->mail[place.index].bytes, mine, length);
    place.stage->mail[place.index].length = length;
    meet(place, NULL, NULL);
    their_length = place.stage->mail[!place.index].length;
    if (their_length > room) {
        die("the other process sent %zu bytes, there is room for %zu", their_length, room);
    }
    memcpy(theirs, place.stage->mail[!place.index].bytes, their_length);
    meet(place, NULL, NULL);
    return their_length;
}
