/*
 * A client in the manner of LCI v1: a put, in its callback a flush of the worker that must not complete at once, in the
 * flush's callback a message that announces the data. The result of the flush is used unchecked, as the header allows
 * (NO_IMM_CMPL: "NULL cannot be returned"): its user area has the contents that request_init has written. On UCX 1.13.1
 * an operation is always outstanding behind a put. (UCX 1.22 calls back when the put is the only outstanding one, and
 * returns NULL for that flush: this program crashes there.)
 *
 *   put_flush_send [ROUNDS]
 *
 * Two processes put into each other's memory, ROUNDS times for each of several lengths; the receiver of a message
 * checks the data of the put.
 */
#define _GNU_SOURCE
#include <ucp/api/ucp.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 100000, SECONDS = 60 };

static const size_t lengths[] = {1, 8, 4096, 20000, LONGEST};

/* The user's area of a request. */
typedef struct {
    uint64_t mark;
    int      done; /* of two: the call that made it has returned, its callback was called */
} area_t;

#define MARK 0x1ec0ffee1ec0ffeeu

static ucp_context_h context;
static ucp_worker_h  worker;
static ucp_ep_h      ep;
static ucp_rkey_h    rkey;
static uint64_t      remote;
static uint8_t      *window; /* written by the other process */
static uint8_t       out[LONGEST];
static unsigned      flushed, sent, flush_requests;

static void fail(const char *what)
{
    fprintf(stderr, "put_flush_send: %s\n", what);
    exit(1);
}

static void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fail(what);
    }
}

/* Progresses until a condition holds; a minute at most. */
#define UNTIL(condition)                                                                                              \
    do {                                                                                                              \
        time_t end_ = time(NULL) + SECONDS;                                                                           \
        while (!(condition)) {                                                                                        \
            ucp_worker_progress(worker);                                                                              \
            if (time(NULL) > end_) {                                                                                  \
                fail("it hangs: " #condition);                                                                        \
            }                                                                                                         \
        }                                                                                                             \
    } while (0)

static void on_request_init(void *request)
{
    *(area_t *)request = (area_t){.mark = MARK};
}

static void on_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)user_data;
    must(status, "the message");
    sent++;
    ucp_request_free(request);
}

/* A request is freed when its call has returned and its callback was called: freeing drops a callback that is due. */
static void release_when_both_done(area_t *area)
{
    area->done++;
    if (area->done == 2) {
        area->done = 0;
        ucp_request_free(area);
    }
}

static void on_flushed(void *request, ucs_status_t status, void *user_data)
{
    static uint64_t     word;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.send      = on_sent,
    };

    must(status, "the flush");
    flushed++;
    release_when_both_done(request);
    ucs_status_ptr_t message = ucp_tag_send_nbx(ep, &word, sizeof(word), (ucp_tag_t)(uintptr_t)user_data, &param);
    if (UCS_PTR_IS_ERR(message)) {
        fail("ucp_tag_send_nbx");
    }
}

static void on_put(void *request, ucs_status_t status, void *user_data)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.send      = on_flushed,
        .user_data    = user_data,
    };

    must(status, "the put");
    area_t *area = ucp_worker_flush_nbx(worker, &param);
    if (area->mark != MARK) {
        fail("what the flush returned is no request");
    }
    flush_requests++;
    release_when_both_done(area);
    ucp_request_free(request);
}

/* One put, announced by a message with this tag. */
static void put(size_t length, uintptr_t tag)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.send      = on_put,
        .user_data    = (void *)tag,
    };

    if (UCS_PTR_IS_ERR(ucp_put_nbx(ep, out, length, remote, rkey, &param))) {
        fail("ucp_put_nbx");
    }
}

static void receive(uintptr_t tag)
{
    static uint64_t     word;
    ucp_request_param_t param = {.op_attr_mask = 0};
    ucs_status_ptr_t    r     = ucp_tag_recv_nbx(worker, &word, sizeof(word), tag, -1, &param);

    if (UCS_PTR_IS_PTR(r)) {
        UNTIL(ucp_request_check_status(r) != UCS_INPROGRESS);
        must(ucp_request_check_status(r), "a receive");
        ucp_request_free(r);
    } else {
        must(UCS_PTR_STATUS(r), "ucp_tag_recv_nbx");
    }
}

