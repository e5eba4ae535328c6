/*
 * The worker that a hostile program attacks, in another process: it answers messages, and goes on whatever arrives.
 */
#ifndef VICTIM_H
#define VICTIM_H

#include "finish.h"
#include "party.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const ucp_request_param_t plain = {.op_attr_mask = 0};

/* Answers each message with its number plus one, until it is killed. */
static inline void answer(party_t *self)
{
    uint64_t number;

    notify_peer(self);
    for (;;) {
        ucs_status_ptr_t request = receive_tag(self, &number, sizeof(number), 1);
        while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(self->worker);
        }
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
        number++;
        finish(self, send_tag(self, &number, sizeof(number)));
    }
}

/* The worker goes on with its peer. */
static inline void check_answers(party_t *self)
{
    static uint64_t number = 100;
    uint64_t        back   = 0;

    WANT(UCS_OK, finish(self, send_tag(self, &number, sizeof(number))));
    WANT(UCS_OK, finish(self, receive_tag(self, &back, sizeof(back), 1)));
    WANT_TRUE(back == number + 1);
    number += 10;
    WANT_TRUE(self->failures == 0);
}

/* It connects with a new peer. */
static inline void check_new_peer(party_t *self)
{
    party_t             late   = *self;
    ucp_worker_params_t params = {.field_mask = 0};
    uint64_t            number = 7;

    WANT(UCS_OK, ucp_worker_create(self->context, &params, &late.worker));
    party_connect(&late, self->theirs, UCP_ERR_HANDLING_MODE_PEER);
    WANT(UCS_OK, finish(&late, send_tag(&late, &number, sizeof(number))));
    WANT(UCS_OK, finish(&late, ucp_ep_close_nbx(late.ep, &plain)));
    /* Its answer goes to the first peer. */
    WANT(UCS_OK, finish(self, receive_tag(self, &number, sizeof(number), 1)));
    WANT_TRUE(number == 8);
    ucp_worker_destroy(late.worker);
}

static inline int descriptors(pid_t pid)
{
    char path[64];
    int  count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return count;
}

/* Whether the process has the socket open. */
static inline int has_socket(pid_t pid, unsigned long inode)
{
    char path[64], link[400], target[64], wanted[64];
    int  found = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && !found && (entry = readdir(directory)) != NULL;) {
        snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
        ssize_t length = readlink(link, target, sizeof(target) - 1);
        found          = length > 0 && (target[length] = '\0', strcmp(target, wanted) == 0);
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return found;
}

static inline void open_victim(party_t *self)
{
    start(self, UCP_ERR_HANDLING_MODE_PEER, answer);
    WANT_TRUE(wait_notified(self));
    check_answers(self);
}

static inline void close_victim(party_t *self)
{
    check_answers(self);
    check_new_peer(self);
    kill_other(self);
    check_failure(self);
    check_after_failure(self);
}

#endif
