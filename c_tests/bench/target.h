//! Another process, whose memory is accessed while it calls nothing.
#ifndef BENCH_TARGET_H
#define BENCH_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ucp/api/ucp.h>

struct target {
    pid_t process;
    uint64_t remote; /* address of its memory, which malloc has allocated */
    size_t address_length, key_length;
    unsigned char address[1 << 12], key[1 << 10]; /* of its worker, and of the memory */
};

/** Starts the process, with so many bytes of memory. It ends with the caller. */
void start_target(struct target *target, size_t bytes);

/** Whether the kernel lets this process access the memory of the other one. */
int is_accessible(const struct target *target);

/** Ends it. */
void end_target(struct target *target);

#endif
