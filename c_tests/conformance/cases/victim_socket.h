/*
 * What attacks on a worker's sockets have in common.
 */
#ifndef VICTIM_SOCKET_H
#define VICTIM_SOCKET_H

#include "victim.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

/* A worker closes a connection that says nothing within this time. */
enum { SECONDS = 9 };

/* The worker has closed the connection, and sent nothing. */
static inline int is_closed(int fd)
{
    char    byte;
    ssize_t got = recv(fd, &byte, 1, 0);

    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

/*
 * Connections that close at once, more that say nothing than the worker keeps half open, and one that says no more than
 * these `length` bytes: all are closed, the worker answers meanwhile, and it keeps no descriptor. `connect_nth` makes
 * the n-th connection.
 */
static inline void check_silence(party_t *self, int (*connect_nth)(int n), const void *begun, size_t length)
{
    enum { CLOSED = 20, SILENT = 300, SLACK = 4 };
    static int fds[SILENT + 1];
    int        before = descriptors(self->other), after = 0;

    for (int i = 0; i < CLOSED; i++) {
        close(connect_nth(i));
    }
    for (int i = 0; i <= SILENT; i++) {
        fds[i] = connect_nth(i);
        if (i % 50 == 0) {
            check_answers(self);
        }
    }
    if (length > 0) {
        send(fds[SILENT], begun, length, MSG_NOSIGNAL);
    }
    for (int i = 0; i <= SILENT; i++) {
        WANT_TRUE(is_closed(fds[i]));
        close(fds[i]);
    }
    for (time_t end = time(NULL) + SECONDS; (after = descriptors(self->other)) > before + SLACK && time(NULL) < end;) {
        check_answers(self);
    }
    WANT_TRUE(after <= before + SLACK);
}

#endif
