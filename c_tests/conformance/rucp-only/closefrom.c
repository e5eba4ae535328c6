/*
 * A process closes all descriptors above 2, as daemons do. Through shared memory its endpoints keep working, also those
 * that handle errors; over TCP they fail with a status at both ends, and so do those of clients and servers.
 * Descriptors that the process opens under the same numbers are neither read, written nor closed. A worker whose wakeup
 * descriptor is lost does not sleep. Peers detect an exec of the process as its end.
 */
#define _GNU_SOURCE
#include "party.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PLACES = 256, ROUNDS = 3 };

#define WORDS "the program's own"

static int over_tcp(void)
{
    const char *transports = getenv("UCX_TLS");

    return transports != NULL && strcmp(transports, "tcp") == 0;
}

/* --- descriptors opened in place of the library's --- */

static ino_t places[PLACES]; /* by descriptor; 0: none of those */

/* Files, pipes and sockets in turn, with something to be read. */
static void take_places(int upto)
{
    for (int last = 0, kind = 0; last <= upto; kind++) {
        int ends[2], one = -1;
        switch (kind % 3) {
        case 0:
            one = memfd_create("own", 0);
            break;
        case 1:
            WANT_TRUE(pipe2(ends, O_NONBLOCK) == 0);
            break;
        default:
            WANT_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
        }
        if (one >= 0) {
            ends[0] = ends[1] = one;
        }
        WANT_TRUE(write(ends[1], WORDS, sizeof(WORDS)) == sizeof(WORDS));
        for (int i = 0; i < 2; i++) {
            struct stat file;
            WANT_TRUE(ends[i] < PLACES && fstat(ends[i], &file) == 0);
            places[ends[i]] = file.st_ino;
            last            = ends[i];
        }
    }
}

/* They are open and have their contents; bytes written to one end of a socket or pipe arrive at the other one. */
static void places_untouched(void)
{
    for (int fd = 0; fd < PLACES; fd++) {
        char        bytes[2 * sizeof(WORDS)];
        struct stat file;
        if (places[fd] == 0) {
            continue;
        }
        WANT_TRUE(fstat(fd, &file) == 0 && file.st_ino == places[fd]);
        if (S_ISREG(file.st_mode)) {
            WANT_TRUE(file.st_size == sizeof(WORDS) && lseek(fd, 0, SEEK_CUR) == sizeof(WORDS));
            WANT_TRUE(pread(fd, bytes, sizeof(bytes), 0) == sizeof(WORDS) && memcmp(bytes, WORDS, sizeof(WORDS)) == 0);
        } else if (S_ISFIFO(file.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
            WANT_TRUE(read(fd, bytes, sizeof(bytes)) == sizeof(WORDS) && memcmp(bytes, WORDS, sizeof(WORDS)) == 0);
        } else if (S_ISSOCK(file.st_mode)) { /* for each pair the first descriptor has contents, the second none */
            ssize_t n = read(fd, bytes, sizeof(bytes));
            WANT_TRUE((n == sizeof(WORDS) && memcmp(bytes, WORDS, sizeof(WORDS)) == 0) || (n < 0 && errno == EAGAIN));
        }
    }
}

static int highest(void)
{
    int last = 2;

    for (int fd = 0; fd < PLACES; fd++) {
        last = fcntl(fd, F_GETFD) >= 0 ? fd : last;
    }
    return last;
}

/* The library detects the loss before the numbers are reused where it can: over TCP with the next progress. */
static void close_all(party_t *self)
{
    int last = highest();

    closefrom(3);
    for (int i = 0; i < 1000 && over_tcp(); i++) {
        ucp_worker_progress(self->worker);
    }
    take_places(last);
}

/* --- two workers --- */

/* Longer than several intervals of keepalive. */
static void progress_for_a_while(party_t *self)
{
    struct timespec begin, now;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        ucp_worker_progress(self->worker);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec + 1e-9 * (double)(now.tv_nsec - begin.tv_nsec) < 1);
}

static void talk_or_fail(party_t *self, int first)
{
    if (over_tcp()) {
        check_failure(self);
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        progress_for_a_while(self);
        meet(self, first);
    }
    WANT_TRUE(self->failures == 0);
}

static void other_side(party_t *self)
{
    char byte;

    /* The link is closed with all descriptors of the other process. */
    while (recv(self->link, &byte, 1, MSG_DONTWAIT) != 0) {
        ucp_worker_progress(self->worker);
    }
    talk_or_fail(self, 0);
    _exit(check_failed());
}

