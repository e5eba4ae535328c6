/* Buffers of SIZE bytes, which a program defines before, and their contents during a transfer between two processes. */
#ifndef RUCP_VERBS_TRANSFER_H
#define RUCP_VERBS_TRANSFER_H

#include "party.h"

#include <string.h>
#include <sys/mman.h>

/* Contents of a buffer: nothing yet, the sent data, data that its owner writes after completion. */
enum { NOTHING, SENT, OWN };

static const ucp_request_param_t none  = {.op_attr_mask = 0};
static const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};

static inline unsigned char *memory(int value)
{
    unsigned char *bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    WANT_TRUE(bytes != MAP_FAILED);
    memset(bytes, value, SIZE);
    return bytes;
}

static inline size_t count(const unsigned char *bytes, int value)
{
    size_t n = 0;

    for (size_t i = 0; i < SIZE; i++) {
        n += bytes[i] == value;
    }
    return n;
}

#endif
