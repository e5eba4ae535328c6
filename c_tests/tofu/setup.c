/*
 * Properties that the creator of a wire sets for all its processes: shape, depths, the model of time, offsets of the
 * tables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { PAGE = 4096, ARMW_OPS = 0x3f };

uint64_t setup_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    char *end;
    uint64_t number;

    if (text == NULL || *text == '\0')
        return otherwise;
    number = strtoull(text, &end, 0);
    if (*end == '\0')
        return number;
    fprintf(stderr, "soft Tofu: %s=%s is no number\n", name, text);
    return otherwise;
}

static uint32_t within(const char *name, uint64_t otherwise, uint64_t least, uint64_t most)
{
    uint64_t number = setup_number(name, otherwise);

    return number < least ? least : number > most ? most : number;
}

/* The last three axes are a group of twelve nodes on genuine machines; VCQ ids have two bits for each of them. */
static bool shape(struct wire *layout)
{
    const char *text = getenv("SOFT_TOFU_SHAPE");
    uint32_t *s = layout->shape;
    int end = 0;

    if (text == NULL || *text == '\0')
        text = "1x1x1x2x3x2";
    if (sscanf(text, "%ux%ux%ux%ux%ux%u%n", s, s + 1, s + 2, s + 3, s + 4, s + 5, &end) != 6 || text[end] != '\0')
        return false;
    layout->nodes = 1;
    for (int i = 0; i < 6; i++) {
        if (s[i] < 1 || s[i] > (i < 3 ? 256 : 4) || layout->nodes * s[i] > WIRE_NODES)
            return false;
        layout->nodes *= s[i];
    }
    layout->strides[5] = 1; /* the last axis is the fastest */
    for (int i = 5; i > 0; i--)
        layout->strides[i - 1] = layout->strides[i] * s[i];
    return true;
}

static void times(struct wire_time *time)
{
    time->on = setup_number("SOFT_TOFU_TIME", 0);
    time->put = setup_number("SOFT_TOFU_TIME_PUT", 490);
    time->get = setup_number("SOFT_TOFU_TIME_GET", 490);
    time->atomic = setup_number("SOFT_TOFU_TIME_ATOMIC", 490);
    time->ack = setup_number("SOFT_TOFU_TIME_ACK", 490);
    time->hop = setup_number("SOFT_TOFU_TIME_HOP", 100);
    time->message = setup_number("SOFT_TOFU_TIME_MESSAGE", 0);
    time->mb_per_s = within("SOFT_TOFU_TIME_MB_PER_S", 6800, 1, 1000000);
}

static size_t place(size_t *end, size_t bytes)
{
    size_t at = (*end + PAGE - 1) / PAGE * PAGE;

    *end = at + bytes;
    return at;
}

size_t setup_size(struct wire *layout)
{
    size_t end = sizeof(*layout);

    if (!shape(layout)) {
        fprintf(stderr, "soft Tofu: SOFT_TOFU_SHAPE must be like 2x2x2x2x3x2, of at most %d nodes\n", WIRE_NODES);
        return 0;
    }
    times(&layout->time);
    layout->tnis = within("SOFT_TOFU_TNIS", WIRE_TNIS, 1, WIRE_TNIS);
    layout->cqs = within("SOFT_TOFU_CQS", WIRE_CQS, 1, WIRE_CQS);
    layout->stags =
        RESERVED_STAGS + within("SOFT_TOFU_STAGS", WIRE_STAGS - RESERVED_STAGS, 1, WIRE_STAGS - RESERVED_STAGS);
    layout->toq = within("SOFT_TOFU_TOQ", 1024, 1, 1 << 20);
    layout->tcq = within("SOFT_TOFU_TCQ", 1024, 1, 1 << 20);
    layout->armw_ops = within("SOFT_TOFU_ARMW_OPS", ARMW_OPS, 0, ARMW_OPS);
    while (layout->mrq_shift < 20 && 1u << layout->mrq_shift < within("SOFT_TOFU_MRQ", 4096, 2, 1 << 20))
        layout->mrq_shift++;
    layout->node_offset = place(&end, (size_t)layout->nodes * sizeof(struct wire_node));
    layout->stag_offset = place(&end, (size_t)layout->nodes * NODE_CQS * WIRE_STAGS * sizeof(struct wire_stag));
    layout->vcq_offset = place(&end, (size_t)layout->nodes * NODE_VCQS * sizeof(struct wire_vcq));
    layout->notice_offset =
        place(&end, ((size_t)layout->nodes * NODE_VCQS << layout->mrq_shift) * sizeof(struct wire_notice));
    return end;
}