static void two_processes(void)
{
    party_t self;
    int     status = -1;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, other_side);
    close_all(&self);
    talk_or_fail(&self, 1);
    if (over_tcp()) {
        check_after_failure(&self);
    } else {
        ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
        WANT(UCS_OK, finish(&self, ucp_ep_close_nbx(self.ep, &force)));
        ucp_worker_destroy(self.worker);
        ucp_cleanup(self.context);
    }
    WANT_TRUE(waitpid(self.other, &status, 0) == self.other && status == 0);
    places_untouched();
}

static void other_program(party_t *self)
{
    notify_peer(self);
    execlp("sleep", "sleep", "60", NULL);
    _exit(1);
}

static void executes(void)
{
    party_t self;

    start(&self, UCP_ERR_HANDLING_MODE_PEER, other_program);
    WANT_TRUE(wait_notified(&self));
    check_failure(&self);
    kill_other(&self);
    check_after_failure(&self);
}

/* --- sleeping --- */

static void does_not_sleep(void)
{
    fixture_t all = fixture_open(ALL_FEATURES);
    int       last;

    fixture_works(&all);
    last = highest();
    closefrom(3);
    for (int i = 0; i < 1000; i++) {
        ucp_worker_progress(all.worker);
    }
    take_places(last);
    WANT(UCS_ERR_IO_ERROR, ucp_worker_arm(all.worker));
    WANT(UCS_ERR_IO_ERROR, ucp_worker_wait(all.worker));
    if (!over_tcp()) {
        fixture_works(&all);
    }
    fixture_close(&all);
    places_untouched();
}

/* --- a client and a server --- */

static ucp_worker_h worker;
static ucp_ep_h     accepted;
static int          failures[2];

static void on_end(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ++*(int *)arg;
    /* An endpoint timeout where the connection between the workers was being made. */
    WANT_TRUE(status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_UNREACHABLE);
}

static void on_request(ucp_conn_request_h request, void *arg)
{
    ucp_ep_params_t params = {.field_mask   = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .conn_request = request,
                              .err_handler  = {.cb = on_end, .arg = &failures[1]}};

    (void)arg;
    WANT(UCS_OK, ucp_ep_create(worker, &params, &accepted));
}

static ucp_ep_h connect_to(const struct sockaddr_storage *at)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                       UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags       = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr    = {.addr = (const struct sockaddr *)at, .addrlen = sizeof(struct sockaddr_in)},
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_end, .arg = &failures[0]},
    };
    ucp_ep_h client = NULL;

    WANT(UCS_OK, ucp_ep_create(worker, &params, &client));
    return client;
}

static int all_failed(const int *count)
{
    return count[0] + count[1] == 2;
}

static int is_accepted(const int *count)
{
    (void)count;
    return accepted != NULL;
}

static void progress_until(int (*is)(const int *))
{
    time_t end = time(NULL) + 10;

    while (!is(failures) && time(NULL) < end) {
        ucp_worker_progress(worker);
    }
    WANT_TRUE(is(failures));
}

static void client_and_server(void)
{
    struct sockaddr_in    here   = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ucp_listener_params_t params = {.field_mask   = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                                    UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .sockaddr     = {.addr = (struct sockaddr *)&here, .addrlen = sizeof(here)},
                                    .conn_handler = {.cb = on_request}};
    ucp_listener_attr_t   attr   = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucp_request_param_t   force  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_params_t          features = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t   none     = {.field_mask = 0};
    ucp_context_h         context;
    ucp_listener_h        listener;
    party_t               self = {.other = 0};

    WANT(UCS_OK, ucp_init(&features, NULL, &context));
    WANT(UCS_OK, ucp_worker_create(context, &none, &worker));
    WANT(UCS_OK, ucp_listener_create(worker, &params, &listener));
    WANT(UCS_OK, ucp_listener_query(listener, &attr));
    ucp_ep_h client = connect_to(&attr.sockaddr);
    self.worker     = worker;
    self.ep         = client;
    progress_until(is_accepted);
    WANT(UCS_OK, finish(&self, ucp_ep_flush_nbx(client, &(ucp_request_param_t){.op_attr_mask = 0})));
    closefrom(3);
    progress_until(all_failed);
    take_places(30);
    WANT_TRUE(finish(&self, ucp_ep_close_nbx(client, &force)) != UCS_INPROGRESS);
    WANT_TRUE(finish(&self, ucp_ep_close_nbx(accepted, &force)) != UCS_INPROGRESS);
    ucp_listener_destroy(listener);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    places_untouched();
}

int main(int argc, char **argv)
{
    static const case_t cases[] = {
        {"two processes", two_processes},
        {"another program", executes},
        {"sleeping", does_not_sleep},
        {"a client and a server", client_and_server},
    };

    return check_main(cases, sizeof(cases) / sizeof(cases[0]), argc > 1 ? argv[1] : NULL);
}
