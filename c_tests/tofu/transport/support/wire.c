/* Calls the software Tofu's control program: this process may be on another node, or none. */
#include "wire.h"

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned long counter(const char *name)
{
    char          line[128];
    size_t        length = strlen(name);
    unsigned long value  = 0;
    int           found  = 0;
    FILE         *list   = popen(getenv("TOFUCTL"), "r");

    while (list != NULL && fgets(line, sizeof(line), list) != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            value = strtoul(line + length + 1, NULL, 10);
            found = 1;
        }
    }
    check(__FILE__, __LINE__, name, list != NULL && pclose(list) == 0 && found, "no such counter");
    return value;
}

void fault(const char *what)
{
    char command[512];

    snprintf(command, sizeof(command), "\"$TOFUCTL\" %s", what);
    check(__FILE__, __LINE__, what, system(command) == 0, "not set");
}

void be_node(int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    setenv("SOFT_TOFU_NODE", text, 1);
}
