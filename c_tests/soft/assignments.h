/* "name=number,...": how faults are ordered. */
#ifndef SOFT_ASSIGNMENTS_H
#define SOFT_ASSIGNMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Calls `set` for each, which answers 0 or an error number; stops at the first error: EINVAL, or that. Numbers may be negative, and
 * hexadecimal. */
int soft_assignments(const char *text, int (*set)(const char *name, size_t length, uint64_t value));

#endif
