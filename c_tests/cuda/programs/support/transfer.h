/* One tagged message with data that are checked. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "gpu.h"

/*
 * A message of A to B of the bytes of data_fill(seed); `what` is in the checks' lines. Its result is the number of
 * copies that the driver of this process has made for it.
 */
unsigned long long transfer(bed_t *bed, const area_t *source, const area_t *target, size_t length, unsigned seed,
                            const char *what);

#endif
