/* Counters of the software HCA; the environment variable HCACTL names the program that prints them. */
#ifndef RUCP_VERBS_COUNTERS_H
#define RUCP_VERBS_COUNTERS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int has_counters(void)
{
    return getenv("HCACTL") != NULL;
}

/* The counter of this name; 0 without HCACTL, -1 if there is no such counter. */
static inline long counter(const char *name)
{
    size_t length = strlen(name);
    char   line[128];
    long   count = -1;
    FILE  *all;

    if (!has_counters()) {
        return 0;
    }
    all = popen(getenv("HCACTL"), "r");
    while (all != NULL && fgets(line, sizeof(line), all) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            count = strtol(line + length + 1, NULL, 10);
        }
    }
    if (all != NULL) {
        pclose(all);
    }
    return count;
}

#endif
