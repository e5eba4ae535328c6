/* Bytes to send: filled from a seed, so that a misplaced byte or one of another message is detected. */
#include "bed.h"

#include <stdlib.h>

static uint8_t byte_at(size_t index, unsigned seed)
{
    uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ull ^ ((uint64_t)seed + 1) * 0xd1342543de82ef95ull;

    return (uint8_t)(x >> 32 ^ x >> 56);
}

void *data_make(size_t length, unsigned seed)
{
    void *data = malloc(length > 0 ? length : 1);

    if (data == NULL) {
        abort();
    }
    data_fill(data, length, seed);
    return data;
}

void data_fill(void *data, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        ((uint8_t *)data)[i] = byte_at(i, seed);
    }
}

const char *data_check(const void *data, size_t length, unsigned seed)
{
    return data_check_at(data, 0, length, seed);
}

const char *data_check_at(const void *data, size_t offset, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        if (((const uint8_t *)data)[i] != byte_at(offset + i, seed)) {
            return "bad";
        }
    }
    return "good";
}

int data_is(const void *data, size_t length, uint8_t value)
{
    for (size_t i = 0; i < length; i++) {
        if (((const uint8_t *)data)[i] != value) {
            return 0;
        }
    }
    return 1;
}
