/*
 * Sets and shows the faults of the wire that SOFT_TOFU_WIRE names.
 *
 *   tofuctl reorder_nth=7,node_down=2     sets
 *   tofuctl                               shows all, and the counters
 */
#include <stdio.h>
#include <string.h>

#include "wire.h"

int main(int argc, char **argv)
{
    int error = wire_open();

    if (error != 0) {
        fprintf(stderr, "tofuctl: SOFT_TOFU_WIRE: %s\n", strerror(error));
        return 1;
    }
    for (int i = 1; i < argc; i++)
        if (fault_set(argv[i]) != 0) {
            fprintf(stderr, "tofuctl: %s is not understood\n", argv[i]);
            return 1;
        }
    if (argc == 1)
        fault_print();
    return 0;
}