/* Bytes of a round, different from those of the round before. */
static uint8_t byte_of(unsigned round, size_t i)
{
    return (uint8_t)(round * 31 + i * 7);
}

static void exchange(int link, const void *own, size_t length, void *theirs, size_t capacity)
{
    if (send(link, own, length, MSG_NOSIGNAL) != (ssize_t)length || recv(link, theirs, capacity, 0) <= 0) {
        fail("the other process has ended");
    }
}

static void open_up(int link)
{
    static char            theirs[8192];
    ucp_params_t           params = {
        .field_mask   = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_REQUEST_SIZE | UCP_PARAM_FIELD_REQUEST_INIT,
        .features     = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
        .request_size = sizeof(area_t),
        .request_init = on_request_init,
    };
    ucp_worker_params_t    worker_params = {.field_mask = 0};
    ucp_mem_map_params_t   map = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                                  .length = LONGEST};
    ucp_ep_params_t        ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t         *address;
    ucp_mem_h              memh;
    size_t                 length;
    void                  *key;

    must(ucp_init(&params, NULL, &context), "ucp_init");
    must(ucp_worker_create(context, &worker_params, &worker), "ucp_worker_create");
    must(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
    exchange(link, address, length, theirs, sizeof(theirs));
    ucp_worker_release_address(worker, address);
    ep_params.address = (const ucp_address_t *)theirs;
    must(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create");
    window = map.address = calloc(1, LONGEST);
    must(ucp_mem_map(context, &map, &memh), "ucp_mem_map");
    must(ucp_rkey_pack(context, memh, &key, &length), "ucp_rkey_pack");
    exchange(link, key, length, theirs, sizeof(theirs));
    ucp_rkey_buffer_release(key);
    must(ucp_ep_rkey_unpack(ep, theirs, &rkey), "ucp_ep_rkey_unpack");
    uint64_t own = (uintptr_t)window;
    exchange(link, &own, sizeof(own), &remote, sizeof(remote));
}

static void play(int link, unsigned rounds)
{
    unsigned round = 0;

    open_up(link);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        for (unsigned i = 0; i < rounds; i++) {
            round++;
            for (size_t b = 0; b < lengths[l]; b++) {
                out[b] = byte_of(round, b);
            }
            put(lengths[l], 2 * round);
            receive(2 * round);
            for (size_t b = 0; b < lengths[l]; b++) {
                if (window[b] != byte_of(round, b)) {
                    fail("a message says that data is there, which is not");
                }
            }
            UNTIL(sent == round);
            /* The other process has to check the data of a put before the next one arrives. */
            ucp_request_param_t param = {.op_attr_mask = 0};
            ucs_status_ptr_t    done  = ucp_tag_send_nbx(ep, &round, sizeof(round), 2 * round + 1, &param);
            receive(2 * round + 1);
            if (UCS_PTR_IS_PTR(done)) {
                UNTIL(ucp_request_check_status(done) != UCS_INPROGRESS);
                ucp_request_free(done);
            }
        }
    }
    if (flushed != round || flush_requests != round) {
        fail("some flushes had no callback");
    }
    printf("%u puts, %u flushes that gave a request\n", round, flush_requests);
    fflush(stdout);
    /* Neither process ends before the other one is done. */
    char byte = 'e';
    if (send(link, &byte, 1, MSG_NOSIGNAL) == 1) {
        UNTIL(recv(link, &byte, 1, MSG_DONTWAIT) >= 0);
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 200;
    int      links[2], failed = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) != 0) {
        fail("socketpair");
    }
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(links[1 - i]);
            play(links[i], rounds);
        }
    }
    close(links[0]);
    close(links[1]);
    for (int i = 0, status; i < 2; i++) {
        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}
