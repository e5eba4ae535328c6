/* The cases of test.c: each has an active side and a passive one, on nodes 0 and 1 unless they say otherwise. */
#ifndef SOFT_TOFU_CASES_H
#define SOFT_TOFU_CASES_H

#include <sys/types.h>

#include "side.h"

extern pid_t other; /* the passive side's process, for the active one */

void one_sided_active(int socket);
void one_sided_passive(int socket);
void passive_waits(int socket);
void nothing_passive(int socket);

#endif
