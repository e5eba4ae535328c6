/* The file of a wire, which all processes with the device map. */
#ifndef SOFT_WIRE_FILE_H
#define SOFT_WIRE_FILE_H

/*
 * Opens the file that this environment variable names, creating it if needed, and calls `attach` with its descriptor,
 * in one thread of one process at a time; then closes it. Returns 0 or an errno; ENODEV if the variable is not set.
 */
int soft_wire_file_open(const char *variable, void (*attach)(int fd));

#endif
