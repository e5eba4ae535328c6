/* Reports a failed check of a program that tests or measures a software device. */
#include "../check.h"

#include <stdlib.h>

void check_report(const char *failure)
{
    fprintf(stderr, "%s\n", failure);
    exit(1);
}
