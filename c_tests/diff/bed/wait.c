/* Waiting: progress loops with a deadline, and the socket between the processes, outside of UCP. */
#define _GNU_SOURCE
#include "bed.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WAIT_SECONDS 60.0

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

deadline_t bed_deadline(const char *what)
{
    return (deadline_t){.what = what, .end = now() + WAIT_SECONDS};
}

void bed_progress(bed_t *bed)
{
    if (bed->a != NULL && bed->a->worker != NULL) {
        ucp_worker_progress(bed->a->worker);
    }
    if (bed->b != NULL && bed->b->worker != NULL && (bed->a == NULL || bed->a->worker != bed->b->worker)) {
        ucp_worker_progress(bed->b->worker);
    }
}

void bed_poll(bed_t *bed, deadline_t *deadline)
{
    bed_progress(bed);
    if (++deadline->turns % 128 != 0) {
        return;
    }
    sched_yield(); /* the tests share few cores with others */
    if (now() > deadline->end) {
        fact(bed->a, "HANG waiting for %s", deadline->what);
        fact(bed->b, "HANG waiting for %s", deadline->what);
        _exit(3);
    }
}

ucs_status_t bed_wait(bed_t *bed, ucs_status_ptr_t result)
{
    if (!UCS_PTR_IS_PTR(result)) {
        return UCS_PTR_STATUS(result);
    }
    BED_UNTIL(bed, ucp_request_check_status(result) != UCS_INPROGRESS);
    ucs_status_t status = ucp_request_check_status(result);
    ucp_request_free(result);
    return status;
}

static void link_send(const bed_t *bed, const void *data, size_t length)
{
    if (send(bed->link, data, length, MSG_NOSIGNAL) < 0) {
        fact(bed->a != NULL ? bed->a : bed->b, "CANNOT GO ON: the other side has ended");
        _exit(5);
    }
}

static size_t link_receive(bed_t *bed, void *out, size_t capacity)
{
    ssize_t received;

    BED_UNTIL(bed, (received = recv(bed->link, out, capacity, MSG_DONTWAIT)) >= 0);
    if (received == 0) {
        fact(bed->a != NULL ? bed->a : bed->b, "CANNOT GO ON: the other side has ended");
        _exit(5);
    }
    return (size_t)received;
}

void bed_sync(bed_t *bed)
{
    char byte = 's';

    if (bed->link >= 0) {
        link_send(bed, &byte, 1);
        link_receive(bed, &byte, 1);
    }
}

size_t bed_transfer(bed_t *bed, const side_t *from, const void *data, size_t length, void *out, size_t capacity)
{
    if (bed->link < 0) {
        if (length > capacity) {
            abort();
        }
        memcpy(out, data, length);
        return length;
    }
    if (from != NULL) {
        link_send(bed, data, length);
        return 0;
    }
    return link_receive(bed, out, capacity);
}
