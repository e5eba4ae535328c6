/* Bytes determined by their index and by the seed of their message: neighbours, pages and messages all differ. */
#ifndef PATTERN_H
#define PATTERN_H

#include <stddef.h>

/* The byte at `index` of the message with this seed. */
static inline unsigned char pattern(size_t index, unsigned seed)
{
    return (unsigned char)(index * 31 + (index >> 8) * 7 + (index >> 16) * 13 + seed * 101 + 5);
}

static inline void fill(void *buffer, size_t length, unsigned seed)
{
    unsigned char *bytes = buffer;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(i, seed);
    }
}

/* Index of the first byte that is not the message's, `length` if there is none. */
static inline size_t first_wrong(const void *buffer, size_t length, unsigned seed)
{
    const unsigned char *bytes = buffer;
    size_t               i     = 0;

    while (i < length && bytes[i] == pattern(i, seed)) {
        i++;
    }
    return i;
}

#endif
