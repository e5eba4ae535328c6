/* Numbers without a pattern that are the same in every run. */
#ifndef RANDOM_H
#define RANDOM_H

/* 24 bits; any `state` to begin with. */
static inline unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

#endif
