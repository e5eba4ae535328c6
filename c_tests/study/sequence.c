//! The random numbers: see sequence.h.
#include "sequence.h"

/** Of two polynomials, by Horner's scheme from the highest coefficient on. */
static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result = 0;

    for (int bit = 63; bit >= 0; bit--) {
        result = next_random(result) ^ (-(b >> bit & 1) & a);
    }
    return result;
}

uint64_t random_at(uint64_t n)
{
    uint64_t result = 1, power = 2;

    for (; n > 0; n >>= 1) {
        if (n & 1) {
            result = product(result, power);
        }
        power = product(power, power);
    }
    return result;
}
