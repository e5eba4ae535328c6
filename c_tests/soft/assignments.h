/* Parser of "name=number,...": the format of injected faults. */
#ifndef SOFT_ASSIGNMENTS_H
#define SOFT_ASSIGNMENTS_H

#include <stddef.h>
#include <stdint.h>

/*
 * Calls `set` for each, which returns 0 or an error number; returns the first error, or EINVAL. Numbers may be
 * negative, and hexadecimal.
 */
int soft_assignments(const char *text, int (*set)(const char *name, size_t length, uint64_t value));

#endif
