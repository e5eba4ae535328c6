//! Local memory: each thread's own buffer, touched by the thread first, so that it lies near its core.
#ifndef STUDY_LOCAL_H
#define STUDY_LOCAL_H

#include "options.h"

#include <stddef.h>

struct local {
    unsigned char *of[MAX_THREADS]; /* each thread's */
    size_t length;
};

extern struct local local;

/** The team must be open; every thread gets so many zeroed bytes. */
void open_local(size_t length);

void close_local(void);

#endif
