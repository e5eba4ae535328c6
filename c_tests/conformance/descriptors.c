/*
 * A process closes all descriptors above 2, as daemons do, while it talks to another process through shared memory, to
 * a second worker of its own and to itself: the traffic goes on, in both directions, no endpoint fails, and the files
 * and pipes that take the places of the closed descriptors are not touched.
 */
#define _GNU_SOURCE
#include "bed.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG = 300000, TIMEOUT = 20 /* seconds */ };

/* Longer than several intervals of keepalive. */
static const double AFTERWARDS = 1.5;

/* Shared by the processes, outside of UCP. */
typedef struct {
    atomic_int ready, over, through, more[2];
    char       address[2][BED_ADDRESS_MAX];
    char       report[2][4096];
} board_t;

static board_t      *board;
static ucp_context_h context;
static ucp_worker_h  worker, second;
static int           self, failures;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void say(const char *what, int number)
{
    size_t used = strlen(board->report[self]);

    snprintf(board->report[self] + used, sizeof(board->report[self]) - used, "%c: %s: %d\n", "AB"[self], what, number);
}

static void exit_with(const char *what)
{
    say(what, -1);
    _exit(3);
}

static void progress(void)
{
    ucp_worker_progress(worker);
    if (second != NULL) {
        ucp_worker_progress(second);
    }
}

static void wait_until(atomic_int *number, int at_least, const char *what)
{
    double end = now() + TIMEOUT;

    while (atomic_load(number) < at_least) { /* pairs with the release of the process that counts */
        progress();
        sched_yield();
        if (now() > end) {
            exit_with(what);
        }
    }
}

static ucs_status_t wait_for(ucs_status_ptr_t request, const char *what)
{
    ucs_status_t status = UCS_PTR_STATUS(request);
    double       end    = now() + TIMEOUT;

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
            progress();
            if (now() > end) {
                exit_with(what);
            }
        }
        ucp_request_free(request);
    }
    return status;
}

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)arg, (void)ep, (void)status;
    failures++;
}

static ucp_worker_h open_worker(void)
{
    ucp_worker_params_t params = {.field_mask = 0};
    ucp_worker_h        made;

    if (ucp_worker_create(context, &params, &made) != UCS_OK) {
        exit_with("no worker");
    }
    return made;
}

static void copy_address(ucp_worker_h of, char *to)
{
    ucp_address_t *address;
    size_t         length;

    if (ucp_worker_get_address(of, &address, &length) != UCS_OK || length > BED_ADDRESS_MAX) {
        exit_with("no address");
    }
    memcpy(to, address, length);
    ucp_worker_release_address(of, address);
}

static ucp_ep_h connect_to(const char *address)
{
    ucp_ep_params_t params = {
        .field_mask  = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = (const ucp_address_t *)address,
        .err_handler = {.cb = on_failure},
    };
    ucp_ep_h ep;

    if (ucp_ep_create(worker, &params, &ep) != UCS_OK) {
        exit_with("no endpoint");
    }
    return ep;
}

/*
 * One message out by `ep` and one in at `to`, short or long; both requests end with UCS_OK and the received bytes are
 * right.
 */
static int exchange(ucp_ep_h ep, ucp_worker_h to, size_t length, int round)
{
    static unsigned char      out[LONG], in[LONG];
    const ucp_request_param_t param    = {.op_attr_mask = 0};
    ucs_status_ptr_t          received = ucp_tag_recv_nbx(to, in, length, 1, -1, &param), sent;
    unsigned char             seed     = (unsigned char)round;
    int                       good;

    memset(out, seed, length);
    sent = ucp_tag_send_nbx(ep, out, length, 1, &param);
    good = wait_for(sent, "a send hangs") == UCS_OK;
    good &= wait_for(received, "a receive hangs") == UCS_OK;
    return good && data_is(in, length, seed);
}

