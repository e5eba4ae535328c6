/* Pseudo-random numbers that are the same in every run. */
#ifndef RANDOM_H
#define RANDOM_H

/* Returns 24 bits; `state` may have any initial value. */
static inline unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

#endif
