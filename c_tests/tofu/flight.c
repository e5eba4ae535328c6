/*
 * Notices in flight, while the model of time is on: read from the MRQ's ring already, kept in a heap until they are
 * due. A notice that is due late does not delay one that came after it.
 */
#include <stdlib.h>
#include <string.h>

#include "tofu.h"

static bool due_before(const struct flight *one, const struct flight *two)
{
    return one->due != two->due ? one->due < two->due : one->number < two->number;
}

static void exchange(struct flight *one, struct flight *two)
{
    struct flight kept = *one;

    *one = *two;
    *two = kept;
}

void flight_add(struct soft_vcq *vcq, const struct wire_notice *notice)
{
    struct flight *heap;
    size_t at = vcq->flying++;

    if (vcq->flying > vcq->flights_room) {
        vcq->flights_room = vcq->flights_room * 2 + 64;
        vcq->flights = realloc(vcq->flights, vcq->flights_room * sizeof(*heap));
    }
    heap = vcq->flights;
    heap[at] = (struct flight){.due = notice->due, .number = vcq->flights_ever++};
    memcpy(&heap[at].notice, notice, sizeof(*notice));
    for (; at > 0 && due_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        exchange(&heap[at], &heap[(at - 1) / 2]);
}

static void drop_first(struct soft_vcq *vcq)
{
    struct flight *heap = vcq->flights;
    size_t at = 0, child;

    heap[0] = heap[--vcq->flying];
    while ((child = 2 * at + 1) < vcq->flying) {
        if (child + 1 < vcq->flying && due_before(&heap[child + 1], &heap[child]))
            child++;
        if (!due_before(&heap[child], &heap[at]))
            break;
        exchange(&heap[at], &heap[child]);
        at = child;
    }
}

bool flight_arrives(struct soft_vcq *vcq, struct wire_notice *notice)
{
    if (vcq->flying == 0 || vcq->flights[0].due > now_ns())
        return false;
    memcpy(notice, &vcq->flights[0].notice, sizeof(*notice));
    drop_first(vcq);
    return true;
}