/* Exchanges messages for a while; returns how many were wrong. */
static int exchange_messages(ucp_ep_h other, ucp_ep_h own, ucp_ep_h to_second, int *rounds, int until)
{
    int    bad = 0;
    double end = now() + AFTERWARDS;

    /* Both processes play the same number of rounds: the first one announces the last round. */
    for (int more = 1; more; (*rounds)++) {
        size_t length = *rounds % 8 == 0 ? LONG : 8;
        bad += !exchange(other, worker, length, *rounds);
        bad += !exchange(own, worker, length, *rounds);
        bad += !exchange(to_second, second, length, *rounds);
        if (self == 0) {
            more = now() < end && *rounds < until;
            atomic_store(&board->more[*rounds % 2], more ? 1 : 2); /* releases it to the other process */
        } else {
            atomic_int *announced = &board->more[*rounds % 2];
            wait_until(announced, 1, "the other process is gone");
            more = atomic_exchange(announced, 0) == 1;
        }
        atomic_fetch_add(&board->through, 1);
        wait_until(&board->through, 2 * (*rounds + 1), "the other process has stopped");
    }
    return bad;
}

/* --- descriptors opened in place of the library's --- */

#define WORDS "the program's own"

static int highest(void)
{
    int fd = dup(0);

    close(fd);
    for (int other = fd; other < 256; other++) {
        fd = fcntl(other, F_GETFD) >= 0 ? other : fd;
    }
    return fd;
}

/* A file, or a pipe with bytes in it: all of them are read and written in the same way. */
static void take_places(int upto)
{
    int ends[2], fd = 0;

    while (fd <= upto) {
        fd = memfd_create("own", 0);
        if (write(fd, WORDS, sizeof(WORDS)) != sizeof(WORDS) || lseek(fd, 0, SEEK_SET) != 0 ||
            pipe2(ends, O_NONBLOCK) != 0 || write(ends[1], WORDS, sizeof(WORDS)) != sizeof(WORDS)) {
            exit_with("no descriptors");
        }
    }
}

/* How many of those were changed. */
static int touched(int upto)
{
    char bytes[2 * sizeof(WORDS)];
    int  bad = 0;

    for (int fd = 3; fd <= upto; fd++) {
        ssize_t     n = -1;
        struct stat file;
        if (fstat(fd, &file) == 0 && (S_ISREG(file.st_mode) || (fd - 3) % 3 == 1)) {
            n = read(fd, bytes, sizeof(bytes));
        } else if (fstat(fd, &file) == 0) {
            continue; /* the writing end of a pipe: what is written to it is read at the other end */
        }
        bad += n != sizeof(WORDS) || memcmp(bytes, WORDS, sizeof(WORDS)) != 0;
    }
    return bad;
}

static void live(void)
{
    const ucp_request_param_t param = {.op_attr_mask = 0};
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_ep_h     other, own, to_second;
    char         address[BED_ADDRESS_MAX];
    int          rounds = 0, last = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ucp_init(&params, NULL, &context) != UCS_OK) {
        exit_with("no context");
    }
    worker = open_worker();
    second = open_worker();
    bed_maps_record("AB"[self]);
    copy_address(worker, board->address[self]);
    copy_address(second, address);
    atomic_fetch_add(&board->ready, 1);
    wait_until(&board->ready, 2, "no other process");
    other     = connect_to(board->address[!self]);
    own       = connect_to(board->address[self]);
    to_second = connect_to(address);
    say("bad messages before", exchange_messages(other, own, to_second, &rounds, 100));
    if (self == 0) {
        last = highest();
        closefrom(3);
        take_places(last);
    }
    say("bad messages afterwards", exchange_messages(other, own, to_second, &rounds, 1 << 30));
    say("failures", failures);
    say("close of the endpoint to the other process", wait_for(ucp_ep_close_nbx(other, &param), "a close hangs"));
    wait_for(ucp_ep_close_nbx(own, &param), "a close hangs");
    wait_for(ucp_ep_close_nbx(to_second, &param), "a close hangs");
    if (self == 0) {
        say("descriptors that were touched", touched(last));
    }
    atomic_fetch_add(&board->over, 1);
    wait_until(&board->over, 2, "the other process has not closed");
    ucp_worker_destroy(second);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    exit(0);
}

int main(void)
{
    int failed = 0, status;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (self = 0; self < 2; self++) {
        if (fork() == 0) {
            live();
        }
    }
    while (wait(&status) > 0) {
        failed += status != 0;
    }
    printf("%s%sprocesses that failed: %d\n", board->report[0], board->report[1], failed);
    return failed != 0;
}
