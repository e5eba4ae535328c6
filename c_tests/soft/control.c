/*
 * The control program of a software device, built for each of them with its wire.h and the variable that names the
 * wire:
 *
 *   hcactl ud_drop_nth=7,delay_us=100     sets faults
 *   hcactl                                prints all faults and counters
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "wire.h"

int main(int argc, char **argv)
{
    const char *name = program_invocation_short_name;
    int error = wire_open();

    if (error != 0) {
        fprintf(stderr, "%s: " WIRE_VARIABLE ": %s\n", name, strerror(error));
        return 1;
    }
    for (int i = 1; i < argc; i++)
        if (fault_set(argv[i]) != 0) {
            fprintf(stderr, "%s: invalid fault: %s\n", name, argv[i]);
            return 1;
        }
    if (argc == 1)
        fault_print();
    return 0;
}
