#include "assignments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int soft_assignments(const char *text, int (*set)(const char *name, size_t length, uint64_t value))
{
    while (*text != '\0') {
        size_t length = strcspn(text, "=,");
        char *end;
        uint64_t value;
        int error;

        if (text[length] != '=')
            return EINVAL;
        value = strtoull(text + length + 1, &end, 0); /* accepts a minus sign as well */
        if (*end != ',' && *end != '\0')
            return EINVAL;
        error = set(text, length, value);
        if (error != 0)
            return error;
        text = *end == ',' ? end + 1 : end;
    }
    return 0;
}
