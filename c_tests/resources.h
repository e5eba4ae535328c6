/* Resources in use by this process: descriptors, mappings and memory. The program defines _GNU_SOURCE. */
#ifndef RUCP_RESOURCES_H
#define RUCP_RESOURCES_H

#include <dirent.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    size_t descriptors, mappings, bytes; /* bytes: allocated with malloc() */
} resources_t;

/* Entries of a directory, "." and ".." included; 0 if it cannot be read. */
static inline size_t entries_of(const char *path)
{
    DIR   *directory = opendir(path);
    size_t count     = 0;

    if (directory == NULL) {
        return 0;
    }
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

/* Lines of a file; 0 if it cannot be read. */
static inline size_t lines_of(const char *path)
{
    FILE  *file  = fopen(path, "r");
    size_t count = 0;

    if (file == NULL) {
        return 0;
    }
    for (int c; (c = fgetc(file)) != EOF;) {
        count += c == '\n';
    }
    fclose(file);
    return count;
}

static inline resources_t resources_in_use(void)
{
    return (resources_t){.descriptors = entries_of("/proc/self/fd"),
                         .mappings    = lines_of("/proc/self/maps"),
                         .bytes       = mallinfo2().uordblks};
}

static inline int resources_at_most(resources_t used, resources_t limit)
{
    return used.descriptors <= limit.descriptors && used.mappings <= limit.mappings && used.bytes <= limit.bytes;
}

#endif
