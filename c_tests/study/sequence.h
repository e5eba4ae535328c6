//! The random numbers of HPC Challenge's RandomAccess: powers of x modulo x^64 + x^2 + x + 1 over the field of two
//! elements.
#ifndef STUDY_SEQUENCE_H
#define STUDY_SEQUENCE_H

#include <stdint.h>

/** The number after this one. */
static inline uint64_t next_random(uint64_t number)
{
    return number << 1 ^ (-(number >> 63) & 7);
}

/** The n-th number, x to the power of n; the 0-th is 1. */
uint64_t random_at(uint64_t n);

#endif
