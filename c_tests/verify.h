/* Checks of message contents. */
#ifndef RUCP_VERIFY_H
#define RUCP_VERIFY_H

#include "check.h"
#include "pattern.h"

#include <stddef.h>

/* Fails, with the first wrong byte, unless `buffer` has the pattern of `seed`. */
static inline void verify(const void *buffer, size_t length, unsigned seed, const char *what)
{
    size_t i = first_wrong(buffer, length, seed);

    CHECK(i == length, "%s: byte %zu of %zu is 0x%02x, should be 0x%02x", what, i, length,
          ((const unsigned char *)buffer)[i], pattern(i, seed));
}

#endif
