/* Tests with two sides: an active one and a passive one in another process, connected by a socket. */
#ifndef SOFT_SIDES_H
#define SOFT_SIDES_H

#include "../check.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define EQUAL(one, two)                                                                                              \
    do {                                                                                                             \
        long long one_ = (long long)(one), two_ = (long long)(two);                                                  \
        CHECK(one_ == two_, "%s:%d: %s is %lld, not %lld", __FILE__, __LINE__, #one, one_, two_);                     \
    } while (0)

struct soft_case {
    const char *name;
    void (*active)(int socket), (*passive)(int socket);
    const char *settings; /* passed to `prepare` in both processes */
};

/* Hooks of a device's test around a case; either may be NULL. */
struct soft_stage {
    void (*prepare)(const char *settings, int side); /* in the process of a side: 0 is the active one */
    void (*clear)(void);                             /* when both have ended */
};

extern pid_t other; /* the passive side's process, for the active one */

/*
 * main() of such a test: runs every case, or the named ones, or with --list prints their names. A case fails if a side
 * does, or is killed; the active side may kill the passive one.
 */
int soft_main(int argc, char **argv, const struct soft_case *cases, size_t count, struct soft_stage stage);

#endif
